"""An in-memory transport: nodes within one process and loop, for tests and single-process programs.

A durable network behaves like a broker: frames for a node that is absent or cut off are delivered later, and
unsettled frames are redelivered to the next incarnation of the node. Other networks behave like TCP.
`frame_filter` decides for each frame whether it is carried, so that a test can lose frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .errors import LimitExceededError, LinkClosedError, NoRouteError
from .node import TransportMixin
from .transport import Settle, TransportListener

MAX_FRAME_BYTES: int = 64 << 20


class MemoryNetwork:
    """All transports of one network can reach each other."""

    def __init__(self, *, durable: bool = False) -> None:
        self.is_durable = durable
        self.nodes: dict[str, MemoryTransport] = {}
        self.known_nodes: set[str] = set()
        self.partitions: set[frozenset[str]] = set()
        self.frame_filter: Callable[[str, str, bytes], bool] = lambda sender, to, frame: True
        """Called with sender, receiver and frame; the frame is dropped if it returns False."""
        self.unsettled: dict[tuple[str, str], list[bytes]] = {}
        """Frames by sender and receiver, if the network is durable."""

    def partition(self, one: str, other: str) -> None:
        """Carry no frames between the two nodes."""
        self.partitions.add(frozenset((one, other)))
        for link in self._links_between(one, other):
            link.notify_lost("network partition")

    def heal(self, one: str, other: str) -> None:
        """End a partition; a durable network delivers the frames that waited."""
        self.partitions.discard(frozenset((one, other)))
        for link in self._links_between(one, other):
            link.notify_restored()
        for sender, receiver in ((one, other), (other, one)):
            if sender in self.nodes and receiver in self.nodes:
                self.nodes[receiver].redeliver(sender)

    def is_connected(self, one: str, other: str) -> bool:
        are_open = one in self.nodes and other in self.nodes
        return are_open and frozenset((one, other)) not in self.partitions

    def _links_between(self, one: str, other: str) -> list[MemoryLink]:
        links = []
        for node, peer in ((one, other), (other, one)):
            transport = self.nodes.get(node)
            if transport is not None and peer in transport.links:
                links.append(transport.links[peer])
        return links


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
            raise ValueError(f"the network has a node {node} already")
        self.name, self.max_frame_bytes, self.listener = node, max_frame_bytes, listener
        self.network.nodes[node] = self
        self.network.known_nodes.add(node)
        for other in list(self.network.nodes.values()):
            if node in other.links:
                other.links[node].notify_restored()
        for sender, receiver in self.network.unsettled:
            if receiver == node:
                self.redeliver(sender)

    def redeliver(self, sender: str) -> None:
        """Deliver the unsettled frames of a sender again."""
        for frame in self.network.unsettled.get((sender, self.name), ()):
            self.link_to(sender).deliver(frame)

    def connect(self, node: str) -> MemoryLink:
        if node not in self.network.known_nodes or self.listener is None:
            raise NoRouteError(f"the network has no node {node}")
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
                other.links[self.name].notify_lost("the node is closed")
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
            raise LimitExceededError(
                f"the frame has {len(frame)} bytes, the network carries at most {MAX_FRAME_BYTES}"
            )
        node, network = self._transport.name, self._network
        if network.frame_filter(node, self.peer, frame):
            if network.is_durable:
                network.unsettled.setdefault((node, self.peer), []).append(frame)
            if network.is_connected(node, self.peer):
                network.nodes[self.peer].link_to(node).deliver(frame)
            elif not network.is_durable:
                reason = f"{self.peer} is not connected"
                self._notify_soon(lambda listener: listener.frame_returned(self, frame, reason))

    async def drain(self) -> None:
        if self.is_closed:
            raise LinkClosedError("closed")

    def pause_reading(self) -> None:
        pass  # frames are delivered at once, and not buffered

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    # ── callbacks of the listener, in the next turn of the loop ───────────────────────────────────────────

    def deliver(self, frame: bytes) -> None:
        settle: Settle | None = None
        if self._network.is_durable:

            def settle(accepted: bool) -> None:
                self._network.unsettled[self.peer, self._transport.name].remove(frame)

        self._notify_soon(lambda listener: listener.frame_received(self, frame, settle))

    def notify_lost(self, reason: str) -> None:
        self._notify_soon(lambda listener: listener.link_lost(self, reason))

    def notify_restored(self) -> None:
        self._notify_soon(lambda listener: listener.link_restored(self))

    def _notify_soon(self, notify: Callable[[TransportListener], None]) -> None:
        self._loop.call_soon(self._notify, notify)

    def _notify(self, notify: Callable[[TransportListener], None]) -> None:
        listener = self._transport.listener
        if listener is not None and not self.is_closed:
            notify(listener)
