"""What nodes say to each other, beside messages: signals for actors, and what one wants of the other.

CT1  Who is not trusted rules over nobody: it creates, moves and stops nothing, and supervises nobody.
CT2  A node speaks for its own actors only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
    """It is for another node: it was misled, or somebody sent it here again."""


class UntrustedControlError(InvalidEnvelopeError):
    """It would rule over our actors, and we let nobody."""


class ControlHandler:
    def __init__(
        self,
        node: Node,
        read_address: Callable[[str], Address],
        make_reply: Callable[[Peer, Envelope], Reply],
    ) -> None:
        """The last two are of who has read the envelope: of whom it is about, and where its answer goes."""
        self._node = node
        self._system = node.system
        self._options = node.options
        self._read_address = read_address
        self._make_reply = make_reply

    def handle(self, peer: Peer, envelope: Envelope) -> None:
        payload = envelope.message
        if payload.manifest != CONTROL_MANIFEST:
            raise InvalidEnvelopeError(f"a control that is a {payload.manifest!r}")
        control = decode_control(payload.body)
        if isinstance(control, RemoteSignal):
            self._handle_signal(peer, self._read_address(envelope.target), control)
            return
        if isinstance(control, ActorIdentified):
            self._handle_identified(peer, self._read_address(envelope.target), control)
            return
        if envelope.target != self._system.name:
            raise WrongNodeError(f"a control for {envelope.target}")
        reply = self._make_reply(peer, envelope)
        match control:
            case Ping():
                self._node.outbound.send_control(peer, Pong())
            case Pong():
                pass
            case CreateActor():
                self._require_trust("creates an actor")
                self._system._start_task(self._node.creation.handle_create(peer, control, reply))
            case MoveActor():
                self._require_trust("moves an actor")
                self._system._start_task(self._node.migration.handle_move(peer, control, reply))
            case AbandonActor(token):
                self._require_trust("takes an actor back")
                self._node.creation.tokens.abandon(peer, token)

    def _handle_signal(self, peer: Peer, target: Address, message: RemoteSignal) -> None:
        if message.name in PRIVILEGED_SIGNALS:
            self._require_trust(f"says {message.name}")
        about = self._resolve_peer_actor(peer, message.ref) if message.ref else None
        signal = decode_signal(message, about)
        cell = self._node.exposed_cell(target)
        if cell is None or message.uid not in (0, cell.ref.address.uid):
            self._node.remote_watcher.answer_for_absent_actor(peer, target, signal, message)
        elif isinstance(signal, Failed) and signal.ref not in cell.children:
            raise InvalidEnvelopeError(f"{cell.ref} does not supervise {signal.ref}")
        elif self._node.remote_watcher.signal_received(peer, cell.ref, signal, target, message):
            cell.deliver_signal(target, signal)

    def _handle_identified(self, peer: Peer, target: Address, message: ActorIdentified) -> None:
        there = self._resolve_peer_actor(peer, message.ref)
        cell = self._node.exposed_cell(target)
        if cell is not None:
            self._node.remote_watcher.actor_identified(cell.ref, there, message.token)

    def _resolve_peer_actor(self, peer: Peer, text: str) -> ActorRef[Any]:
        """The actor that it speaks for (CT2)."""
        about = self._node.resolve_ref(text)
        if about.address.node != peer.name:
            raise InvalidEnvelopeError(f"{peer.name} speaks for {about}")
        return about

    def _require_trust(self, action: str) -> None:
        if self._options.untrusted:
            raise UntrustedControlError(f"somebody outside {action}")
