"""The port between a member and what carries its packets; it is small, and has a twin in memory.

    Carrier     a link to the world, shared by all members of a program: a broker's connection, a group
    Port        one member's place on one feed: it casts to all, sends to some, settles what came
    Listener    who is told what comes

T1  A packet arrives whole or not at all, with the member who sent it.
T2  `confirmed(n)` comes only after every cast up to number n is in the carrier's hands: a broker's
    confirm, or where there is no broker, the socket. What is cast has rising numbers, or 0.
T3  What came on P with a tag and was not settled comes again to an archive that returns under its
    name, where the carrier remembers (AMQP). Settling a tag settles all before it.
T4  A listener is never called from within a call to its port.
"""

from __future__ import annotations

from typing import Final, Protocol

from recado.feeds.boundary import PacketRoute, Target
from recado.feeds.views import MemberId, Role

NO_TAG: Final = 0
"""The tag of a packet that need not be settled."""


class PacketListener(Protocol):
    """Called in the loop's thread, one call after the other."""

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None: ...

    def broadcasts_confirmed(self, last_sequence: int) -> None: ...

    def transport_lost(self, error: Exception) -> None:
        """The carrier gives up; nothing comes any more."""


class FeedEndpoint(Protocol):
    """All but `close` returns at once."""

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        """To every member, ourselves included, on P. What has a number above 0 is confirmed."""

    def send(self, to: Target, packet: bytes) -> None:
        """To one member, all members, all archives or all coordinators, on A."""

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        """Whether to bring what is sent to coordinators; it is not brought to a member that has just joined."""

    def settle(self, last_tag: int) -> None:
        """What came up to this tag need not come again, and makes room for more."""

    async def close(self) -> None: ...


class FeedTransport(Protocol):
    @property
    def layer_name(self) -> str:
        """The name of the lowest layer of a stack on it."""

    @property
    def max_packet_bytes(self) -> int:
        """Bytes of a packet that need no fragments."""

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> FeedEndpoint: ...

    async def close(self) -> None: ...
