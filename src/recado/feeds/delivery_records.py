"""The views and acknowledgements that an archive knows, and which messages a subscriber has missed."""

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
    """The records of an archive, and the conclusions from them.

    DV1  A recorded view is known until MAX_VIEWS is reached; then the oldest are dropped first.
    DV2  Messages called DELIVERED were acknowledged. Messages called MISSED are outside everything that any
         incarnation of the subscriber can have received, provided that it shared its views with archives and
         that silent members had stopped; or an incarnation left the feed and reported that it had not finished
         them. All others are UNCERTAIN. `incarnation_history` explains how this is
         known.
    """

    def __init__(self, records: Iterable[ArchiveRecord] = ()) -> None:
        self.view_records: dict[ViewId, ViewRecord] = {}
        self.stability: dict[ViewId, ViewStability] = {}
        self.stability_checksums: dict[ViewId, int] = {}
        """Checksums of the delivery bounds: two archives compare them to find bounds that differ."""
        self.acknowledgements: dict[MemberId, AcknowledgementRecord] = {}
        self._history: IncarnationHistory | None = None
        self._status_cache: dict[tuple[str, MemberId | None], DeliveryStatus] = {}
        for record in records:
            self.add(record)

    def add(self, record: ArchiveRecord) -> bool:
        """Add a record; return whether it was new."""
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
            case ViewStability(view_id, bound):
                known = self.stability.get(view_id)
                merged = bound if known is None else _merge_bounds(known.delivery_bound, bound)
                if known is not None and known.delivery_bound == merged:
                    return False
                self.stability[view_id] = ViewStability(view_id, merged)
                self.stability_checksums[view_id] = crc32(merged.to_text().encode())
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

    def knows(self, name: str) -> bool:
        """Return whether there is a record of an incarnation of this name."""
        if self._get_history().incarnations(name):
            return True
        return any(member.name == name for member in self.acknowledgements)

    def views_of(self, member: MemberId) -> list[View]:
        """Return the views that this member was in, oldest first, without those it was only invited to."""
        known = [
            self.view_records[id_]
            for id_ in self._get_history().incarnations(member.name).get(member, ())
        ]
        return [record.view for record in known if not record.provisional]

    def last_acknowledged(self, name: str, excluded: MemberId | None = None) -> Vector:
        """Return the last vector that the name has acknowledged: it may have missed everything after it, and
        its holes."""
        acks = [ack for m, ack in self.acknowledgements.items() if m.name == name and m != excluded]
        return max(acks, key=lambda ack: ack.view_id).vector if acks else Vector()

    def delivery_status(self, name: str, excluded: MemberId | None = None) -> "DeliveryStatus":
        """Return which messages this subscriber has received, ignoring the incarnation `excluded`."""
        found = self._status_cache.get((name, excluded))
        if found is None:
            found = self._status_cache[name, excluded] = self._compute_status(name, excluded)
        return found

    def _compute_status(self, name: str, excluded: MemberId | None) -> "DeliveryStatus":
        history = self._get_history()
        acks = {
            m: ack for m, ack in self.acknowledgements.items() if m.name == name and m != excluded
        }
        certain: list[Interval] = [(ack.start, ack.vector) for ack in acks.values()]
        uncertain = list(history.unseen_intervals())
        for member in dict.fromkeys((*history.incarnations(name), *acks)):
            ack = acks.get(member)
            if member == excluded or (ack is not None and ack.is_final):
                continue
            last = ack.view_id.number if ack is not None else 0
            uncertain.append((_uncertain_start(ack), history.delivery_bound(member, last)))
        return DeliveryStatus(certain, uncertain)

    def _get_history(self) -> IncarnationHistory:
        if self._history is None:
            self._history = IncarnationHistory(self.view_records, self.stability)
        return self._history


class DeliveryStatus:
    """Which messages one subscriber has received, by ranges of sequences."""

    def __init__(self, certain: list[Interval], uncertain: list[Interval]) -> None:
        self._certain = certain
        self._uncertain = uncertain

    def split(self, publisher: bytes, first: int, last: int) -> list[tuple[int, int, Certainty]]:
        """Split first..last into ranges of equal certainty."""
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
        """Return an upper bound of the messages that earlier incarnations received; None if it is not known
        yet."""
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
    """Return a number that grows with each acknowledgement of one incarnation.

    A vector that advances by one counts 4 if the message was delivered, and 2 if it was skipped and is a hole;
    a hole that is filled counts 2. The final acknowledgement of the same vector counts 1 more.
    """
    vector = ack.vector
    holes = sum(high - low + 1 for spans in vector.holes.values() for low, high in spans)
    return 2 * (2 * sum(vector.values()) - holes) + ack.is_final


def _uncertain_start(ack: AcknowledgementRecord | None) -> Vector:
    """Return the vector behind which, and in whose holes, messages are uncertain.

    An incarnation may have received two kinds of messages without acknowledging them: those after its last
    acknowledgement, and those in holes that it started with, because a recovery may have filled them. A hole
    that arose later is left out of the result: its messages were skipped, so the subscriber cannot have them.
    """
    if ack is None:
        return Vector()
    start_holes = ack.start.holes
    holes = {
        publisher: [
            each for span in spans for each in clip_spans(start_holes.get(publisher, ()), *span)
        ]
        for publisher, spans in ack.vector.holes.items()
    }
    return Vector(ack.vector, holes)


def _merge_bounds(one: Vector, other: Vector) -> Vector:
    """Merge the bounds of two archives per publisher: the higher one is the safer one, but any is better than
    UNBOUNDED."""
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
