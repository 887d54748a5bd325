"""A node: the remote layer of one actor system, and the listener of its transport.

peer_table       the other nodes, and the links on which they are reached
outbound         sending: messages, answers, requests
inbound          receiving: checks, deduplication, delivery, refusals
remote_watcher   heartbeats, failure detection, signals, link changes
creation         actors that one node creates on another;   migration   actors that move
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
from .events import LinkEvent
from .inbound.deduplication import SenderHistory
from .inbound.handler import InboundHandler
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
    """The remote layer of an actor system; `ActorSystem(transport=…)` creates it."""

    def __init__(
        self, system: ActorSystem, transport: Transport, options: RemoteOptions | None = None
    ) -> None:
        self.system = system
        self.name = system.name
        self.transport = transport
        self.options = options = options or RemoteOptions()
        self.exposed_names = {INSPECTOR_NAME}  # internal actors that other nodes may address
        dispatcher = system._default_dispatcher
        self._loop_dispatcher = dispatcher if isinstance(dispatcher, LoopDispatcher) else None
        self._refs: dict[Address, ActorRef[Any]] = {}
        self._refs_by_text: dict[str, ActorRef[Any]] = {}
        self._authenticator = FrameAuthenticator(
            options.cookie,
            required=options.requires_cookie,
            max_frame_bytes=options.max_frame_bytes,
        )
        self.serializers = Serializers(
            _encode_ref, self._decode_ref, default=options.serializer, pickle=options.pickle
        )
        self.peer_table = PeerTable(
            transport, self._authenticator, system._clock.time, self._is_in_use
        )
        self.outbound = Outbound(system, self.peer_table, self.serializers, options)
        self.remote_watcher = RemoteWatcher(system, self.peer_table, self.outbound, options)
        self.creation = Creation(self)
        self.migration = Migration(self)
        self.inbound = InboundHandler(self, self._authenticator)

    @classmethod
    def of(cls, system: ActorSystem) -> Node:
        """Return the node of a system that has a transport. Raises WrongContextError if it has none."""
        if not isinstance(system._remote, Node):
            raise WrongContextError(
                f"the system {system.name} has no transport", "Pass transport= to ActorSystem"
            )
        return system._remote

    async def open(self) -> None:
        client_id = self.options.client_id or self.name
        self.inbound.warmup.open(self.options.warm_up)
        # No restart limit: a peer could exceed it by sending invalid messages, and so stop the inspector.
        await self.system.spawn(
            Inspector,
            name=INSPECTOR_NAME,
            internal=True,
            supervisor_strategy=OneForOne(max_restarts=None),
        )
        await self.transport.open(self.name, client_id, self.options.max_frame_bytes, self)

    def quiesce(self) -> None:
        """The actors are about to stop: deliver no more messages that can be redelivered."""
        self.inbound.quiesce()

    async def close(self) -> None:
        self.remote_watcher.close()
        self.inbound.close()
        await self.transport.close()
        self.outbound.close("the node was closed")

    def peers(self) -> Iterator[tuple[str, bool]]:
        """Iterate over the names of the known nodes, with whether each is unreachable."""
        return ((peer.name, peer.is_unreachable) for peer in self.peer_table.peers.values())

    def _is_in_use(self, peer: Peer) -> bool:
        has_relations = peer.name in self.remote_watcher.relations.by_node
        return has_relations or self.outbound.pending_asks.has_asks_to(peer)

    async def drain(self, name: str) -> None:
        """Wait until the link to a node has space; return at once if there is no link."""
        try:
            await self.peer_table.link_to(self.peer_table.peer(name)).drain()
        except (NoRouteError, LinkClosedError):
            return

    # ── callbacks of the transport (TransportListener) ────────────────────────────────────────────────────

    def frame_received(self, link: PeerLink, frame: bytes, settle: Settle | None) -> None:
        self.inbound.frame_received(link, frame, settle)

    def frames_received(
        self, link: PeerLink, frames: list[bytes], settles: Sequence[Settle] | None = None
    ) -> None:
        """Handle the frames of one read, and run the actors at once where that is possible.

        So an ask is answered before the event loop polls its sockets again. That poll alone would take as long
        as computing the answer.
        """
        dispatcher = self._loop_dispatcher
        is_batch = dispatcher is not None and dispatcher.begin_batch()
        frame_received = self.inbound.frame_received
        try:
            if settles is None:
                for frame in frames:
                    frame_received(link, frame, None)
            else:
                for frame, settle in zip(frames, settles, strict=True):
                    frame_received(link, frame, settle)
        finally:
            if is_batch and dispatcher is not None:
                dispatcher.end_batch()

    def unauthenticated_frames_received(self, link: PeerLink, frames: list[bytes]) -> None:
        self.inbound.unauthenticated_frames_received(link, frames)

    def frame_returned(self, link: PeerLink, frame: bytes, reason: str) -> None:
        self.inbound.refusals.handle_returned(frame, reason)

    def link_lost(self, link: PeerLink, reason: str) -> None:
        self.remote_watcher.link_lost(link, reason)

    def link_restored(self, link: PeerLink) -> None:
        self.remote_watcher.link_restored(link)

    def link_closed(self, link: PeerLink, reason: str) -> None:
        self.remote_watcher.link_closed(link, reason)

    def make_proof(self, text: bytes) -> bytes:
        return self._authenticator.make_proof(text)

    def accepted_proofs(self, text: bytes) -> list[bytes]:
        return self._authenticator.accepted_proofs(text)

    def publish_event(self, event: LinkEvent) -> None:
        self.system._publish_event(event)

    # ── for durable mailboxes ─────────────────────────────────────────────────────────────────────────────

    def received_from(self, incarnation: bytes) -> SenderHistory | None:
        """Return which frames of a sender were received and settled since the start."""
        return self.inbound.deduplicator.received_from(incarnation)

    def restore_reply(self, asker: Asker | None) -> Reply | None:
        """Return the Reply of a message that another node sent to an earlier incarnation of this one.

        `asker` is None for a one-way message.
        """
        untrusted = self.options.untrusted
        if asker is None:
            return DISCARD_REPLY if untrusted else None
        try:
            peer = self.peer_table.peer(asker.node)
        except RemoteError as error:
            log.warning(
                "cannot answer an ask of before the restart (node=%s): %s", asker.node, error
            )
            return DISCARD_REPLY
        if peer.link is None and asker.client_id:
            with suppress(NoRouteError):
                peer.link = self.transport.link_to_client(asker.client_id)
        return RemoteReply(
            self.outbound,
            peer,
            asker.ask_id,
            is_untrusted=untrusted,
            incarnation=asker.incarnation,
        )

    # ── references ────────────────────────────────────────────────────────────────────────────────────────

    def ref(self, address: Address) -> ActorRef[Any]:
        """Return a reference to an actor of another node."""
        ref = self._refs.get(address)
        if ref is None:
            if len(self._refs) >= MAX_CACHED_REFS:
                self._refs.clear()
            ref = self._refs[address] = RemoteDelivery(self, address).ref
        return ref

    def resolve_ref(self, text: str) -> ActorRef[Any]:
        """Return the reference for an address received from another node. Raises InvalidEnvelopeError."""
        ref = self._refs_by_text.get(text)
        if ref is None:
            try:
                address = Address.parse(text)
            except ValueError as error:
                raise InvalidEnvelopeError(str(error)) from None
            ref = self.system.ref(address)
            # Local references are not cached: another actor may take over the name.
            if address.node != self.name:
                if len(self._refs_by_text) >= MAX_CACHED_REFS:
                    self._refs_by_text.clear()
                self._refs_by_text[text] = ref
        return ref

    def resolve_created_ref(self, node: str, address_text: object) -> ActorRef[Any]:
        """Return the reference to an actor that a node reports to have started for us.

        Raises InvalidEnvelopeError.
        """
        ref = self.resolve_ref(address_text if isinstance(address_text, str) else "")
        if ref.address.node != node:
            raise InvalidEnvelopeError(f"{node} reports the start of {ref}, of another node")
        return ref

    def exposed_cell(self, address: Address) -> Cell | None:
        """Return the local actor of an address, if other nodes may address it."""
        cell = self.system.registry.find_cell(address)
        if cell is None:
            # Compare its own name: the sender of the address may have combined any name with any uid.
            internal = self.system._internal_registry.find_cell(address)
            if internal is not None and internal.ref.address.name in self.exposed_names:
                return internal
        return cell

    def _decode_ref(self, kind: type, value: object) -> object:
        if isinstance(value, str) and getattr(kind, "__origin__", kind) is ActorRef:
            return self.resolve_ref(value)
        raise NotImplementedError(f"{kind} cannot be deserialized")  # for msgspec


class TransportMixin:
    """Base of transports: `ActorSystem(transport=…)` calls `join` to become a node."""

    def join(self: Transport, system: ActorSystem, options: RemoteOptions | None) -> Node:
        return Node(system, self, options)


def _encode_ref(value: object) -> object:
    if isinstance(value, ActorRef):
        return str(value.address)
    raise NotImplementedError(f"{type(value).__qualname__} cannot be serialized")  # for msgspec
