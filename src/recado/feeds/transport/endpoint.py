"""The interface between a member and its transport.

    FeedTransport    shared by all members of a program: a broker connection or a multicast group
    FeedEndpoint     one member's connection to one feed: broadcasts, sends, settles packets
    PacketListener   receives packets, confirms and errors

EP1  A packet arrives whole or not at all, with the id of its sender.
EP2  `broadcasts_confirmed(n)` follows only after every broadcast up to number n is confirmed by the broker or,
     without a broker, sent by the socket. Broadcasts with messages have rising numbers, all others have 0.
EP3  Packets with a tag that were not settled are redelivered to an archiver that returns under its name, where
     the transport has queues (AMQP). Settling a tag settles all before it.
EP4  A listener is never called from within a call to its endpoint.
"""

from __future__ import annotations

from typing import Final, Protocol

from recado.feeds.boundary import PacketRoute, Target
from recado.feeds.views import MemberId, Role

NO_TAG: Final = 0
"""Tag of packets that need not be settled."""


class PacketListener(Protocol):
    """Called in the thread of the event loop, one call at a time."""

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None: ...

    def broadcasts_confirmed(self, last_sequence: int) -> None: ...

    def transport_lost(self, error: Exception) -> None:
        """The transport failed for good; no packet follows."""


class FeedEndpoint(Protocol):
    """All methods except `close` return at once."""

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        """Send a packet to every member, including ourselves. If `last_sequence` is above 0, it will be
        confirmed."""

    def send(self, to: Target, packet: bytes) -> None:
        """Send a packet to one member, all members, all archives or all coordinators."""

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        """Start or stop receiving packets to coordinators; initially off."""

    def settle(self, last_tag: int) -> None:
        """Packets up to this tag need not be redelivered; frees prefetch capacity."""

    async def close(self) -> None: ...


class FeedTransport(Protocol):
    @property
    def layer_name(self) -> str:
        """Name of the transport layer in a stack: AMQP or UDP."""

    @property
    def max_packet_bytes(self) -> int:
        """Largest packet that needs no fragments."""

    @property
    def is_connected(self) -> bool:
        """Whether packets reach the broker at the moment; True without a broker."""

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> FeedEndpoint: ...

    async def close(self) -> None: ...
