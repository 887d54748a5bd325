"""Who takes part in a feed, seen by a program that does not: it asks coordinators for the members of their
views, and hears the heartbeats of newcomers and what publishers tell."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from .block import Malformed
from .boundary import COORDINATORS, Channel
from .naming import check_feed, new_id
from .packet import Beat, Last, NewView, Roll
from .transport.opening import carrier_for
from .transport.port import UNTAGGED, Port
from .views import NO_VIEW, MemberId, Role, ViewId
from .wire import decode, encode, extent

GIVE_UP: Final = 10.0
ROLL_CALLS: Final = 4


class Seen(msgspec.Struct):
    """A member or publisher that was heard."""

    role: Role
    name: str
    incarnation: str
    view: int = 0
    """The number of its view; 0 for a publisher, and before the first."""
    last: int = 0
    """Of a publisher, the last sequence that was heard of."""

    def as_json(self) -> dict[str, str | int]:
        fields = msgspec.structs.asdict(self)
        return {**fields, "role": self.role.name.lower()}


class Onlooker:
    def __init__(self) -> None:
        self.seen: dict[MemberId, Seen] = {}
        self.failure: Exception | None = None
        self.port: Port | None = None

    def arrived(self, channel: Channel, sender: MemberId, packet: bytes, tag: int) -> None:
        if tag != UNTAGGED and self.port is not None:
            self.port.settle(tag)
        messages = extent(packet)
        if messages is not None:
            return self._publishes(*messages)
        try:
            heard = decode(packet)
        except Malformed:
            return None
        match heard:
            case Beat(role=role, view=view, leaving=False):
                self._member(sender, role, view)
            case Beat(leaving=True):
                self.seen.pop(sender, None)
            case NewView(view):
                for seat in view.seats:
                    self._member(seat.member, seat.role, view.id)
            case Last(publisher, last):
                self._publishes(publisher, last)
            case _:
                pass
        return None

    def _member(self, sender: MemberId, role: Role, view: ViewId) -> None:
        number = 0 if view == NO_VIEW else view.number
        self.seen[sender] = Seen(role, sender.name, sender.incarnation.hex(), view=number)

    def _publishes(self, publisher: bytes, last: int) -> None:
        known = self.seen.setdefault(
            MemberId("", publisher), Seen(Role.PUBLISHER, "", publisher.hex())
        )
        known.last = max(known.last, last)

    def confirmed(self, upto: int) -> None:
        pass

    def broken(self, error: Exception) -> None:
        self.failure = error


async def onlook(url: str, feed: str, seconds: float) -> list[Seen]:
    """Who was heard in so many seconds: members first, then publishers."""
    onlooker = Onlooker()
    carrier = await carrier_for(url, GIVE_UP)
    try:
        me = new_id("onlooker")
        onlooker.port = await carrier.join(check_feed(feed), me, Role.SUBSCRIBER, onlooker)
        for _ in range(ROLL_CALLS):  # a datagram may get lost, and a view may be in the making
            onlooker.port.send(COORDINATORS, encode(Roll()))
            await asyncio.sleep(seconds / ROLL_CALLS)
        await onlooker.port.close()
    finally:
        await carrier.close()
    if onlooker.failure is not None:
        raise onlooker.failure
    return sorted(
        onlooker.seen.values(), key=lambda seen: (-seen.role, seen.name, seen.incarnation)
    )
