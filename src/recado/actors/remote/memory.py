"""Nodes within one process and loop: the twin of the transports, for tests and programs of one piece.

A lasting hub behaves as a broker does: what waits for a node that is away or cut off is given to it later, and
what was not settled comes again to the next life of the node. One that is not behaves as TCP does. `wire` says
for each frame whether it is carried, so that a test may lose what it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .errors import LinkClosedError, NoRouteError
from .node import TransportMixin
from .transport import LimitExceededError, TransportListener

MAX_FRAME_BYTES: int = 64 << 20


class MemoryNetwork:
    """The world. All transports with the same hub reach each other."""

    def __init__(self, *, durable: bool = False) -> None:
        self.is_durable = durable
        self.nodes: dict[str, MemoryTransport] = {}
        self.known_nodes: set[str] = set()
        self.partitions: set[frozenset[str]] = set()
        self.frame_filter: Callable[[str, str, bytes], bool] = lambda sender, to, frame: True
        self.unsettled: dict[tuple[str, str], list[bytes]] = {}
        """By sender and receiver, if lasting: what was not settled."""

    def partition(self, one: str, other: str) -> None:
        """Nothing passes between the two."""
        self.partitions.add(frozenset((one, other)))
        for link in self._links_between(one, other):
            link.notify_lost("severed")

    def heal(self, one: str, other: str) -> None:
        self.partitions.discard(frozenset((one, other)))
        for link in self._links_between(one, other):
            link.notify_restored()
        for here, there in ((one, other), (other, one)):
            if here in self.nodes and there in self.nodes:
                self.nodes[there].redeliver(here)

    def is_connected(self, one: str, other: str) -> bool:
        return (
            one in self.nodes
            and other in self.nodes
            and frozenset((one, other)) not in self.partitions
        )

    def _links_between(self, one: str, other: str) -> list[MemoryLink]:
        found = []
        for here, there in ((one, other), (other, one)):
            node = self.nodes.get(here)
            if node is not None and there in node.links:
                found.append(node.links[there])
        return found


class MemoryTransport(TransportMixin):
    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.name = ""
        self.listener: TransportListener | None = None
        self.max_frame_bytes = 0
        self.links: dict[str, MemoryLink] = {}

    async def open(
        self, node: str, client_id: str, max_frame_bytes: int, listener: TransportListener
    ) -> None:
        if node in self.network.nodes:
            raise ValueError(f"node {node} is there already")
        self.name, self.max_frame_bytes, self.listener = node, max_frame_bytes, listener
        self.network.nodes[node] = self
        self.network.known_nodes.add(node)
        for other in list(self.network.nodes.values()):
            if node in other.links:
                other.links[node].notify_restored()
        for sender, to in self.network.unsettled:
            if to == node:
                self.redeliver(sender)

    def redeliver(self, sender: str) -> None:
        """What it sent and we have not settled."""
        for frame in self.network.unsettled.get((sender, self.name), ()):
            self.link_to(sender).deliver(frame)

    def connect(self, node: str) -> MemoryLink:
        if node not in self.network.known_nodes or self.listener is None:
            raise NoRouteError(f"no node {node} is known")
        return self.link_to(node)

    def link_to_client(self, client_id: str) -> MemoryLink:
        return self.connect(client_id)

    def link_to(self, node: str) -> MemoryLink:
        link = self.links.get(node)
        if link is None or link.is_closed:
            link = self.links[node] = MemoryLink(self, node)
        return link

    async def close(self) -> None:
        if self.listener is None:
            return
        self.listener = None
        del self.network.nodes[self.name]
        for link in self.links.values():
            link.close()
        for other in list(self.network.nodes.values()):
            if self.name in other.links:
                other.links[self.name].notify_lost("the node is away")
        await asyncio.sleep(0)


class MemoryLink:
    def __init__(self, transport: MemoryTransport, peer: str) -> None:
        self.peer = peer
        self.is_closed = False
        self._transport = transport
        self._network = transport.network
        self._loop = asyncio.get_running_loop()

    @property
    def is_durable(self) -> bool:
        return self._network.is_durable

    @property
    def is_up(self) -> bool:
        return self._network.is_connected(self._transport.name, self.peer)

    def post(self, frame: bytes) -> None:
        if self.is_closed:
            raise LinkClosedError("closed")
        if len(frame) > MAX_FRAME_BYTES:
            raise LimitExceededError("more than the hub holds")
        here, hub = self._transport.name, self._network
        if hub.frame_filter(here, self.peer, frame):
            if hub.is_durable:
                hub.unsettled.setdefault((here, self.peer), []).append(frame)
            if hub.is_connected(here, self.peer):
                hub.nodes[self.peer].link_to(here).deliver(frame)
            elif not hub.is_durable:
                self._notify_soon("frame_returned", frame, "nobody is there")

    async def drain(self) -> None:
        if self.is_closed:
            raise LinkClosedError("closed")

    def close(self) -> None:
        self.is_closed = True

    # ── what the receiver is told, at the next turn of the loop ───────────────────────────────────────────

    def deliver(self, frame: bytes) -> None:
        settle: Callable[[bool], None] | None = None
        if self._network.is_durable:

            def settle(wanted: bool) -> None:
                self._network.unsettled[self.peer, self._transport.name].remove(frame)

        self._notify_soon("frame_received", frame, settle)

    def notify_lost(self, reason: str) -> None:
        self._notify_soon("link_lost", reason)

    def notify_restored(self) -> None:
        self._notify_soon("link_restored")

    def _notify_soon(self, event: str, *arguments: object) -> None:
        self._loop.call_soon(self._notify, event, arguments)

    def _notify(self, event: str, arguments: tuple[object, ...]) -> None:
        receiver = self._transport.listener
        if receiver is not None and not self.is_closed:
            getattr(receiver, event)(self, *arguments)
