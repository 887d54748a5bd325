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
from recado.actors.errors import WrongContextError
from recado.actors.inspection import INSPECTOR_NAME, Inspector
from recado.actors.ref import ActorRef, Reply
from recado.actors.remote_port import Asker
from recado.actors.runtime.cell import Cell
from recado.actors.runtime.loop_dispatcher import LoopDispatcher
from recado.actors.serialization.serializers import Serializers
from recado.actors.supervision.strategy import OneForOne

from .errors import InvalidEnvelopeError, LinkClosedError, NoRouteError, RemoteError
from .inbound.handler import InboundHandler
from .inbound.returned_frames import ReturnedFrames
from .monitoring.remote_watcher import RemoteWatcher
from .options import RemoteOptions
from .outbound import Outbound
from .peer import Peer
from .peer_table import PeerTable
from .placement.creation import Creation
from .placement.migration import Migration
from .remote_ref import DISCARD_REPLY, RemoteDelivery, RemoteReply
from .transport import PeerLink, Settle, Transport
from .wire.frame import FrameAuthenticator

if TYPE_CHECKING:
    from recado.actors.system import ActorSystem

MAX_CACHED_REFS: Final = 10_000

log = logging.getLogger("recado.actors")


class Node:
    def __init__(
        self, system: ActorSystem, transport: Transport, options: RemoteOptions | None = None
    ) -> None:
        self.system = system
        self.name = system.name
        self.transport = transport
        self.options = options = options or RemoteOptions()
        self.exposed_names = {
            INSPECTOR_NAME
        }  # actors of the system's own that others may talk to, by name
        self._turn_dispatcher = (
            system._default_dispatcher
            if isinstance(system._default_dispatcher, LoopDispatcher)
            else None
        )
        self._refs: dict[Address, ActorRef[Any]] = {}
        self._refs_by_text: dict[str, ActorRef[Any]] = {}
        seal = FrameAuthenticator(
            options.cookie,
            required=options.requires_cookie,
            max_frame_bytes=options.max_frame_bytes,
        )
        self.serializers = Serializers(
            _encode_ref, self._decode_ref, default=options.serializer, pickle=options.pickle
        )
        self.peer_table = PeerTable(transport, seal, system._clock.time, self._is_in_use)
        self.outbound = Outbound(system, self.peer_table, self.serializers, options)
        self.remote_watcher = RemoteWatcher(system, self.peer_table, self.outbound, options)
        self.creation = Creation(self)
        self.migration = Migration(self)
        self._returned_frames = ReturnedFrames(self)
        # The transport's Receiver: what it is told goes to whom it concerns.
        self.inbound = InboundHandler(self, seal)
        self.frame_received = self.inbound.frame_received
        self.unauthenticated_frames_received = self.inbound.unauthenticated_frames_received
        self.received_from = self.inbound.deduplicator.received_from
        self.make_proof, self.accepted_proofs = seal.make_proof, seal.accepted_proofs
        self.link_lost = self.remote_watcher.link_lost
        self.link_restored = self.remote_watcher.link_restored
        self.link_closed = self.remote_watcher.link_closed
        self.publish_event = system._publish_event

    @classmethod
    def of(cls, system: ActorSystem) -> Node:
        """The node of a system that has a transport."""
        if not isinstance(system._remote, Node):
            raise WrongContextError(
                f"{system.name} knows no other nodes", "Give its system a transport"
            )
        return system._remote

    async def open(self) -> None:
        client = self.options.client_id or self.name
        self.inbound.warmup.open(self.options.warm_up)
        # It has no budget, or whoever sends it nonsense would end it.
        await self.system.spawn(
            Inspector,
            name=INSPECTOR_NAME,
            internal=True,
            supervisor_strategy=OneForOne(max_restarts=None),
        )
        await self.transport.open(self.name, client, self.options.max_frame_bytes, self)

    def quiesce(self) -> None:
        self.inbound.quiesce()

    async def close(self) -> None:
        self.remote_watcher.close()
        self.inbound.close()
        await self.transport.close()
        self.outbound.close("the node was closed")

    def _is_in_use(self, peer: Peer) -> bool:
        return (
            peer.name in self.remote_watcher.relations.by_node
            or self.outbound.pending_asks.has_asks_to(peer)
        )

    def frames_received(
        self, link: PeerLink, frames: list[bytes], settles: Sequence[Settle] | None = None
    ) -> None:
        """What comes in one read is handled at once, where it can be: an ask is answered before the loop looks
        at its sockets again, which would take as long as the answer."""
        turns = self._turn_dispatcher
        turn_begun = turns is not None and turns.begin_batch()
        try:
            if settles is None:
                for frame in frames:
                    self.frame_received(link, frame, None)
            else:
                for frame, settle in zip(frames, settles, strict=True):
                    self.frame_received(link, frame, settle)
        finally:
            if turn_begun and turns is not None:
                turns.end_batch()

    def frame_returned(self, link: PeerLink, frame: bytes, reason: str) -> None:
        self._returned_frames.handle(link, frame, reason)

    async def drain(self, name: str) -> None:
        """Wait until there is room on the way to this node; where there is no way, nobody has to wait."""
        try:
            await self.peer_table.link_to(self.peer_table.peer(name)).drain()
        except (NoRouteError, LinkClosedError):
            return

    def restore_reply(self, asker: Asker | None) -> Reply | None:
        untrusted = self.options.untrusted
        if asker is None:
            return DISCARD_REPLY if untrusted else None
        try:
            peer = self.peer_table.peer(asker.node)
        except RemoteError as error:
            log.warning("an ask of an earlier life cannot be answered: %s", error)
            return DISCARD_REPLY
        if peer.link is None and asker.client_id:
            with suppress(NoRouteError):
                peer.link = self.transport.link_to_client(asker.client_id)
        return RemoteReply(
            self.outbound, peer, asker.ask_id, is_untrusted=untrusted, incarnation=asker.incarnation
        )

    # ── references ────────────────────────────────────────────────────────────────────────────────────────

    def ref(self, address: Address) -> ActorRef[Any]:
        """A reference to an actor of another node."""
        found = self._refs.get(address)
        if found is None:
            if len(self._refs) >= MAX_CACHED_REFS:
                self._refs.clear()
            found = self._refs[address] = RemoteDelivery(self, address).ref
        return found

    def resolve_ref(self, text: str) -> ActorRef[Any]:
        """What an address that came from outside means here. Raises BadEnvelope."""
        found = self._refs_by_text.get(text)
        if found is None:
            try:
                address = Address.parse(text)
            except ValueError as error:
                raise InvalidEnvelopeError(str(error)) from None
            found = self.system.ref(address)
            if address.node != self.name:  # of our own, names pass from one actor to the next
                if len(self._refs_by_text) >= MAX_CACHED_REFS:
                    self._refs_by_text.clear()
                self._refs_by_text[text] = found
        return found

    def peers(self) -> Iterator[tuple[str, bool]]:
        return ((peer.name, peer.is_unreachable) for peer in self.peer_table.peers.values())

    def resolve_created_ref(self, node: str, address_text: object) -> ActorRef[Any]:
        """An actor that this node says it has started for us. Raises BadEnvelope."""
        ref = self.resolve_ref(address_text if isinstance(address_text, str) else "")
        if ref.address.node != node:
            raise InvalidEnvelopeError(f"{node} has started {ref}, as it says")
        return ref

    def _decode_ref(self, kind: type, value: object) -> object:
        if isinstance(value, str) and getattr(kind, "__origin__", kind) is ActorRef:
            return self.resolve_ref(value)
        raise NotImplementedError(f"{kind} does not travel")  # how msgspec wants to be told

    def exposed_cell(self, address: Address) -> Cell | None:
        """The actor of that address, if others may talk to it."""
        cell = self.system.registry.find_cell(address)
        if cell is None:
            # By its own name: who said the address said any name, and perhaps the uid of another one.
            own = self.system._internal_registry.find_cell(address)
            if own is not None and own.ref.address.name in self.exposed_names:
                return own
        return cell


class TransportMixin:
    """For transports: a system that is given one becomes a node among those that the transport reaches."""

    def join(self: Transport, system: ActorSystem, options: RemoteOptions | None) -> Node:
        return Node(system, self, options)


def _encode_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise NotImplementedError(f"{type(value).__qualname__} does not travel")  # as above
