"""What nodes say to each other, beside messages: signals for actors, and what one wants of the other.

CT1  Who is not trusted rules over nobody: it creates, moves and stops nothing, and supervises nobody.
CT2  A node speaks for its own actors only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from recado.actors.address import Address
from recado.actors.failing.signals import Failed
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote.faults import BadEnvelope
from recado.actors.remote.peer import Peer
from recado.actors.remote.sealed.controls import (
    COMMANDING,
    MANIFEST,
    Abandon,
    Create,
    Identified,
    Move,
    Ping,
    Pong,
    Signalled,
    decode_control,
    read_signal,
)
from recado.actors.remote.sealed.envelope_pb2 import Envelope

if TYPE_CHECKING:
    from recado.actors.remote.node import Node


class NotForUs(BadEnvelope):
    """It is for another node: it was misled, or somebody sent it here again."""


class Untrusted(BadEnvelope):
    """It would rule over our actors, and we let nobody."""


class Controls:
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
        if payload.manifest != MANIFEST:
            raise BadEnvelope(f"a control that is a {payload.manifest!r}")
        control = decode_control(payload.body)
        if isinstance(control, Signalled):
            self._signalled(peer, self._read_address(envelope.target), control)
            return
        if isinstance(control, Identified):
            self._identified(peer, self._read_address(envelope.target), control)
            return
        if envelope.target != self._system.name:
            raise NotForUs(f"a control for {envelope.target}")
        reply = self._make_reply(peer, envelope)
        match control:
            case Ping():
                self._node.outbound.say(peer, Pong())
            case Pong():
                pass
            case Create():
                self._trust("creates an actor")
                self._system.keep(self._node.creation.serve(peer, control, reply))
            case Move():
                self._trust("moves an actor")
                self._system.keep(self._node.moving.serve(peer, control, reply))
            case Abandon(token):
                self._trust("takes an actor back")
                self._node.creation.unheard.abandon(peer, token)

    def _signalled(self, peer: Peer, target: Address, said: Signalled) -> None:
        if said.name in COMMANDING:
            self._trust(f"says {said.name}")
        about = self._about(peer, said.ref) if said.ref else None
        signal = read_signal(said, about)
        cell = self._node.reachable(target)
        if cell is None or said.uid not in (0, cell.ref.address.uid):
            self._node.presence.absent(peer, target, signal, said)
        elif isinstance(signal, Failed) and signal.ref not in cell.children:
            raise BadEnvelope(f"{cell.ref} does not supervise {signal.ref}")
        elif self._node.presence.heard(peer, cell.ref, signal, target, said):
            cell.signal(target, signal)

    def _identified(self, peer: Peer, target: Address, said: Identified) -> None:
        there = self._about(peer, said.ref)
        cell = self._node.reachable(target)
        if cell is not None:
            self._node.presence.identified(cell.ref, there, said.token)

    def _about(self, peer: Peer, text: str) -> ActorRef[Any]:
        """The actor that it speaks for (CT2)."""
        about = self._node.ref_of(text)
        if about.address.node != peer.name:
            raise BadEnvelope(f"{peer.name} speaks for {about}")
        return about

    def _trust(self, deed: str) -> None:
        if self._options.untrusted:
            raise Untrusted(f"somebody outside {deed}")
