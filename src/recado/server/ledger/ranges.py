"""Sets of places, kept as ranges: what is settled, and what was delivered.

RA1  Ranges are in order, not empty, and neither overlap nor touch.

Messages are settled about in the order of their places, so a set of millions is a few ranges.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

NO_PLACE = 1 << 64


class RangeSet:
    """Places in ranges [start, end)."""

    __slots__ = ("_ends", "_starts", "size")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        # Arrays, for in the worst case (every other message settled) a list took 80 bytes a range, and not 16.
        self._starts = array("Q")
        self._ends = array("Q")
        self.size = 0
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """The number of ranges; `size` is that of places."""
        return len(self._starts)

    @property
    def floor(self) -> int:
        """The first place that is not in the set."""
        return self._ends[0] if self._starts and not self._starts[0] else 0

    def add(self, start: int, end: int) -> None:
        starts, ends = self._starts, self._ends
        low = bisect_left(ends, start)  # the first range that it overlaps or touches
        if low == len(starts) or end < starts[low]:
            starts.insert(low, start)
            ends.insert(low, end)
            self.size += end - start
            return
        first, last = starts[low], ends[low]
        if start >= first and (low + 1 == len(starts) or end < starts[low + 1]):
            if end > last:  # the usual case: what follows a range
                ends[low] = end
                self.size += end - last
            return
        high = bisect_right(starts, end)  # the first range behind it
        start, end = min(start, first), max(end, ends[high - 1])
        self.size += end - start - sum(ends[low:high]) + sum(starts[low:high])
        starts[low:high] = array("Q", (start,))
        ends[low:high] = array("Q", (end,))

    def remove(self, start: int, end: int) -> None:
        starts, ends = self._starts, self._ends
        low = bisect_right(ends, start)
        high = bisect_left(starts, end)
        if low >= high:
            return
        first, last = starts[low], ends[high - 1]
        rest = [(first, start)] * (first < start) + [(end, last)] * (end < last)
        self.size += sum(starts[low:high]) - sum(ends[low:high])
        self.size += sum(after - before for before, after in rest)
        starts[low:high] = array("Q", [before for before, _ in rest])
        ends[low:high] = array("Q", [after for _, after in rest])

    def forget_below(self, place: int) -> None:
        at = bisect_right(self._ends, place)
        self.size -= sum(self._ends[:at]) - sum(self._starts[:at])
        del self._starts[:at], self._ends[:at]
        if self._starts and self._starts[0] < place:
            self.size -= place - self._starts[0]
            self._starts[0] = place

    def count(self, start: int, end: int) -> int:
        """How many places of [start, end) are in the set."""
        return end - start - sum(high - low for low, high in self.missing(start, end))

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of [start, end) that are not in the set."""
        starts, ends = self._starts, self._ends
        at = bisect_right(ends, start)
        parts = []
        while start < end:
            if at == len(starts) or end <= starts[at]:
                parts.append((start, end))
                break
            if start < starts[at]:
                parts.append((start, starts[at]))
            start = ends[at]
            at += 1
        return parts

    def covers(self, start: int, end: int) -> bool:
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and end <= self._ends[at]

    def change_after(self, place: int) -> int:
        """The next place that is in the set if this one is not, or the other way round."""
        at = bisect_right(self._ends, place)
        if at == len(self._starts):
            return NO_PLACE
        return self._ends[at] if self._starts[at] <= place else self._starts[at]

    def split(self, start: int, end: int) -> list[tuple[int, int, bool]]:
        """[start, end) in parts that are wholly in the set, or not at all, and which."""
        parts: list[tuple[int, int, bool]] = []
        for low, high in self.missing(start, end):
            if start < low:
                parts.append((start, low, True))
            parts.append((low, high, False))
            start = high
        if start < end:
            parts.append((start, end, True))
        return parts


def merged(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Spans (first, count, step) as ranges, in order, joined where they touch.

    Consumers that share a queue have every k-th place each; together they are whole ranges again.
    """
    ranges = []
    singles: list[int] = []
    for first, count, step in spans:
        if step == 1 or count == 1:
            ranges.append((first, first + count))
        else:
            singles += range(first, first + count * step, step)
    if singles:
        singles.sort()
        ranges += _ranges_of(singles)
    if len(ranges) < 2:
        return ranges
    ranges.sort()
    joined = []
    start, end = ranges[0]
    for low, high in ranges:
        if low <= end:
            end = max(end, high)
        else:
            joined.append((start, end))
            start, end = low, high
    joined.append((start, end))
    return joined


def _ranges_of(places: list[int]) -> Iterator[tuple[int, int]]:
    start = end = places[0]
    for place in places:
        if place > end:
            yield start, end
            start = place
        end = place + 1
    yield start, end


def covers(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether [start, end) is in one of the ranges, which are in order."""
    at = bisect_right(ranges, start, key=itemgetter(0)) - 1
    return at >= 0 and end <= ranges[at][1]


def clipped(ranges: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """The ranges as far as they are below a place."""
    return [(start, min(end, limit)) for start, end in ranges if start < limit]
