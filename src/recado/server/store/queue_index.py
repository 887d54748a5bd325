"""The index of one queue: where its messages are stored, which are settled, and how often they were delivered.

Messages are identified by their position in the queue. The index stores nothing per message: adjacent records
are one extent, so 10 M messages of 100 bytes that were published one by one need 29 extents and 0.1 MB.

QI1  Every position below `stored_end` is in `settled`, or its message is live: some extent contains it.
QI2  A `SegmentExtents` is in one segment, and its offsets grow with positions. Those of a queue are ordered by
     position and do not overlap.
QI3  `live_count` of a `SegmentExtents` is the number of its positions that are not settled; that of a
     `SegmentStats` is the sum over all extents in the segment.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from recado.amqp.traits import MessageTraits
from recado.broker.queue import Queue

from .pending_run import PagedOutBucket
from .ranges import RangeSet
from .segments import SegmentStats

# A record joins the extent before it if the gap between them is no larger than this: reading over records of
# other queues takes time, a further extent takes 12 bytes.
_GAP_BYTES = 1024
_GAP_FACTOR = 4  # of the record's size
_GAP_MAX_BYTES = 64 << 10

_DELIVERED_RANGES_MAX = 1000  # above this, those of settled messages are pruned
_DELIVERIES_MAX = 256  # further deliveries of a message are not counted


class SegmentExtents:
    """The messages [first, end) of one queue in one segment.

    Extent i begins at offset starts[i] of the segment, ends at ends[i], and has the positions from
    origin + firsts[i] on.
    """

    __slots__ = ("end", "ends", "first", "firsts", "live_count", "origin", "starts", "stats")

    def __init__(self, first: int, stats: SegmentStats) -> None:
        self.stats = stats
        self.first = first
        self.end = first
        self.live_count = 0
        self.origin = first
        self.starts = array("I")
        self.ends = array("I")
        self.firsts = array("I")

    def extend(self, first: int, end: int, offset: int, size: int) -> None:
        """Add the positions [first, end), stored in a record of `size` bytes."""
        ends = self.ends
        gap = min(_GAP_BYTES + _GAP_FACTOR * size, _GAP_MAX_BYTES)
        if ends and offset - ends[-1] <= gap:
            ends[-1] = offset + size
        else:
            self.starts.append(offset)
            ends.append(offset + size)
            self.firsts.append(first - self.origin)
        self.end = end

    def ranges_from(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the extent with a position and all later ones, as ranges [start, end) of the journal."""
        base = self.stats.base
        for number in range(self._extent_index(position), len(self.starts)):
            yield base + self.starts[number], base + self.ends[number]

    def _extent_index(self, position: int) -> int:
        return max(bisect_right(self.firsts, position - self.origin) - 1, 0)

    def split(self, position: int) -> "SegmentExtents":
        """Remove the positions from `position` on, and return them."""
        rest = SegmentExtents(self.origin, self.stats)
        number = self._extent_index(position)
        rest.first, rest.end = position, self.end
        rest.starts, rest.ends = self.starts[number:], self.ends[number:]
        rest.firsts = self.firsts[number:]
        self.end = position
        del self.starts[number + 1 :], self.ends[number + 1 :], self.firsts[number + 1 :]
        return rest

    def trim(self, first: int) -> None:
        """Remove the positions before `first`."""
        self.first = first
        number = self._extent_index(first)
        if number > 64 and number * 2 > len(self.starts):  # rarely, because it moves all others
            del self.starts[:number], self.ends[:number], self.firsts[:number]


class QueueIndex:
    """The state of one queue in the journal."""

    __slots__ = (
        "_newest_extents",
        "deleted",
        "delivered",
        "delivered_spans",
        "durable",
        "end_position",
        "may_expire",
        "paged_out",
        "queue",
        "queue_id",
        "segment_extents",
        "settled",
        "settled_spans",
        "stored_end",
    )

    def __init__(self, queue_id: int, queue: Queue | None, *, durable: bool) -> None:
        """`queue` is None while the index is being recovered from the journal."""
        self.queue_id = queue_id
        self.queue = queue
        self.durable = durable
        self.deleted = False
        self.may_expire = False
        """Whether some messages have an expiry; set by recovery only."""
        self.end_position = 0
        """After the last message that entered the queue, stored or not."""
        self.stored_end = 0
        """After the last message that was ever stored."""
        self.settled = RangeSet()
        self.delivered: list[RangeSet] = []
        """Positions that were delivered at least once, at least twice, …"""
        self.segment_extents: list[SegmentExtents] = []
        self._newest_extents: SegmentExtents | None = None  # where new messages are added
        self.paged_out: dict[int, PagedOutBucket] = {}
        """By priority."""
        # Spans (first position, count, stride) of this turn.
        self.settled_spans: list[tuple[int, int, int]] = []
        self.delivered_spans: list[tuple[int, int, int]] = []

    @property
    def max_priority(self) -> int:
        assert self.queue is not None
        return self.queue.declared_settings.max_priority or 0

    @property
    def counts_deliveries(self) -> bool:
        """Whether the number of deliveries matters, and not only whether there was one.

        Only quorum queues need it (x-delivery-limit). During recovery the type of the queue is not known yet,
        so deliveries are counted, and `finish_recovery` discards the counts of other queues.
        """
        return self.queue is None or self.queue.declared_settings.queue_type == "quorum"

    def is_spilled(self, traits: MessageTraits) -> bool:
        """Whether stored messages with these traits were only paged out, so that a restart forgets them."""
        return not self.durable or (self.queue is not None and not self.queue.should_store(traits))

    # ── where messages are ────────────────────────────────────────────────────────────────────────────

    def add_stored(
        self, first: int, count: int, offset: int, size: int, stats: SegmentStats
    ) -> None:
        """Add new messages, stored in a record of `size` bytes at an offset of a segment."""
        end = first + count
        if first != self.stored_end:
            self.settled.add(self.stored_end, first)  # these were never stored (QI1)
        self.stored_end = end
        extents = self._newest_extents
        if (
            extents is None
            or extents.stats is not stats
            or not (extents.live_count or self._is_newest_small)
        ):
            extents = self._begin_extents(first, stats)
        extents.live_count += count
        stats.live_count += count
        stats.stored_count += count
        extents.extend(first, end, offset, size)

    @property
    def _is_recovering(self) -> bool:
        return self.queue is None

    @property
    def _is_newest_small(self) -> bool:
        """Whether the newest extents are so few that they can be used again after all messages were settled."""
        return self._newest_extents is not None and len(self._newest_extents.starts) < 2

    def _begin_extents(self, first: int, stats: SegmentStats) -> SegmentExtents:
        """Append new extents for the next messages; remove the last ones if all their messages are settled."""
        if (
            self.segment_extents
            and not self.segment_extents[-1].live_count
            and not self._is_recovering
        ):
            self.segment_extents.pop()
        self._newest_extents = SegmentExtents(first, stats)
        self.segment_extents.append(self._newest_extents)
        return self._newest_extents

    def find_extents(self, position: int) -> int:
        """Return the index of the last extents that begin no later than `position`, or 0."""
        if len(self.segment_extents) == 1:
            return 0
        return max(bisect_right(self.segment_extents, position, key=_first_position) - 1, 0)

    def reserve(self, end: int) -> None:
        """Count all positions before `end` as stored; those that never were are settled until `add_late`."""
        if end > self.stored_end:
            self.settled.add(self.stored_end, end)
            self.stored_end = end
        self.end_position = max(self.end_position, end)

    def add_late(self, first: int, end: int, offset: int, size: int, stats: SegmentStats) -> None:
        """Add messages that are in the queue already, whether they have been stored before or not."""
        for each in self.segment_extents[self.find_extents(first) :]:
            if each.first >= end:
                break
            low, high = max(first, each.first), min(end, each.end)
            if low < high:  # live again, until they are moved out of these extents
                revived = self.settled.count(low, high)
                each.live_count += revived
                each.stats.live_count += revived
        self.settled.remove(first, end)
        self.add_moved(first, end, offset, size, stats)

    def add_moved(self, first: int, end: int, offset: int, size: int, stats: SegmentStats) -> None:
        """Move live messages: they were stored again in another segment."""
        extents = self.segment_extents
        while first < end:  # one part for each of the extents where they were
            index = bisect_right(extents, first, key=_first_position)
            part_end = end
            if index and first < extents[index - 1].end:
                part_end = min(end, extents[index - 1].end)
            elif index < len(extents):
                part_end = min(end, extents[index].first)
            self._move(index, first, part_end, offset, size, stats)
            first = part_end

    def _move(
        self, index: int, first: int, end: int, offset: int, size: int, stats: SegmentStats
    ) -> None:
        """Move messages that were in the extents before `index`, or in none."""
        extents, count = self.segment_extents, end - first
        if index and first < extents[index - 1].end:
            index = self._remove_moved(index - 1, first, end)
        before = extents[index - 1] if index else None
        if before is None or before.stats is not stats or before is self._newest_extents:
            before = SegmentExtents(first, stats)
            extents.insert(index, before)
        before.live_count += count
        stats.live_count += count
        stats.stored_count += count
        before.extend(first, end, offset, size)
        newest = self._newest_extents
        if newest is not None and newest.first < first and newest is not before:
            # These extents are after it, so new messages cannot be added to it any more.
            self._newest_extents = None
            if not newest.live_count and not self._is_recovering:
                extents.remove(newest)

    def _remove_moved(self, index: int, first: int, end: int) -> int:
        """Remove moved messages from their old extents; return the index of what follows them.

        Messages are moved in order of position, so all earlier ones in the extents were moved too, or are
        settled. Only after a restart this may not hold: then extents may span messages of segments that were
        dropped. During recovery, messages are even removed without having been counted as live, because the
        live count is known only when the whole journal was read.
        """
        extents = self.segment_extents
        old = extents[index]
        old.live_count -= end - first
        old.stats.live_count -= end - first
        from_front = old.first == first or self.settled.covers(old.first, first)
        if end < old.end and (old.live_count or self._is_recovering):
            if from_front:
                old.trim(end)
                return index
            rest = old.split(end)
            rest.live_count = rest.end - end - self.settled.count(end, rest.end)
            old.live_count -= rest.live_count
            extents.insert(index + 1, rest)
            if old is self._newest_extents:
                self._newest_extents = rest
        elif old is self._newest_extents:
            self._newest_extents = None
        if from_front:
            del extents[index]
            return index
        old.end = first
        return index + 1

    # ── settled and delivered messages ────────────────────────────────────────────────────────────────

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Mark messages as settled; some may be already."""
        for start, end in ranges:
            for low, high in self.settled.missing(start, end):
                self.settled.add(low, high)
                self._release(low, high)

    def _release(self, start: int, end: int) -> None:
        """Subtract positions from the live counts."""
        extents = self.segment_extents
        index = self.find_extents(start)
        while start < end:
            each = extents[index]
            count = min(end, each.end) - start
            start += count
            each.live_count -= count
            each.stats.live_count -= count
            if not each.live_count and each is not self._newest_extents:
                del extents[index]
            else:
                index += 1

    def add_delivered(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Count a delivery of each position, which may not be its first."""
        repeated = list(ranges)
        for level in range(_DELIVERIES_MAX if self.counts_deliveries else 1):
            if not repeated:
                break
            if level == len(self.delivered):
                self.delivered.append(RangeSet())
            known, added, repeated = self.delivered[level], repeated, []
            for start, end in added:  # one by one: the same range may come twice
                repeated += [(low, high) for low, high, inside in known.split(start, end) if inside]
                known.add(start, end)
            if len(known) > _DELIVERED_RANGES_MAX:
                self.prune_delivered()

    def prune_delivered(self) -> None:
        """Forget the deliveries of the oldest messages, up to the first that is not settled."""
        for known in self.delivered:
            known.remove_below(self.settled.first_missing)

    def split_by_deliveries(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Split [start, end) into parts (start, end, count) that were delivered equally often."""
        parts = [(start, end, 0)]
        for known in self.delivered:
            parts = [
                (low, high, times + inside)
                for start, end, times in parts
                for low, high, inside in known.split(start, end)
            ]
        return parts

    def uniform_until(self, position: int) -> int:
        """Return the first position after `position` that differs in being settled or in its deliveries."""
        sets = (self.settled, *self.delivered)
        return min(each.next_change(position) for each in sets)

    def discard(self) -> None:
        """Release all messages: the queue was deleted."""
        self.deleted = True
        for each in self.segment_extents:
            each.stats.live_count -= each.live_count
        self.segment_extents.clear()
        self.paged_out.clear()

    def finish_recovery(self) -> None:
        """After the journal was read: settle the positions in no extents, and count the live messages."""
        self.stored_end = max(self.stored_end, self.settled.end)  # see `reserve`
        end = 0
        for each in self.segment_extents:
            if end < each.first:
                self.settled.add(end, each.first)
            end = each.end
        if end < self.stored_end:
            self.settled.add(end, self.stored_end)
        for each in self.segment_extents:
            dead = self.settled.count(each.first, each.end)
            each.live_count = each.end - each.first - dead
            each.stats.live_count += each.live_count
        self.segment_extents = [each for each in self.segment_extents if each.live_count]
        self._newest_extents = None
        self.end_position = self.stored_end
        if not self.counts_deliveries:
            del self.delivered[1:]

    def check(self) -> None:
        """Assert the invariants."""
        end = 0
        for each in self.segment_extents:
            assert end <= each.first <= each.end <= self.stored_end, "QI2"
            assert end == each.first or self.settled.covers(end, each.first), "QI1"
            dead = self.settled.count(each.first, each.end)
            assert each.live_count == each.end - each.first - dead, "QI3"
            end = each.end
        assert end == self.stored_end or self.settled.covers(end, self.stored_end), "QI1"


def _first_position(extents: SegmentExtents) -> int:
    return extents.first
