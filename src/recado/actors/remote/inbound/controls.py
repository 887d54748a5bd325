"""Control messages from other nodes: signals for actors, and requests to the node itself.

CT1  An untrusted peer cannot create, move, stop or supervise actors here.
CT2  A node can send signals in the name of its own actors only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from recado.actors.address import Address
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote.errors import InvalidEnvelopeError
from recado.actors.remote.peer import Peer
from recado.actors.remote.wire.controls import (
    CONTROL_MANIFEST,
    PRIVILEGED_SIGNALS,
    AbandonActor,
    ActorIdentified,
    CreateActor,
    MoveActor,
    Ping,
    Pong,
    RemoteSignal,
    decode_control,
    decode_signal,
)
from recado.actors.remote.wire.envelope_pb2 import Envelope
from recado.actors.supervision.signals import Failed

if TYPE_CHECKING:
    from recado.actors.remote.node import Node


class WrongNodeError(InvalidEnvelopeError):
    """The envelope is addressed to another node: it was misrouted, or replayed by an attacker."""


class UntrustedControlError(InvalidEnvelopeError):
    """The request would control our actors, and this node is configured as `untrusted`."""


class EnvelopeContext(Protocol):
    """The inbound handler, as far as control messages need it."""

    def parse_target(self, text: str) -> Address:
        """Return an address of this node. Raises InvalidEnvelopeError."""

    def make_reply(self, peer: Peer, envelope: Envelope) -> Reply:
        """Return the reply through which the request in this envelope is answered."""


class ControlHandler:
    def __init__(self, node: Node, context: EnvelopeContext) -> None:
        self._node = node
        self._system = node.system
        self._context = context

    def handle(self, peer: Peer, envelope: Envelope) -> None:
        """Process a control message. Raises InvalidEnvelopeError and its subclasses above."""
        payload = envelope.message
        if payload.manifest != CONTROL_MANIFEST:
            raise InvalidEnvelopeError(f"control message with manifest {payload.manifest!r}")
        control = decode_control(payload.body)
        if isinstance(control, RemoteSignal):
            self._handle_signal(peer, self._context.parse_target(envelope.target), control)
            return
        if isinstance(control, ActorIdentified):
            self._handle_identified(peer, self._context.parse_target(envelope.target), control)
            return
        if envelope.target != self._system.name:
            raise WrongNodeError(f"control message for node {envelope.target}")
        reply = self._context.make_reply(peer, envelope)
        match control:
            case Ping():
                self._node.outbound.send_control(peer, Pong())
            case Pong():
                pass  # every authentic frame counts as a heartbeat
            case CreateActor():
                self._require_trust("create an actor")
                self._system._start_task(self._node.creation.handle_create(peer, control, reply))
            case MoveActor():
                self._require_trust("move an actor here")
                self._system._start_task(self._node.migration.handle_move(peer, control, reply))
            case AbandonActor(token):
                self._require_trust("abandon an actor")
                self._node.creation.tokens.abandon(peer, token)

    def _handle_signal(self, peer: Peer, target: Address, message: RemoteSignal) -> None:
        if message.name in PRIVILEGED_SIGNALS:
            self._require_trust(f"send signal {message.name}")
        ref = self._resolve_peer_actor(peer, message.ref) if message.ref else None
        signal = decode_signal(message, ref)
        watcher = self._node.remote_watcher
        cell = self._node.exposed_cell(target)
        if cell is None or message.uid not in (0, cell.ref.address.uid):
            watcher.answer_for_absent_actor(peer, target, signal, message)
        elif isinstance(signal, Failed) and signal.ref not in cell.children:
            raise InvalidEnvelopeError(f"{cell.ref} does not supervise {signal.ref}")
        elif watcher.signal_received(peer, cell.ref, signal, target, message):
            cell.deliver_signal(target, signal)

    def _handle_identified(self, peer: Peer, target: Address, message: ActorIdentified) -> None:
        remote = self._resolve_peer_actor(peer, message.ref)
        cell = self._node.exposed_cell(target)
        if cell is not None:
            self._node.remote_watcher.actor_identified(cell.ref, remote, message.token)

    def _resolve_peer_actor(self, peer: Peer, text: str) -> ActorRef[Any]:
        """Return the actor that sends a signal. Raises InvalidEnvelopeError if it is not of the peer (CT2)."""
        ref = self._node.resolve_ref(text)
        if ref.address.node != peer.name:
            raise InvalidEnvelopeError(f"{peer.name} cannot speak for {ref}")
        return ref

    def _require_trust(self, action: str) -> None:
        if self._node.options.untrusted:
            raise UntrustedControlError(f"untrusted peers cannot {action}")
