"""What an archive knows of views and acknowledgements, and what follows for a subscriber that was away."""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from .lineage import Interval, Lineage
from .vector import Vector, within
from .views import (
    MAX_MEMBERS,
    OPEN,
    Acknowledged,
    Certainty,
    Found,
    Lost,
    MemberId,
    Record,
    Settled,
    View,
    ViewId,
    ViewRecord,
)

MAX_VIEWS: Final = 1_024


class Table:
    """VT1  A view that was recorded is known until the table is full; then the oldest go first.
    VT2  What is called DELIVERED was acknowledged; what is called MISSED lies outside everything that any life
         of the subscriber can have been given, as far as it shared its views with archives, and if whoever was
         silent had stopped. What is not known is UNCERTAIN. How it is known is in `lineage`.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.views: dict[ViewId, ViewRecord] = {}
        self.settled: dict[ViewId, Settled] = {}
        self.checksums: dict[ViewId, int] = {}
        """Of the reaches: by them two archives see which of theirs differ."""
        self.acknowledged: dict[MemberId, Acknowledged] = {}
        self._lineage: Lineage | None = None
        self._standings: dict[tuple[str, MemberId | None], Standing] = {}
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
                self._lineage = None
                if len(self.views) > MAX_VIEWS:
                    oldest = min(self.views)
                    del self.views[oldest]
                    self.settled.pop(oldest, None)
                    self.checksums.pop(oldest, None)
            case Settled(view_id, reach):
                before = self.settled.get(view_id)
                both = reach if before is None else _safer(before.reach, reach)
                if before is not None and before.reach == both:
                    return False
                self.settled[view_id] = Settled(view_id, both)
                self.checksums[view_id] = crc32(both.to_text().encode())
                self._lineage = None
            case Acknowledged(member):
                last = self.acknowledged.get(member)
                if last is not None and weight(last) >= weight(record):
                    return False
                self.acknowledged[member] = record
                if len(self.acknowledged) > MAX_MEMBERS:
                    del self.acknowledged[next(iter(self.acknowledged))]
            case Lost() | Found():
                return True
        self._standings.clear()
        return True

    def knows(self, member: MemberId) -> bool:
        return member in self._known().lives(member.name)

    def views_of(self, member: MemberId) -> list[View]:
        """The views that this member was in, oldest first; not those that it was only asked to be in."""
        known = [self.views[id_] for id_ in self._known().lives(member.name).get(member, ())]
        return [record.view for record in known if not record.provisional]

    def start(self, name: str, without: MemberId | None = None) -> Vector:
        """What the name has last acknowledged: it may miss all that is behind, and its holes."""
        acks = [ack for m, ack in self.acknowledged.items() if m.name == name and m != without]
        return max(acks, key=lambda ack: ack.view).vector if acks else Vector()

    def standing(self, name: str, without: MemberId | None = None) -> "Standing":
        """What each message is to this subscriber, not counting the life that `without` is."""
        found = self._standings.get((name, without))
        if found is None:
            found = self._standings[name, without] = self._find(name, without)
        return found

    def _find(self, name: str, without: MemberId | None) -> "Standing":
        lineage = self._known()
        acks = {m: ack for m, ack in self.acknowledged.items() if m.name == name and m != without}
        sure: list[Interval] = [(ack.start, ack.vector) for ack in acks.values()]
        doubtful = list(lineage.holes())
        for member in dict.fromkeys((*lineage.lives(name), *acks)):
            ack = acks.get(member)
            if member == without or (ack is not None and ack.final):
                continue
            last = ack.view.number if ack is not None else 0
            doubtful.append((_begin_of_doubt(ack), lineage.end(member, last)))
        return Standing(sure, doubtful)

    def _known(self) -> Lineage:
        if self._lineage is None:
            self._lineage = Lineage(self.views, self.settled)
        return self._lineage


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
                if bound is not None:
                    holes = bound.holes.get(publisher, ())
                    edges = [end for low, high in holes for end in (low - 1, high)]
                    ends.update(end for end in (bound.of(publisher), *edges) if first <= end < last)
        ranges: list[tuple[int, int, Certainty]] = []
        for end in sorted(ends):
            certainty = self._of(publisher, first)
            if ranges and ranges[-1][2] is certainty:
                first = ranges.pop()[0]
            ranges.append((first, end, certainty))
            first = end + 1
        return ranges

    def bound(self) -> Vector | None:
        """No earlier life was given anything behind this; None: not known yet."""
        farthest = Vector()
        for _, end in self._doubtful:
            if end is None:
                return None
            farthest = farthest.joined(end)
        for _, acknowledged in self._sure:
            farthest = farthest.joined(acknowledged or Vector())
        return farthest

    def _of(self, publisher: bytes, sequence: int) -> Certainty:
        if any(_within(publisher, sequence, interval) for interval in self._sure):
            return Certainty.DELIVERED
        if any(_within(publisher, sequence, interval) for interval in self._doubtful):
            return Certainty.UNCERTAIN
        return Certainty.MISSED


def weight(ack: Acknowledged) -> int:
    """Of two acknowledgements of one life the heavier one is the newer: it passes over messages, or is given
    them, behind all others or out of a hole."""
    vector = ack.vector
    holes = sum(high - low + 1 for spans in vector.holes.values() for low, high in spans)
    return 2 * (2 * sum(vector.values()) - holes) + ack.final


def _begin_of_doubt(ack: Acknowledged | None) -> Vector:
    """Behind this, and in its holes, a life may have been given what it has not acknowledged. What it passed
    over never came to it; a hole that it began with may have been filled."""
    if ack is None:
        return Vector()
    begun = ack.start.holes
    holes = {
        publisher: [each for span in spans for each in within(begun.get(publisher, ()), *span)]
        for publisher, spans in ack.vector.holes.items()
    }
    return Vector(ack.vector, holes)


def _safer(one: Vector, other: Vector) -> Vector:
    """Two archives may have found different ends: the farther one is the safer, but any is better than none."""
    entries = dict(one)
    for publisher, sequence in other.items():
        known = entries.get(publisher, 0)
        if known == OPEN or (sequence != OPEN and sequence > known) or not known:
            entries[publisher] = sequence
    return Vector(entries)


def _within(publisher: bytes, sequence: int, interval: Interval) -> bool:
    low, high = interval
    return not low.has(publisher, sequence) and (high is None or high.has(publisher, sequence))
