"""Nodes within one process and loop: the twin of the transports, for tests and programs of one piece.

A lasting hub behaves as a broker does: what waits for a node that is away or cut off is given to it later, and
what was not settled comes again to the next life of the node. One that is not behaves as TCP does. `wire` says
for each frame whether it is carried, so that a test may lose what it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .faults import Gone, NoWay
from .node import Joining
from .transport import Full, Receiver

HOLD: int = 64 << 20


class Hub:
    """The world. All transports with the same hub reach each other."""

    def __init__(self, *, lasting: bool = False) -> None:
        self.lasting = lasting
        self.nodes: dict[str, MemoryTransport] = {}
        self.known: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.wire: Callable[[str, str, bytes], bool] = lambda sender, to, frame: True
        self.queues: dict[tuple[str, str], list[bytes]] = {}
        """By sender and receiver, if lasting: what was not settled."""

    def sever(self, one: str, other: str) -> None:
        """Nothing passes between the two."""
        self.cut.add(frozenset((one, other)))
        for link in self._between(one, other):
            link.tell_lost("severed")

    def mend(self, one: str, other: str) -> None:
        self.cut.discard(frozenset((one, other)))
        for link in self._between(one, other):
            link.tell_healed()
        for here, there in ((one, other), (other, one)):
            if here in self.nodes and there in self.nodes:
                self.nodes[there].give_again(here)

    def joined(self, one: str, other: str) -> bool:
        return one in self.nodes and other in self.nodes and frozenset((one, other)) not in self.cut

    def _between(self, one: str, other: str) -> list[MemoryLink]:
        found = []
        for here, there in ((one, other), (other, one)):
            node = self.nodes.get(here)
            if node is not None and there in node.links:
                found.append(node.links[there])
        return found


class MemoryTransport(Joining):
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.name = ""
        self.receiver: Receiver | None = None
        self.limit = 0
        self.links: dict[str, MemoryLink] = {}

    async def open(self, node: str, client: str, frame_limit: int, receiver: Receiver) -> None:
        if node in self.hub.nodes:
            raise ValueError(f"node {node} is there already")
        self.name, self.limit, self.receiver = node, frame_limit, receiver
        self.hub.nodes[node] = self
        self.hub.known.add(node)
        for other in list(self.hub.nodes.values()):
            if node in other.links:
                other.links[node].tell_healed()
        for sender, to in self.hub.queues:
            if to == node:
                self.give_again(sender)

    def give_again(self, sender: str) -> None:
        """What it sent and we have not settled."""
        for frame in self.hub.queues.get((sender, self.name), ()):
            self.link_to(sender).come(frame)

    def connect(self, node: str) -> MemoryLink:
        if node not in self.hub.known or self.receiver is None:
            raise NoWay(f"no node {node} is known")
        return self.link_to(node)

    def link_back(self, client: str) -> MemoryLink:
        return self.connect(client)

    def link_to(self, node: str) -> MemoryLink:
        link = self.links.get(node)
        if link is None or link.ended:
            link = self.links[node] = MemoryLink(self, node)
        return link

    async def close(self) -> None:
        if self.receiver is None:
            return
        self.receiver = None
        del self.hub.nodes[self.name]
        for link in self.links.values():
            link.close()
        for other in list(self.hub.nodes.values()):
            if self.name in other.links:
                other.links[self.name].tell_lost("the node is away")
        await asyncio.sleep(0)


class MemoryLink:
    def __init__(self, transport: MemoryTransport, peer: str) -> None:
        self.peer = peer
        self.ended = False
        self._transport = transport
        self._hub = transport.hub
        self._loop = asyncio.get_running_loop()

    @property
    def lasting(self) -> bool:
        return self._hub.lasting

    @property
    def is_up(self) -> bool:
        return self._hub.joined(self._transport.name, self.peer)

    def post(self, frame: bytes) -> None:
        if self.ended:
            raise Gone("closed")
        if len(frame) > HOLD:
            raise Full("more than the hub holds")
        here, hub = self._transport.name, self._hub
        if hub.wire(here, self.peer, frame):
            if hub.lasting:
                hub.queues.setdefault((here, self.peer), []).append(frame)
            if hub.joined(here, self.peer):
                hub.nodes[self.peer].link_to(here).come(frame)
            elif not hub.lasting:
                self._soon("returned", frame, "nobody is there")

    async def room(self) -> None:
        if self.ended:
            raise Gone("closed")

    def close(self) -> None:
        self.ended = True

    # ── what the receiver is told, at the next turn of the loop ───────────────────────────────────────────

    def come(self, frame: bytes) -> None:
        settle: Callable[[bool], None] | None = None
        if self._hub.lasting:

            def settle(wanted: bool) -> None:
                self._hub.queues[self.peer, self._transport.name].remove(frame)

        self._soon("received", frame, settle)

    def tell_lost(self, reason: str) -> None:
        self._soon("lost", reason)

    def tell_healed(self) -> None:
        self._soon("healed")

    def _soon(self, event: str, *arguments: object) -> None:
        self._loop.call_soon(self._tell, event, arguments)

    def _tell(self, event: str, arguments: tuple[object, ...]) -> None:
        receiver = self._transport.receiver
        if receiver is not None and not self.ended:
            getattr(receiver, event)(self, *arguments)
