"""Views: who takes part in a feed, and what that says about who got what.

A view has a cut: message (p, s) is before the view if s ≤ cut[p], and in it or later otherwise. So views are
ordered with respect to messages on every transport. An archive keeps a record of each view, and of each
acknowledgement: a member acknowledges a view after it has delivered everything before its cut.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from .vector import MAX_SEQUENCE, PUBLISHER_SIZE, Vector

MAX_NAME: Final = 200
MAX_MEMBERS: Final = 10_000
MAX_VIEWS: Final = 1_024

Id = Annotated[bytes, Meta(min_length=PUBLISHER_SIZE, max_length=PUBLISHER_SIZE)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Count = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE)]
Sequence = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE)]


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
    """Surely delivered. Such a message is not sent again unless the application's own vector asks for it."""


class MemberId(Struct, frozen=True, array_like=True, order=True):
    """The name stays over restarts; the incarnation is new at each start. A publisher has no name."""

    name: Name
    incarnation: Id

    def __str__(self) -> str:
        return f"{self.name}@{self.incarnation.hex()}"

    @classmethod
    def parse(cls, text: str) -> "MemberId":
        """Raises ValueError."""
        name, _, incarnation = text.rpartition("@")
        member = cls(name, bytes.fromhex(incarnation))
        if len(member.incarnation) != PUBLISHER_SIZE or len(name.encode()) > MAX_NAME:
            raise ValueError(f"{text!r} is not a name, @ and 32 hex digits")
        return member


class ViewId(Struct, frozen=True, array_like=True, order=True):
    number: Count
    coordinator: Id
    """Incarnation of the member that made it."""


class Seat(Struct, frozen=True, array_like=True):
    """A place in a view."""

    member: MemberId
    role: Role


class View(Struct, frozen=True, array_like=True):
    id: ViewId
    seats: Annotated[tuple[Seat, ...], Meta(max_length=MAX_MEMBERS)]
    """Oldest member first."""

    def members(self) -> list[MemberId]:
        return [seat.member for seat in self.seats]

    def archives(self) -> list[MemberId]:
        return [seat.member for seat in self.seats if seat.role is Role.ARCHIVE]


class ViewRecord(Struct, frozen=True, array_like=True, tag=True):
    """What an archive keeps of a view."""

    view: View
    cut: Vector
    previous: tuple[ViewId, ...]
    """The views in which its members were before."""
    provisional: bool = False
    """The archive was asked to take part, and does not know whether it came to be. The same view replaces
    it."""


class Settled(Struct, frozen=True, array_like=True, tag=True):
    """What an archive finds out later about a view: who failed before it has delivered nothing beyond `reach`.

    The cut alone does not say so: it is what those who live have received, and who failed may have been ahead
    of them.
    """

    view: ViewId
    reach: Vector


class Acknowledged(Struct, frozen=True, array_like=True, tag=True):
    """What an archive keeps of an acknowledgement: everything behind `start`, up to `vector`, was delivered."""

    member: MemberId
    view: ViewId
    start: Vector
    vector: Vector
    final: bool = False
    """It has left: nothing beyond `vector` was delivered to this incarnation."""


class Lost(Struct, frozen=True, array_like=True, tag=True):
    """Messages first..last of this publisher are nowhere: it failed before anybody who lives had them."""

    publisher: Id
    first: Sequence
    last: Sequence


Record = ViewRecord | Settled | Acknowledged | Lost
"""What an archive keeps beside messages."""

NO_VIEW: Final = ViewId(0, bytes(PUBLISHER_SIZE))


class Table:
    """What an archive knows of views and acknowledgements, and what follows for a subscriber that was away.

    VT1  A view that was recorded is known until the table is full; then the oldest go first.
    VT2  What is called DELIVERED was acknowledged; what is called MISSED lies outside everything that any
    life of the
         subscriber can have been given, as far as it shared its views with archives. What is not known is
         UNCERTAIN.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.views: dict[ViewId, ViewRecord] = {}
        self.settled: dict[ViewId, Settled] = {}
        self.acknowledged: dict[MemberId, Acknowledged] = {}
        self._seats: dict[str, dict[MemberId, int]] | None = None
        for record in records:
            self.add(record)

    def add(self, record: Record) -> bool:
        """Whether it was news."""
        match record:
            case ViewRecord(view):
                old = self.views.get(view.id)
                if old == record or (old is not None and record.provisional):
                    return False
                self.views[view.id] = record
                self._seats = None
                if len(self.views) > MAX_VIEWS:
                    oldest = min(self.views)
                    del self.views[oldest]
                    self.settled.pop(oldest, None)
            case Settled(view_id, reach):
                before = self.settled.get(view_id)
                if before is not None and before.reach.covers(reach):
                    return False
                # Two archives may have found different ends: the farther one is the safer.
                both = reach if before is None else before.reach.joined(reach)
                self.settled[view_id] = Settled(view_id, both)
            case Acknowledged(member):
                last = self.acknowledged.get(member)
                if last is not None and (last.final or last.vector.covers(record.vector)):
                    return False
                self.acknowledged[member] = record
                if len(self.acknowledged) > MAX_MEMBERS:
                    del self.acknowledged[next(iter(self.acknowledged))]
            case Lost():
                return True
        return True

    def knows(self, member: MemberId) -> bool:
        return member in self._lives(member.name)

    def _lives(self, name: str) -> dict[MemberId, int]:
        """Each life of this name, and the number of the last view that it was in."""
        if self._seats is None:
            seats: dict[str, dict[MemberId, int]] = {}
            for record in self.views.values():
                number = record.view.id.number
                for member in record.view.members():
                    lives = seats.setdefault(member.name, {})
                    lives[member] = max(lives.get(member, 0), number)
            self._seats = seats
        return self._seats.get(name, {})

    def start(self, name: str, without: MemberId | None = None) -> Vector:
        """Up to where the name has acknowledged: it may miss all that is behind."""
        acks = [ack for m, ack in self.acknowledged.items() if m.name == name and m != without]
        return max(acks, key=lambda ack: ack.view).vector if acks else Vector()

    def standing(self, name: str, without: MemberId | None = None) -> "Standing":
        """What each message is to this subscriber, not counting the life that `without` is."""
        last = {m: number for m, number in self._lives(name).items() if m != without}
        sure: list[Interval] = []
        doubtful: list[Interval] = []
        for member, ack in self.acknowledged.items():
            if member.name == name and member != without:
                sure.append((ack.start, ack.vector))
                last.setdefault(member, ack.view.number)
        for member, number in last.items():
            found = self.acknowledged.get(member)
            if found is None:
                doubtful.append((Vector(), self._end(member, number)))
            elif not found.final:
                doubtful.append((found.vector, self._end(member, number)))
        for record in self.views.values():
            unknown = [id_.number for id_ in record.previous if id_ not in self.views]
            if unknown:  # it may have been in there
                doubtful.append((Vector(), self._settled_after(max(unknown))))
        return Standing(sure, doubtful)

    def _end(self, life: MemberId, number: int) -> Vector | None:
        """Beyond this, nothing was delivered to this life, which was last in the view of this number; None:
        not known.

        A view without it tells only if it comes, by members that were there all the time, from one that had
        it: they noticed that it was silent. An archive that restarts and is alone knows nothing of others. Or
        the name is back: then its earlier life is over.
        """
        witnesses = {
            member
            for record in self.views.values()
            if life in record.view.members() and not record.provisional
            for member in record.view.members()
        }
        for id_ in sorted(id_ for id_ in self.views if id_.number > number):
            record = self.views[id_]
            members = record.view.members()
            witnessed = not record.provisional and not witnesses.isdisjoint(members)
            if witnessed:
                witnesses.update(members)
            if witnessed or any(m.name == life.name for m in members):
                settled = self.settled.get(id_)
                if settled is not None:
                    return settled.reach
        return None

    def _settled_after(self, number: int) -> Vector | None:
        later = [id_ for id_ in self.settled if id_.number > number and id_ in self.views]
        return self.settled[min(later)].reach if later else None


Interval = tuple[Vector, Vector | None]


class Standing:
    """What messages are to one subscriber, by ranges of sequences."""

    def __init__(self, sure: list[Interval], doubtful: list[Interval]) -> None:
        self._sure = sure
        self._doubtful = doubtful

    def split(self, publisher: bytes, first: int, last: int) -> list[tuple[int, int, Certainty]]:
        """first..last in ranges of one class each."""
        ends = {last}
        for interval in (*self._sure, *self._doubtful):
            for bound in interval:
                if bound is not None and first <= bound.of(publisher) < last:
                    ends.add(bound.of(publisher))
        ranges: list[tuple[int, int, Certainty]] = []
        for end in sorted(ends):
            certainty = self._of(publisher, first)
            if ranges and ranges[-1][2] is certainty:
                first = ranges.pop()[0]
            ranges.append((first, end, certainty))
            first = end + 1
        return ranges

    def _of(self, publisher: bytes, sequence: int) -> Certainty:
        if any(_within(publisher, sequence, interval) for interval in self._sure):
            return Certainty.DELIVERED
        if any(_within(publisher, sequence, interval) for interval in self._doubtful):
            return Certainty.UNCERTAIN
        return Certainty.MISSED


def _within(publisher: bytes, sequence: int, interval: Interval) -> bool:
    low, high = interval
    return low.of(publisher) < sequence and (high is None or sequence <= high.of(publisher))
