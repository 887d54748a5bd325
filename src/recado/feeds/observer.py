"""Observes the members of a feed without becoming one of them.

It opens an endpoint as a subscriber does, but sends no heartbeats, so no view contains it. It requests the
members of views from coordinators, and listens to heartbeats of newcomers and publishers.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from .block import MalformedDataError
from .boundary import COORDINATORS, PacketRoute
from .naming import check_feed_name, new_member_id
from .packet import Heartbeat, MembersRequest, NewView, PublisherStatus
from .transport.endpoint import NO_TAG, FeedEndpoint
from .transport.factory import open_transport
from .views import NO_VIEW, MemberId, Role, ViewId
from .wire import decode, encode, read_message_extent

RECONNECT_TIMEOUT_S: Final = 10.0
MEMBERS_REQUEST_COUNT: Final = 4


class ObservedMember(msgspec.Struct):
    """A member or publisher that was observed."""

    role: Role
    name: str
    incarnation: str
    view: int = 0
    """Number of its view; 0 for a publisher or newcomer."""
    last: int = 0
    """For a publisher: its last known sequence."""

    def as_json(self) -> dict[str, str | int]:
        fields = msgspec.structs.asdict(self)
        return {**fields, "role": self.role.name.lower()}


class FeedObserver:
    def __init__(self) -> None:
        self.observed: dict[MemberId, ObservedMember] = {}
        self.failure: Exception | None = None
        self.endpoint: FeedEndpoint | None = None

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None:
        if tag != NO_TAG and self.endpoint is not None:
            self.endpoint.settle(tag)
        messages = read_message_extent(packet)
        if messages is not None:
            return self._note_publisher(*messages)
        try:
            heard = decode(packet)
        except MalformedDataError:
            return None
        match heard:
            case Heartbeat(role=role, view_id=view, is_leaving=False):
                self._note_member(sender, role, view)
            case Heartbeat(is_leaving=True):
                self.observed.pop(sender, None)
            case NewView(view):
                for entry in view.entries:
                    self._note_member(entry.member, entry.role, view.id)
            case PublisherStatus(publisher, last):
                self._note_publisher(publisher, last)
            case _:
                pass
        return None

    def _note_member(self, sender: MemberId, role: Role, view: ViewId) -> None:
        number = 0 if view == NO_VIEW else view.number
        self.observed[sender] = ObservedMember(
            role, sender.name, sender.incarnation.hex(), view=number
        )

    def _note_publisher(self, publisher: bytes, last: int) -> None:
        known = self.observed.setdefault(
            MemberId("", publisher), ObservedMember(Role.PUBLISHER, "", publisher.hex())
        )
        known.last = max(known.last, last)

    def broadcasts_confirmed(self, last_sequence: int) -> None:
        pass

    def transport_lost(self, error: Exception) -> None:
        self.failure = error


async def observe_members(url: str, feed: str, seconds: float) -> list[ObservedMember]:
    """Return the members and publishers observed within this many seconds, members first."""
    observer = FeedObserver()
    transport = await open_transport(url, RECONNECT_TIMEOUT_S)
    try:
        member_id = new_member_id("observer")
        observer.endpoint = await transport.join(
            check_feed_name(feed), member_id, Role.SUBSCRIBER, observer
        )
        # Ask several times: a datagram may get lost, and a view change may be in progress.
        for _ in range(MEMBERS_REQUEST_COUNT):
            observer.endpoint.send(COORDINATORS, encode(MembersRequest()))
            await asyncio.sleep(seconds / MEMBERS_REQUEST_COUNT)
        await observer.endpoint.close()
    finally:
        await transport.close()
    if observer.failure is not None:
        raise observer.failure
    return sorted(
        observer.observed.values(), key=lambda seen: (-seen.role, seen.name, seen.incarnation)
    )
