"""What an archive knows of views and acknowledgements, and what follows for a subscriber that was away."""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from .incarnation_history import IncarnationHistory, Interval
from .vector import Vector, clip_spans
from .views import (
    MAX_MEMBERS,
    UNBOUNDED,
    AcknowledgementRecord,
    ArchiveRecord,
    Certainty,
    FoundRange,
    LostRange,
    MemberId,
    View,
    ViewId,
    ViewRecord,
    ViewStability,
)

MAX_VIEWS: Final = 1_024


class DeliveryRecords:
    """VT1  A view that was recorded is known until the table is full; then the oldest go first.
    VT2  What is called DELIVERED was acknowledged; what is called MISSED lies outside everything that any life
         of the subscriber can have been given, as far as it shared its views with archives, and if whoever was
         silent had stopped. What is not known is UNCERTAIN. How it is known is in `lineage`.
    """

    def __init__(self, records: Iterable[ArchiveRecord] = ()) -> None:
        self.view_records: dict[ViewId, ViewRecord] = {}
        self.stability: dict[ViewId, ViewStability] = {}
        self.stability_checksums: dict[ViewId, int] = {}
        """Of the reaches: by them two archives see which of theirs differ."""
        self.acknowledgements: dict[MemberId, AcknowledgementRecord] = {}
        self._history: IncarnationHistory | None = None
        self._status_cache: dict[tuple[str, MemberId | None], DeliveryStatus] = {}
        for record in records:
            self.add(record)

    def add(self, record: ArchiveRecord) -> bool:
        """Whether it was news."""
        match record:
            case ViewRecord(view):
                old = self.view_records.get(view.id)
                if old == record or (old is not None and record.provisional):
                    return False
                self.view_records[view.id] = record
                self._history = None
                if len(self.view_records) > MAX_VIEWS:
                    oldest = min(self.view_records)
                    del self.view_records[oldest]
                    self.stability.pop(oldest, None)
                    self.stability_checksums.pop(oldest, None)
            case ViewStability(view_id, reach):
                before = self.stability.get(view_id)
                both = reach if before is None else _merge_bounds(before.delivery_bound, reach)
                if before is not None and before.delivery_bound == both:
                    return False
                self.stability[view_id] = ViewStability(view_id, both)
                self.stability_checksums[view_id] = crc32(both.to_text().encode())
                self._history = None
            case AcknowledgementRecord(member):
                last = self.acknowledgements.get(member)
                if last is not None and acknowledgement_weight(last) >= acknowledgement_weight(
                    record
                ):
                    return False
                self.acknowledgements[member] = record
                if len(self.acknowledgements) > MAX_MEMBERS:
                    del self.acknowledgements[next(iter(self.acknowledgements))]
            case LostRange() | FoundRange():
                return True
        self._status_cache.clear()
        return True

    def has_seen(self, member: MemberId) -> bool:
        return member in self._get_history().incarnations(member.name)

    def views_of(self, member: MemberId) -> list[View]:
        """The views that this member was in, oldest first; not those that it was only asked to be in."""
        known = [
            self.view_records[id_]
            for id_ in self._get_history().incarnations(member.name).get(member, ())
        ]
        return [record.view for record in known if not record.provisional]

    def last_acknowledged(self, name: str, excluded: MemberId | None = None) -> Vector:
        """What the name has last acknowledged: it may miss all that is behind, and its holes."""
        acks = [ack for m, ack in self.acknowledgements.items() if m.name == name and m != excluded]
        return max(acks, key=lambda ack: ack.view_id).vector if acks else Vector()

    def delivery_status(self, name: str, excluded: MemberId | None = None) -> "DeliveryStatus":
        """What each message is to this subscriber, not counting the life that `subtract_span` is."""
        found = self._status_cache.get((name, excluded))
        if found is None:
            found = self._status_cache[name, excluded] = self._compute_status(name, excluded)
        return found

    def _compute_status(self, name: str, excluded: MemberId | None) -> "DeliveryStatus":
        history = self._get_history()
        acks = {
            m: ack for m, ack in self.acknowledgements.items() if m.name == name and m != excluded
        }
        sure: list[Interval] = [(ack.start, ack.vector) for ack in acks.values()]
        doubtful = list(history.unseen_intervals())
        for member in dict.fromkeys((*history.incarnations(name), *acks)):
            ack = acks.get(member)
            if member == excluded or (ack is not None and ack.is_final):
                continue
            last = ack.view_id.number if ack is not None else 0
            doubtful.append((_uncertain_start(ack), history.delivery_bound(member, last)))
        return DeliveryStatus(sure, doubtful)

    def _get_history(self) -> IncarnationHistory:
        if self._history is None:
            self._history = IncarnationHistory(self.view_records, self.stability)
        return self._history


class DeliveryStatus:
    """What messages are to one subscriber, by ranges of sequences."""

    def __init__(self, sure: list[Interval], doubtful: list[Interval]) -> None:
        self._certain = sure
        self._uncertain = doubtful

    def split(self, publisher: bytes, first: int, last: int) -> list[tuple[int, int, Certainty]]:
        """first..last in ranges of one class each."""
        ends = {last}
        for interval in (*self._certain, *self._uncertain):
            for bound in interval:
                if bound is not None:
                    holes = bound.holes.get(publisher, ())
                    edges = [end for low, high in holes for end in (low - 1, high)]
                    ends.update(
                        end for end in (bound.last_of(publisher), *edges) if first <= end < last
                    )
        ranges: list[tuple[int, int, Certainty]] = []
        for end in sorted(ends):
            certainty = self._classify(publisher, first)
            if ranges and ranges[-1][2] is certainty:
                first = ranges.pop()[0]
            ranges.append((first, end, certainty))
            first = end + 1
        return ranges

    def delivery_bound(self) -> Vector | None:
        """No earlier life was given anything behind this; None: not known yet."""
        farthest = Vector()
        for _, end in self._uncertain:
            if end is None:
                return None
            farthest = farthest.merge(end)
        for _, acknowledged in self._certain:
            farthest = farthest.merge(acknowledged or Vector())
        return farthest

    def _classify(self, publisher: bytes, sequence: int) -> Certainty:
        if any(_is_in_interval(publisher, sequence, interval) for interval in self._certain):
            return Certainty.DELIVERED
        if any(_is_in_interval(publisher, sequence, interval) for interval in self._uncertain):
            return Certainty.UNCERTAIN
        return Certainty.MISSED


def acknowledgement_weight(ack: AcknowledgementRecord) -> int:
    """Of two acknowledgements of one life the heavier one is the newer: it passes over messages, or is given
    them, behind all others or out of a hole."""
    vector = ack.vector
    holes = sum(high - low + 1 for spans in vector.holes.values() for low, high in spans)
    return 2 * (2 * sum(vector.values()) - holes) + ack.is_final


def _uncertain_start(ack: AcknowledgementRecord | None) -> Vector:
    """Behind this, and in its holes, a life may have been given what it has not acknowledged. What it passed
    over never came to it; a hole that it began with may have been filled."""
    if ack is None:
        return Vector()
    begun = ack.start.holes
    holes = {
        publisher: [each for span in spans for each in clip_spans(begun.get(publisher, ()), *span)]
        for publisher, spans in ack.vector.holes.items()
    }
    return Vector(ack.vector, holes)


def _merge_bounds(one: Vector, other: Vector) -> Vector:
    """Two archives may have found different ends: the farther one is the safer, but any is better than none."""
    entries = dict(one)
    for publisher, sequence in other.items():
        known = entries.get(publisher, 0)
        if known == UNBOUNDED or (sequence != UNBOUNDED and sequence > known) or not known:
            entries[publisher] = sequence
    return Vector(entries)


def _is_in_interval(publisher: bytes, sequence: int, interval: Interval) -> bool:
    low, high = interval
    return not low.contains(publisher, sequence) and (
        high is None or high.contains(publisher, sequence)
    )
