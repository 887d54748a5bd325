"""Views: the members of a feed at a time, and the records from which archives infer what members received.

A view has a cut: message (p, s) is before the view if s ≤ cut[p], otherwise in it or later. So views are
ordered relative to messages on every transport. An archive records each view and each acknowledgement; a member
acknowledges a view after it has delivered everything before the cut. `delivery_records` draws the conclusions.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from .vector import MAX_SEQUENCE_ID, PUBLISHER_ID_BYTES, Vector

MAX_NAME_BYTES: Final = 200  # of a received member id; `naming` allows 120 for new ones
MAX_MEMBERS: Final = 10_000
MAX_PLAUSIBLE_VIEW_COUNT: Final = 2**40  # more views than a feed can have had
MAX_MISSED_VIEW_COUNT: Final = 2**20  # more views than a member can have missed

IncarnationId = Annotated[bytes, Meta(min_length=PUBLISHER_ID_BYTES, max_length=PUBLISHER_ID_BYTES)]
MemberName = Annotated[str, Meta(max_length=MAX_NAME_BYTES)]
Count = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_ID)]
SequenceNumber = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_ID)]


class Role(IntEnum):
    PUBLISHER = 0
    SUBSCRIBER = 1
    ARCHIVE = 2


class Certainty(IntEnum):
    """What is known about an earlier delivery of a message to a returning subscriber."""

    LIVE = 0
    """A live message. With `pessimistic` and `archive` recovery it was not delivered to this name before; otherwise
    this says nothing about earlier deliveries."""
    MISSED = 1
    """Certainly not processed by an earlier incarnation of this subscriber: it was not delivered, or the incarnation
    left its block by an exception while it processed the message."""
    UNCERTAIN = 2
    """It may have been delivered."""
    DELIVERED = 3
    """Certainly delivered. Such a message is sent again only if the application's own vector requests it, and
    is then marked UNCERTAIN: the vector is more reliable."""


class MemberId(Struct, frozen=True, array_like=True, order=True, cache_hash=True):
    """The name stays the same over restarts; the incarnation is new at each start. Publishers have no name."""

    name: MemberName
    incarnation: IncarnationId

    def __str__(self) -> str:
        return f"{self.name}@{self.incarnation.hex()}"

    @classmethod
    def parse(cls, text: str) -> "MemberId":
        """Parse the text form; raise `ValueError` if it is invalid."""
        name, _, incarnation = text.rpartition("@")
        member = cls(name, bytes.fromhex(incarnation))
        if len(member.incarnation) != PUBLISHER_ID_BYTES or len(name.encode()) > MAX_NAME_BYTES:
            raise ValueError(f"invalid member id {text!r}: expected a name, @ and 32 hex digits")
        return member


class ViewId(Struct, frozen=True, array_like=True, order=True):
    number: Count
    coordinator: IncarnationId
    """Incarnation of the member that made the view."""


def is_plausible_view_number(number: int, known_number: int) -> bool:
    """Return whether a view can have this number, given the highest known one. Numbers grow by one; a packet
    with the largest possible number would prevent all later views."""
    return number <= max(MAX_PLAUSIBLE_VIEW_COUNT, known_number + MAX_MISSED_VIEW_COUNT)


class ViewEntry(Struct, frozen=True, array_like=True):
    """A member of a view with its role."""

    member: MemberId
    role: Role


class View(Struct, frozen=True, array_like=True):
    id: ViewId
    entries: Annotated[tuple[ViewEntry, ...], Meta(max_length=MAX_MEMBERS)]
    """Oldest member first."""

    def members(self) -> list[MemberId]:
        return [entry.member for entry in self.entries]

    def archive_members(self) -> list[MemberId]:
        return [entry.member for entry in self.entries if entry.role is Role.ARCHIVE]


class ViewRecord(Struct, frozen=True, array_like=True, tag="ViewRecord"):
    """What an archive records about a view."""

    view: View
    cut: Vector
    previous_views: tuple[ViewId, ...]
    """The views in which its members were before."""
    provisional: bool = False
    """The archive was invited and does not know whether the view was made. The record of the actual view
    replaces this one."""
    complete: bool = False
    """Every member that the members of the view heard is in it, and one of them had listened for long enough:
    all absent members were silent when the view change began."""


class ViewStability(Struct, frozen=True, array_like=True, tag="Settled"):
    """Upper bound, found later, of the messages that members which failed before a view can have delivered.

    The cut is not that bound: it covers the messages that living members have received, and a failed member may
    have been ahead of them. The bound of a publisher that was silent is UNBOUNDED until the publisher is heard
    again.
    """

    view_id: ViewId
    delivery_bound: Vector


class AcknowledgementRecord(Struct, frozen=True, array_like=True, tag="Acknowledged"):
    """What an archive records about an acknowledgement: the messages in `vector` and not in `start` were
    delivered. Skipped messages are holes in `vector`."""

    member: MemberId
    view_id: ViewId
    start: Vector
    vector: Vector
    is_final: bool = False
    """The member has left: nothing beyond `vector` was delivered to this incarnation."""


class LostRange(Struct, frozen=True, array_like=True, tag="Lost"):
    """Messages first..last of this publisher are lost: no reachable member has them, or an archive's file with
    them is damaged."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


class FoundRange(Struct, frozen=True, array_like=True, tag="Found"):
    """Messages first..last were recorded as lost, and another archive had them: they are stored from the offset
    of this record on."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


ArchiveRecord = ViewRecord | ViewStability | AcknowledgementRecord | LostRange | FoundRange
"""What an archive stores besides messages."""

NO_VIEW: Final = ViewId(0, bytes(PUBLISHER_ID_BYTES))
UNBOUNDED: Final = MAX_SEQUENCE_ID
"""In a delivery bound: any message of this publisher may have been delivered."""
