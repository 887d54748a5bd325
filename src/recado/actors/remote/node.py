"""A node among others: the parts of remoting, put together for one system of actors.

ways       who the others are, and on which links they are reached
outbound   what goes out: messages, answers, requests
inbound    what comes in, and what is refused
presence   signs of life, signals, links that are lost and come back
creation   actors that one node starts on another;   moving   those that go there
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from recado.actors.address import Address
from recado.actors.errors import NotHere
from recado.actors.failing.supervision import OneForOne
from recado.actors.inspection import INSPECTOR, Inspector
from recado.actors.others import Asker
from recado.actors.ref import ActorRef, Reply
from recado.actors.running.cell import Cell
from recado.actors.running.turn import Turns
from recado.actors.serialising.serialisers import Serialisers

from .faults import BadEnvelope, Gone, NoWay, RemoteFault
from .options import Options
from .outbound import Outbound
from .peer import Peer
from .placing.creation import Creation
from .placing.moving import Moving
from .receiving.inbound import Inbound
from .receiving.returned import Returned
from .remote_ref import UNASKED, RemotePost, RemoteReply
from .sealed.frame import Seal
from .transport import Link, Settle, Transport
from .watching.presence import Presence
from .ways import Ways

if TYPE_CHECKING:
    from recado.actors.system import ActorSystem

REFS_MOST: Final = 10_000

log = logging.getLogger("recado.actors")


class Node:
    def __init__(
        self, system: ActorSystem, transport: Transport, options: Options | None = None
    ) -> None:
        self.system = system
        self.name = system.name
        self.transport = transport
        self.options = options = options or Options()
        self.exposed = {INSPECTOR}  # actors of the system's own that others may talk to, by name
        self._turns = system.dispatcher if isinstance(system.dispatcher, Turns) else None
        self._refs: dict[Address, ActorRef[Any]] = {}
        self._texts: dict[str, ActorRef[Any]] = {}
        seal = Seal(options.cookie, required=options.demands_cookie, limit=options.frame_limit)
        self.serialisers = Serialisers(
            _write_ref, self._read_ref, default=options.serialiser, pickle=options.pickle
        )
        self.ways = Ways(transport, seal, system.clock.time, self._in_use)
        self.outbound = Outbound(system, self.ways, self.serialisers, options)
        self.presence = Presence(system, self.ways, self.outbound, options)
        self.creation = Creation(self)
        self.moving = Moving(self)
        self._returned = Returned(self)
        # The transport's Receiver: what it is told goes to whom it concerns.
        self.inbound = Inbound(self, seal)
        self.received = self.inbound.received
        self.received_unproved = self.inbound.received_unproved
        self.heard = self.inbound.replay.heard
        self.prove, self.proofs = seal.prove, seal.proofs
        self.lost = self.presence.lost
        self.healed = self.presence.healed
        self.gone = self.presence.gone
        self.happened = system.publish

    @classmethod
    def of(cls, system: ActorSystem) -> Node:
        """The node of a system that has a transport."""
        if not isinstance(system.node, Node):
            raise NotHere(f"{system.name} knows no other nodes", "Give its system a transport")
        return system.node

    async def open(self) -> None:
        client = self.options.client_id or self.name
        self.inbound.early.open(self.options.warm_up)
        # It has no budget, or whoever sends it nonsense would end it.
        await self.system.spawn(
            Inspector, name=INSPECTOR, internal=True, supervision=OneForOne(max_restarts=None)
        )
        await self.transport.open(self.name, client, self.options.frame_limit, self)

    def hush(self) -> None:
        self.inbound.hush()

    async def close(self) -> None:
        self.presence.close()
        self.inbound.close()
        await self.transport.close()
        self.outbound.close("the node was closed")

    def _in_use(self, peer: Peer) -> bool:
        return peer.name in self.presence.vigil.bonds or self.outbound.pending.waits_for(peer)

    def received_together(
        self, link: Link, frames: list[bytes], settles: Sequence[Settle] | None = None
    ) -> None:
        """What comes in one read is handled at once, where it can be: an ask is answered before the loop looks
        at its sockets again, which would take as long as the answer."""
        turns = self._turns
        begun = turns is not None and turns.begin()
        try:
            if settles is None:
                for frame in frames:
                    self.received(link, frame, None)
            else:
                for frame, settle in zip(frames, settles, strict=True):
                    self.received(link, frame, settle)
        finally:
            if begun and turns is not None:
                turns.end()

    def returned(self, link: Link, frame: bytes, reason: str) -> None:
        self._returned.handle(link, frame, reason)

    async def room(self, name: str) -> None:
        """Wait until there is room on the way to this node; where there is no way, nobody has to wait."""
        try:
            await self.ways.link_to(self.ways.peer(name)).room()
        except (NoWay, Gone):
            return

    def reply_to(self, asker: Asker | None) -> Reply | None:
        untrusted = self.options.untrusted
        if asker is None:
            return UNASKED if untrusted else None
        try:
            peer = self.ways.peer(asker.node)
        except RemoteFault as error:
            log.warning("an ask of an earlier life cannot be answered: %s", error)
            return UNASKED
        if peer.link is None and asker.client:
            with suppress(NoWay):
                peer.link = self.transport.link_back(asker.client)
        return RemoteReply(
            self.outbound, peer, asker.number, stranger=untrusted, life=asker.incarnation
        )

    # ── references ────────────────────────────────────────────────────────────────────────────────────────

    def ref(self, address: Address) -> ActorRef[Any]:
        """A reference to an actor of another node."""
        found = self._refs.get(address)
        if found is None:
            if len(self._refs) >= REFS_MOST:
                self._refs.clear()
            found = self._refs[address] = RemotePost(self, address).ref
        return found

    def ref_of(self, text: str) -> ActorRef[Any]:
        """What an address that came from outside means here. Raises BadEnvelope."""
        found = self._texts.get(text)
        if found is None:
            try:
                address = Address.parse(text)
            except ValueError as error:
                raise BadEnvelope(str(error)) from None
            found = self.system.ref(address)
            if address.node != self.name:  # of our own, names pass from one actor to the next
                if len(self._texts) >= REFS_MOST:
                    self._texts.clear()
                self._texts[text] = found
        return found

    def known(self) -> Iterator[tuple[str, bool]]:
        return ((peer.name, peer.unreachable) for peer in self.ways.peers.values())

    def new_ref(self, node: str, said: object) -> ActorRef[Any]:
        """An actor that this node says it has started for us. Raises BadEnvelope."""
        ref = self.ref_of(said if isinstance(said, str) else "")
        if ref.address.node != node:
            raise BadEnvelope(f"{node} has started {ref}, as it says")
        return ref

    def _read_ref(self, kind: type, value: object) -> object:
        if isinstance(value, str) and getattr(kind, "__origin__", kind) is ActorRef:
            return self.ref_of(value)
        raise NotImplementedError(f"{kind} does not travel")  # how msgspec wants to be told

    def reachable(self, address: Address) -> Cell | None:
        """The actor of that address, if others may talk to it."""
        cell = self.system.registry.cell(address)
        if cell is None:
            # By its own name: who said the address said any name, and perhaps the uid of another one.
            own = self.system.internals.cell(address)
            if own is not None and own.ref.address.name in self.exposed:
                return own
        return cell


class Joining:
    """For transports: a system that is given one becomes a node among those that the transport reaches."""

    def join(self: Transport, system: ActorSystem, options: Options | None) -> Node:
        return Node(system, self, options)


def _write_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise NotImplementedError(f"{type(value).__qualname__} does not travel")  # as above
