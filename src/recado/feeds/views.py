"""Views: who takes part in a feed, and what that says about who got what.

A view has a cut: message (p, s) is before the view if s ≤ cut[p], and in it or later otherwise. So views are
ordered with respect to messages on every transport. An archive keeps a record of each view, and of each
acknowledgement: a member acknowledges a view after it has delivered everything before its cut. What follows
from such records is in `table`.
"""

from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from .vector import MAX_SEQUENCE_ID, PUBLISHER_ID_BYTES, Vector

MAX_NAME_BYTES: Final = 200
MAX_MEMBERS: Final = 10_000
MAX_PLAUSIBLE_VIEW_COUNT: Final = 2**40  # more views than a feed can have had
MAX_MISSED_VIEW_COUNT: Final = 2**20  # more than anybody can have missed

IncarnationId = Annotated[bytes, Meta(min_length=PUBLISHER_ID_BYTES, max_length=PUBLISHER_ID_BYTES)]
MemberName = Annotated[str, Meta(max_length=MAX_NAME_BYTES)]
Count = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_ID)]
SequenceNumber = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_ID)]


class Role(IntEnum):
    PUBLISHER = 0
    SUBSCRIBER = 1
    ARCHIVE = 2


class Certainty(IntEnum):
    """What is known of a message and a subscriber that was away."""

    LIVE = 0
    """It comes from the live flow: never delivered to this name before, unless marked otherwise by recovery."""
    MISSED = 1
    """Surely not delivered to an earlier life of this subscriber."""
    UNCERTAIN = 2
    """It may have been delivered."""
    DELIVERED = 3
    """Surely delivered. Such a message is not sent again unless the application's own vector asks for it, and
    is then marked as UNCERTAIN: the vector knows better."""


class MemberId(Struct, frozen=True, array_like=True, order=True, cache_hash=True):
    """The name stays over restarts; the incarnation is new at each start. A publisher has no name."""

    name: MemberName
    incarnation: IncarnationId

    def __str__(self) -> str:
        return f"{self.name}@{self.incarnation.hex()}"

    @classmethod
    def parse(cls, text: str) -> "MemberId":
        """Raises ValueError."""
        name, _, incarnation = text.rpartition("@")
        member = cls(name, bytes.fromhex(incarnation))
        if len(member.incarnation) != PUBLISHER_ID_BYTES or len(name.encode()) > MAX_NAME_BYTES:
            raise ValueError(f"{text!r} is not a name, @ and 32 hex digits")
        return member


class ViewId(Struct, frozen=True, array_like=True, order=True):
    number: Count
    coordinator: IncarnationId
    """Incarnation of the member that made it."""


def is_plausible_view_number(number: int, known_number: int) -> bool:
    """Whether a view can have this number, for one who knows of another. Numbers grow by one and have an end:
    who said the last one would end all views, for ever."""
    return number <= max(MAX_PLAUSIBLE_VIEW_COUNT, known_number + MAX_MISSED_VIEW_COUNT)


class ViewEntry(Struct, frozen=True, array_like=True):
    """A place in a view."""

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
    """What an archive keeps of a view."""

    view: View
    cut: Vector
    previous_views: tuple[ViewId, ...]
    """The views in which its members were before."""
    provisional: bool = False
    """The archive was asked to take part, and does not know whether it came to be. The same view replaces
    it."""
    complete: bool = False
    """Whoever its members heard is in it, and one of them had listened for long enough: all others were silent
    when it was begun."""


class ViewStability(Struct, frozen=True, array_like=True, tag="Settled"):
    """What an archive finds out later about a view: who failed before it has delivered nothing beyond `reach`.

    The cut alone does not say so: it is what those who live have received, and who failed may have been ahead
    of them. Of a publisher that was silent then nothing is known: its entry is OPEN until it is heard again.
    """

    view_id: ViewId
    delivery_bound: Vector


class AcknowledgementRecord(Struct, frozen=True, array_like=True, tag="Acknowledged"):
    """What an archive keeps of an acknowledgement: what `vector` has and `start` has not was delivered. What
    was passed over is a hole in `vector`."""

    member: MemberId
    view_id: ViewId
    start: Vector
    vector: Vector
    is_final: bool = False
    """It has left: nothing beyond `vector` was delivered to this incarnation."""


class LostRange(Struct, frozen=True, array_like=True, tag="Lost"):
    """Messages first..last of this publisher are nowhere: it failed before anybody who lives had them."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


class FoundRange(Struct, frozen=True, array_like=True, tag="Found"):
    """Messages first..last, of which an earlier record says that they are lost, are stored all the same: from
    the offset of this record on. Another archive had them."""

    publisher: IncarnationId
    first: SequenceNumber
    last: SequenceNumber


ArchiveRecord = ViewRecord | ViewStability | AcknowledgementRecord | LostRange | FoundRange
"""What an archive keeps beside messages."""

NO_VIEW: Final = ViewId(0, bytes(PUBLISHER_ID_BYTES))
UNBOUNDED: Final = MAX_SEQUENCE_ID
"""In a reach: any message of this publisher may have been delivered."""
