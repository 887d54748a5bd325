"""One queue's account: where its messages are stored, which are settled, and how often they were delivered.

A1  Every place below `stored` is in `settled`, or its message is live: in a stretch, and to be had.
A2  A stretch is in one segment; within it positions grow with places. Stretches are in order of place and do
    not overlap.
A3  `live` of a stretch counts its places that are not settled; that of a page, those of all stretches in it.

Nothing here is kept for each message. What is stored side by side is one extent: 10 M messages of 100 bytes
that came one by one are 29 of them, and 0.1 MB.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from recado.broker.queue import Queue

from .pending import PagedOutBucket
from .ranges import RangeSet
from .segments import SegmentStats

# A record joins the extent before it if what lies between is no more than this: to read over others' records
# takes time, an extent 12 bytes.
_GAP_BYTES = 1024
_GAP_FACTOR = 4
_GAP_MAX_BYTES = 64 << 10

_DELIVERED_RANGES_MAX = 1000  # before those of settled messages are sorted out
_DELIVERIES_MAX = 256  # that are told apart


class SegmentExtents:
    """Messages of one queue in one segment, by place: an extent begins at starts[i] with the place firsts[i].

    Starts and ends are offsets in the segment, firsts count from `origin`.
    """

    __slots__ = ("end", "ends", "first", "firsts", "live_count", "origin", "starts", "stats")

    def __init__(self, first: int, page: SegmentStats) -> None:
        self.stats = page
        self.first = first
        self.end = first
        self.live_count = 0
        self.origin = first
        self.starts = array("I")
        self.ends = array("I")
        self.firsts = array("I")

    def extend(self, first: int, end: int, at: int, size: int) -> None:
        ends = self.ends
        slack = min(_GAP_BYTES + _GAP_FACTOR * size, _GAP_MAX_BYTES)
        if ends and at - ends[-1] <= slack:
            ends[-1] = at + size
        else:
            self.starts.append(at)
            ends.append(at + size)
            self.firsts.append(first - self.origin)
        self.end = end

    def ranges_from(self, place: int) -> Iterator[tuple[int, int]]:
        """From the one that has this place on, as positions [start, end) in the journal."""
        base = self.stats.base
        for at in range(self._extent_index(place), len(self.starts)):
            yield base + self.starts[at], base + self.ends[at]

    def _extent_index(self, place: int) -> int:
        return max(bisect_right(self.firsts, place - self.origin) - 1, 0)

    def split(self, place: int) -> "SegmentExtents":
        """What is from a place on, apart from the rest, which stays here."""
        behind = SegmentExtents(self.origin, self.stats)
        at = self._extent_index(place)
        behind.first, behind.end = place, self.end
        behind.starts, behind.ends = self.starts[at:], self.ends[at:]
        behind.firsts = self.firsts[at:]
        self.end = place
        del self.starts[at + 1 :], self.ends[at + 1 :], self.firsts[at + 1 :]
        return behind

    def trim(self, first: int) -> None:
        """What is before that place is not here any more."""
        self.first = first
        at = self._extent_index(first)
        if at > 64 and at * 2 > len(self.starts):  # now and then: it moves all the others
            del self.starts[:at], self.ends[:at], self.firsts[:at]


class QueueIndex:
    __slots__ = (
        "_newest_extents",
        "deleted",
        "delivered",
        "delivered_spans",
        "durable",
        "end_position",
        "extents",
        "may_expire",
        "paged_out",
        "queue",
        "queue_id",
        "settled",
        "settled_spans",
        "stored_end",
    )

    def __init__(self, number: int, queue: Queue | None, *, lasting: bool) -> None:
        self.queue_id = number
        self.queue = queue
        self.durable = lasting
        self.deleted = False
        self.may_expire = False
        """Some messages may expire; known only after a restart."""
        self.end_position = 0
        """The place behind the last that was entered, stored or not."""
        self.stored_end = 0
        """The place behind the last that was ever stored."""
        self.settled = RangeSet()
        self.delivered: list[RangeSet] = []
        """Places that were delivered once or more, twice or more, …"""
        self.extents: list[SegmentExtents] = []
        self._newest_extents: SegmentExtents | None = None  # that fresh messages are added to
        self.paged_out: dict[int, PagedOutBucket] = {}
        self.settled_spans: list[tuple[int, int, int]] = []
        """Spans that were settled in this turn."""
        self.delivered_spans: list[tuple[int, int, int]] = []
        """Spans that were delivered in this turn."""

    @property
    def max_priority(self) -> int:
        assert self.queue is not None
        return self.queue.declared_settings.max_priority or 0

    @property
    def counts_deliveries(self) -> bool:
        """Whether it matters how often a message was delivered, and not only if."""
        return self.queue is None or self.queue.declared_settings.queue_type == "quorum"

    # ── where messages are ────────────────────────────────────────────────────────────────────────────

    def add_stored(self, first: int, count: int, at: int, size: int, page: SegmentStats) -> None:
        """New messages were stored at an offset of a segment."""
        end = first + count
        if first != self.stored_end:
            self.settled.add(self.stored_end, first)  # these were never stored (A1)
        self.stored_end = end
        stretch = self._newest_extents
        if (
            stretch is None
            or stretch.stats is not page
            or not (stretch.live_count or self._is_newest_small)
        ):
            stretch = self._begin_extents(first, page)
        stretch.live_count += count
        page.live_count += count
        page.stored_count += count
        stretch.extend(first, end, at, size)

    @property
    def _is_recovering(self) -> bool:
        """Whether it is just being found in the journal, after a restart."""
        return self.queue is None

    @property
    def _is_newest_small(self) -> bool:
        return self._newest_extents is not None and len(self._newest_extents.starts) < 2

    def _begin_extents(self, first: int, page: SegmentStats) -> SegmentExtents:
        if self.extents and not self.extents[-1].live_count and not self._is_recovering:
            self.extents.pop()
        self._newest_extents = SegmentExtents(first, page)
        self.extents.append(self._newest_extents)
        return self._newest_extents

    def find_extents(self, place: int) -> int:
        """The index of the last stretch that begins no later than this place; 0 if there is none."""
        if len(self.extents) == 1:
            return 0
        return max(bisect_right(self.extents, place, key=_first_position) - 1, 0)

    def add_moved(self, first: int, end: int, at: int, size: int, page: SegmentStats) -> None:
        """Messages, all of them live, are stored again, elsewhere."""
        stretches, count = self.extents, end - first
        index = bisect_right(stretches, first, key=_first_position)
        if index and first < stretches[index - 1].end:
            index = self._remove_moved(index - 1, first, end)
        before = stretches[index - 1] if index else None
        if before is None or before.stats is not page or before is self._newest_extents:
            before = SegmentExtents(first, page)
            stretches.insert(index, before)
        before.live_count += count
        page.live_count += count
        page.stored_count += count
        before.extend(first, end, at, size)

    def _remove_moved(self, index: int, first: int, end: int) -> int:
        """Messages leave a stretch; gives the index of what is behind them.

        They leave in order of place, so what is before them in the stretch has left too, or is settled. Only
        after a restart it may not: then a stretch may reach over what was in segments that are no more.
        While the journal is read, such messages leave a stretch though they were never counted in it: what
        is live there is not known before all is read.
        """
        stretches = self.extents
        old = stretches[index]
        old.live_count -= end - first
        old.stats.live_count -= end - first
        from_front = old.first == first or self.settled.covers(old.first, first)
        if end < old.end and (old.live_count or self._is_recovering):
            if from_front:
                old.trim(end)
                return index
            behind = old.split(end)
            behind.live_count = behind.end - end - self.settled.count(end, behind.end)
            old.live_count -= behind.live_count
            stretches.insert(index + 1, behind)
            if old is self._newest_extents:
                self._newest_extents = behind
        elif old is self._newest_extents:
            self._newest_extents = None
        if from_front:
            del stretches[index]
            return index
        old.end = first
        return index + 1

    # ── what happens to them ──────────────────────────────────────────────────────────────────────────

    def settle(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Messages are gone; some may be already."""
        for start, end in ranges:
            for low, high in self.settled.missing(start, end):
                self.settled.add(low, high)
                self._release(low, high)

    def _release(self, start: int, end: int) -> None:
        """Places that were live are not any more."""
        stretches = self.extents
        at = self.find_extents(start)
        while start < end:
            stretch = stretches[at]
            count = min(end, stretch.end) - start
            start += count
            stretch.live_count -= count
            stretch.stats.live_count -= count
            if not stretch.live_count and stretch is not self._newest_extents:
                del stretches[at]
            else:
                at += 1

    def add_delivered(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Messages are out with somebody, perhaps not for the first time."""
        again = list(ranges)
        for level in range(_DELIVERIES_MAX if self.counts_deliveries else 1):
            if not again:
                break
            if level == len(self.delivered):
                self.delivered.append(RangeSet())
            known, told, again = self.delivered[level], again, []
            for start, end in told:  # one after the other: the same may come twice
                again += [(low, high) for low, high, inside in known.split(start, end) if inside]
                known.add(start, end)
            if len(known) > _DELIVERED_RANGES_MAX:
                self.prune_delivered()

    def prune_delivered(self) -> None:
        """Nobody asks for it once all before a place is settled."""
        for known in self.delivered:
            known.remove_below(self.settled.first_missing)

    def split_by_deliveries(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """[start, end) in parts that were delivered equally often, and how often."""
        parts = [(start, end, 0)]
        for known in self.delivered:
            parts = [
                (low, high, times + inside)
                for start, end, times in parts
                for low, high, inside in known.split(start, end)
            ]
        return parts

    def uniform_until(self, place: int) -> int:
        """Up to where neither settled messages come nor such that were delivered more often or less."""
        sets = (self.settled, *self.delivered)
        return min(each.next_change(place) for each in sets)

    def discard(self) -> None:
        """The queue is gone, and so is all that it had."""
        self.deleted = True
        for stretch in self.extents:
            stretch.stats.live_count -= stretch.live_count
        self.extents.clear()
        self.paged_out.clear()

    def finish_recovery(self) -> None:
        """After a restart: what is not in a stretch was lost or let go, and what is not settled is live."""
        end = 0
        for stretch in self.extents:
            if end < stretch.first:
                self.settled.add(end, stretch.first)
            end = stretch.end
        if end < self.stored_end:
            self.settled.add(end, self.stored_end)
        for stretch in self.extents:
            dead = self.settled.count(stretch.first, stretch.end)
            stretch.live_count = stretch.end - stretch.first - dead
            stretch.stats.live_count += stretch.live_count
        self.extents = [stretch for stretch in self.extents if stretch.live_count]
        self._newest_extents = None
        self.end_position = self.stored_end
        if not self.counts_deliveries:
            del self.delivered[1:]

    def check(self) -> None:
        end = 0
        for stretch in self.extents:
            assert end <= stretch.first <= stretch.end <= self.stored_end, "A2"
            assert end == stretch.first or self.settled.covers(end, stretch.first), "A1"
            dead = self.settled.count(stretch.first, stretch.end)
            assert stretch.live_count == stretch.end - stretch.first - dead, "A3"
            end = stretch.end
        assert end == self.stored_end or self.settled.covers(end, self.stored_end), "A1"


def _first_position(stretch: SegmentExtents) -> int:
    return stretch.first
