"""Who takes part in a feed, seen by somebody who does not: it hears beats and answers none."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from .block import Malformed
from .boundary import Channel
from .naming import check_feed, new_id
from .packet import Beat, Last
from .transport.opening import carrier_for
from .transport.port import UNTAGGED, Port
from .views import NO_VIEW, MemberId, Role, ViewId
from .wire import decode, extent

GIVE_UP: Final = 10.0


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
        await asyncio.sleep(seconds)  # whoever lives beats; nobody says that all were heard
        await onlooker.port.close()
    finally:
        await carrier.close()
    if onlooker.failure is not None:
        raise onlooker.failure
    return sorted(
        onlooker.seen.values(), key=lambda seen: (-seen.role, seen.name, seen.incarnation)
    )
