"""Feeds within one process and loop: the twin of the carriers, for tests and for programs of one piece.

It behaves as a broker does: one order for all, an archive's queue that outlasts it, and what was not settled
comes again. `wire` says for each packet whether it is carried, so that a test may lose what it likes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, Channel, Target
from recado.feeds.views import MemberId, Role

from .port import UNTAGGED, Listener

LARGEST: Final = 1 << 20

Wire = Callable[[Channel, MemberId, bytes], bool]


class Hub:
    """What a broker would be. All carriers with the same hub reach each other."""

    def __init__(self) -> None:
        self.ports: list[MemoryPort] = []
        self.wire: Wire = lambda channel, sender, packet: True
        self.queues: dict[tuple[str, str], deque[tuple[MemberId, bytes]]] = {}
        """By feed and name of an archive: what it has not settled."""

    def cast(self, feed: str, sender: MemberId, packet: bytes) -> None:
        if not self.wire(Channel.P, sender, packet):
            return
        for (of_feed, _), queue in self.queues.items():
            if of_feed == feed:
                queue.append((sender, packet))
        for port in self.ports:
            if port.feed == feed and port.role is not Role.PUBLISHER:
                port.take(Channel.P, sender, packet)

    def send(self, feed: str, sender: MemberId, to: Target, packet: bytes) -> None:
        if not self.wire(Channel.A, sender, packet):
            return
        for port in self.ports:
            if port.feed == feed and port.answers_to(to):
                port.take(Channel.A, sender, packet)


class MemoryCarrier:
    transport = "AMQP"
    largest = LARGEST

    def __init__(self, hub: Hub | None = None) -> None:
        self._hub = hub or Hub()

    async def join(self, feed: str, me: MemberId, role: Role, listener: Listener) -> MemoryPort:
        port = MemoryPort(self._hub, feed, me, role, listener)
        self._hub.ports.append(port)
        return port

    async def close(self) -> None:
        """Nothing was opened."""


class MemoryPort:
    def __init__(self, hub: Hub, feed: str, me: MemberId, role: Role, listener: Listener) -> None:
        self._hub = hub
        self.feed = feed
        self.me = me
        self.role = role
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._tag = UNTAGGED
        self._settled = UNTAGGED
        self._coordinates = False
        if role is Role.ARCHIVE:
            self._queue = hub.queues.setdefault((feed, me.name), deque())
            for sender, packet in self._queue:
                self.take(Channel.P, sender, packet)

    def answers_to(self, to: Target) -> bool:
        if to == MEMBERS:
            return self.role is not Role.PUBLISHER
        if to == COORDINATORS:
            return self._coordinates
        if to == ARCHIVES:
            return self.role is Role.ARCHIVE
        return to == self.me

    def take(self, channel: Channel, sender: MemberId, packet: bytes) -> None:
        tag = UNTAGGED
        if channel is Channel.P:
            self._tag += 1
            tag = self._tag
        self._loop.call_soon(self._arrive, channel, sender, packet, tag)

    def _arrive(self, channel: Channel, sender: MemberId, packet: bytes, tag: int) -> None:
        if self in self._hub.ports:
            self._listener.arrived(channel, sender, packet, tag)

    def cast(self, packet: bytes, key: str, number: int) -> None:
        self._hub.cast(self.feed, self.me, packet)
        if number:
            self._loop.call_soon(self._confirm, number)

    def _confirm(self, number: int) -> None:
        if self in self._hub.ports:
            self._listener.confirmed(number)

    def send(self, to: Target, packet: bytes) -> None:
        self._hub.send(self.feed, self.me, to, packet)

    def listen(self, *, to_coordinators: bool) -> None:
        self._coordinates = to_coordinators

    def settle(self, upto: int) -> None:
        if self.role is Role.ARCHIVE:
            for _ in range(upto - self._settled):
                self._queue.popleft()
        self._settled = max(upto, self._settled)

    def break_with(self, error: Exception) -> None:
        """As if the carrier were gone."""
        self._hub.ports.remove(self)
        self._loop.call_soon(self._listener.broken, error)

    async def close(self) -> None:
        if self in self._hub.ports:
            self._hub.ports.remove(self)
