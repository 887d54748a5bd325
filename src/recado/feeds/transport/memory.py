"""Feeds within one process and event loop: the in-memory twin of the transports, for tests.

It behaves like a broker: all members receive broadcasts in the same order, archives have durable queues, and
unsettled packets are redelivered.
`accepts_packet` decides for each packet whether it is delivered, so that tests can drop packets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from recado.feeds.boundary import ARCHIVES, COORDINATORS, MEMBERS, PacketRoute, Target
from recado.feeds.views import MemberId, Role

from .endpoint import NO_TAG, PacketListener

MAX_PACKET_BYTES: Final = 1 << 20

PacketFilter = Callable[[PacketRoute, MemberId, bytes], bool]


class MemoryHub:
    """Plays the broker: all transports with the same hub reach each other."""

    def __init__(self) -> None:
        self.endpoints: list[MemoryEndpoint] = []
        self.accepts_packet: PacketFilter = lambda route, sender, packet: True
        self.archive_queues: dict[tuple[str, str], deque[tuple[MemberId, bytes]]] = {}
        """By feed and archive name: packets that the archive has not settled."""

    def broadcast(self, feed: str, sender: MemberId, packet: bytes) -> None:
        if not self.accepts_packet(PacketRoute.BROADCAST, sender, packet):
            return
        for (of_feed, _), queue in self.archive_queues.items():
            if of_feed == feed:
                queue.append((sender, packet))
        for endpoint in self.endpoints:
            if endpoint.feed == feed and endpoint.role is not Role.PUBLISHER:
                endpoint.enqueue(PacketRoute.BROADCAST, sender, packet)

    def send(self, feed: str, sender: MemberId, to: Target, packet: bytes) -> None:
        if not self.accepts_packet(PacketRoute.ADDRESSED, sender, packet):
            return
        for endpoint in self.endpoints:
            if endpoint.feed == feed and endpoint.is_addressed_by(to):
                endpoint.enqueue(PacketRoute.ADDRESSED, sender, packet)


class MemoryFeedTransport:
    layer_name = "AMQP"  # members get the stack of layers that they have over AMQP
    max_packet_bytes = MAX_PACKET_BYTES
    is_connected = True

    def __init__(self, hub: MemoryHub | None = None) -> None:
        self._hub = hub or MemoryHub()

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> MemoryEndpoint:
        endpoint = MemoryEndpoint(self._hub, feed, member_id, role, listener)
        self._hub.endpoints.append(endpoint)
        return endpoint

    async def close(self) -> None:
        """Nothing was opened."""


class MemoryEndpoint:
    def __init__(
        self, hub: MemoryHub, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> None:
        self._hub = hub
        self.feed = feed
        self.member_id = member_id
        self.role = role
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._last_tag = NO_TAG
        self._settled_tag = NO_TAG
        self._listens_to_coordinators = False
        if role is Role.ARCHIVE:
            self._queue = hub.archive_queues.setdefault((feed, member_id.name), deque())
            for sender, packet in self._queue:
                self.enqueue(PacketRoute.BROADCAST, sender, packet)

    def is_addressed_by(self, to: Target) -> bool:
        if to == MEMBERS:
            return self.role is not Role.PUBLISHER
        if to == COORDINATORS:
            return self._listens_to_coordinators
        if to == ARCHIVES:
            return self.role is Role.ARCHIVE
        return to == self.member_id

    def enqueue(self, route: PacketRoute, sender: MemberId, packet: bytes) -> None:
        tag = NO_TAG
        if route is PacketRoute.BROADCAST:
            self._last_tag += 1
            tag = self._last_tag
        self._loop.call_soon(self._notify_packet, route, sender, packet, tag)

    def _notify_packet(self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int) -> None:
        if self in self._hub.endpoints:
            self._listener.packet_received(route, sender, packet, tag)

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        self._hub.broadcast(self.feed, self.member_id, packet)
        if last_sequence:
            self._loop.call_soon(self._notify_confirmed, last_sequence)

    def _notify_confirmed(self, number: int) -> None:
        if self in self._hub.endpoints:
            self._listener.broadcasts_confirmed(number)

    def send(self, to: Target, packet: bytes) -> None:
        self._hub.send(self.feed, self.member_id, to, packet)

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        self._listens_to_coordinators = enabled

    def settle(self, last_tag: int) -> None:
        if self.role is Role.ARCHIVE:
            for _ in range(last_tag - self._settled_tag):
                self._queue.popleft()
        self._settled_tag = max(last_tag, self._settled_tag)

    def disconnect(self, error: Exception) -> None:
        """Simulate the loss of the transport."""
        self._hub.endpoints.remove(self)
        self._loop.call_soon(self._listener.transport_lost, error)

    async def close(self) -> None:
        if self in self._hub.endpoints:
            self._hub.endpoints.remove(self)
