"""Sets of positions, stored as ranges: the settled messages of a queue, and the delivered ones.

Messages are settled roughly in the order of their positions, so a set of millions is a few ranges.

RA1  Ranges are ordered and not empty, and neither overlap nor touch.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

END_POSITION = 1 << 64
CHUNK_RANGES_MAX = 1024  # 16 KiB; adding a range moves half of it on average


class _RangeChunk:
    """Consecutive ranges [starts[i], ends[i])."""

    __slots__ = ("ends", "starts")

    def __init__(self, starts: "array[int]", ends: "array[int]") -> None:
        # Arrays take 16 bytes a range; lists took 80 in the worst case, when every other message is settled.
        self.starts = starts
        self.ends = ends

    @property
    def size(self) -> int:
        return sum(self.ends) - sum(self.starts)

    def add(self, start: int, end: int) -> int:
        """Add a range; return the number of positions that are new."""
        starts, ends = self.starts, self.ends
        low = bisect_left(ends, start)  # the first range that it overlaps or touches
        if low == len(starts) or end < starts[low]:
            starts.insert(low, start)
            ends.insert(low, end)
            return end - start
        first, last = starts[low], ends[low]
        if start >= first and (low + 1 == len(starts) or end < starts[low + 1]):
            if end > last:  # the usual case: it continues a range
                ends[low] = end
                return end - last
            return 0
        high = bisect_right(starts, end)  # the first range after it
        start, end = min(start, first), max(end, ends[high - 1])
        added = end - start - sum(ends[low:high]) + sum(starts[low:high])
        starts[low:high] = array("Q", (start,))
        ends[low:high] = array("Q", (end,))
        return added

    def remove(self, start: int, end: int) -> int:
        """Remove a range; return the number of positions that were in the set."""
        starts, ends = self.starts, self.ends
        low = bisect_right(ends, start)
        high = bisect_left(starts, end)
        if low >= high:
            return 0
        first, last = starts[low], ends[high - 1]
        rest = [(first, start)] * (first < start) + [(end, last)] * (end < last)
        removed = sum(ends[low:high]) - sum(starts[low:high])
        removed -= sum(after - before for before, after in rest)
        starts[low:high] = array("Q", [before for before, _ in rest])
        ends[low:high] = array("Q", [after for _, after in rest])
        return removed

    def split(self) -> "_RangeChunk":
        """Remove the second half of the ranges, and return it."""
        at = len(self.starts) // 2
        rest = _RangeChunk(self.starts[at:], self.ends[at:])
        del self.starts[at:], self.ends[at:]
        return rest


class RangeSet:
    """A set of positions, stored as ranges [start, end).

    Ranges are in chunks of limited length, so that adding one moves few others. In a single array, settling
    every other of 100,000 messages and then the rest took 15 µs for each.
    """

    __slots__ = ("_chunks", "_last_ends", "size")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._chunks: list[_RangeChunk] = []  # none of them empty
        self._last_ends: list[int] = []  # of each chunk, for bisection
        self.size = 0
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for chunk in self._chunks:
            yield from zip(chunk.starts, chunk.ends, strict=True)

    def __len__(self) -> int:
        """Return the number of ranges; `size` is the number of positions."""
        return sum(len(chunk.starts) for chunk in self._chunks)

    @property
    def first_missing(self) -> int:
        """The smallest position that is not in the set."""
        first = self._chunks[0] if self._chunks else None
        return first.ends[0] if first is not None and not first.starts[0] else 0

    @property
    def end(self) -> int:
        """The position after the largest in the set."""
        return self._last_ends[-1] if self._last_ends else 0

    def ranges_from(self, position: int, count: int) -> list[tuple[int, int]]:
        """Return the first `count` ranges that end after a position."""
        return list(islice(self._ranges_after(position), count))

    def add(self, start: int, end: int) -> None:
        chunks, last_ends = self._chunks, self._last_ends
        # The first chunk with a range that the new one overlaps or touches.
        at = bisect_left(last_ends, start)
        if at == len(chunks):
            if not chunks:
                chunks.append(_RangeChunk(array("Q"), array("Q")))
                last_ends.append(0)
            at = len(chunks) - 1
        while at + 1 < len(chunks) and chunks[at + 1].starts[0] <= end:
            self._join_next(at, end)
        chunk = chunks[at]
        self.size += chunk.add(start, end)
        last_ends[at] = chunk.ends[-1]
        if len(chunk.starts) > CHUNK_RANGES_MAX:
            chunks.insert(at + 1, chunk.split())
            last_ends.insert(at, chunk.ends[-1])

    def _join_next(self, at: int, end: int) -> None:
        """Drop the next chunk if a range up to `end` covers it, else join it with this one."""
        following = self._chunks.pop(at + 1)
        if following.ends[-1] <= end:
            self.size -= following.size
            del self._last_ends[at + 1]
        else:
            self._chunks[at].starts += following.starts
            self._chunks[at].ends += following.ends
            del self._last_ends[at]

    def remove(self, start: int, end: int) -> None:
        at = bisect_right(self._last_ends, start)
        while at < len(self._chunks) and self._chunks[at].starts[0] < end:
            chunk = self._chunks[at]
            self.size -= chunk.remove(start, end)
            if chunk.starts:
                self._last_ends[at] = chunk.ends[-1]
                at += 1
            else:
                del self._chunks[at], self._last_ends[at]

    def remove_below(self, position: int) -> None:
        self.remove(0, position)

    def count(self, start: int, end: int) -> int:
        """Count the positions of [start, end) that are in the set."""
        return end - start - sum(high - low for low, high in self.missing(start, end))

    def _ranges_after(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges that end after a position."""
        at = bisect_right(self._last_ends, position)
        if at < len(self._chunks):
            chunk = self._chunks[at]
            index = bisect_right(chunk.ends, position)
            for i in range(index, len(chunk.starts)):
                yield chunk.starts[i], chunk.ends[i]
            for following in self._chunks[at + 1 :]:
                yield from zip(following.starts, following.ends, strict=True)

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that are not in the set."""
        parts = []
        for low, high in self._ranges_after(start):
            if end <= low:
                break
            if start < low:
                parts.append((start, low))
            start = high
            if end <= start:
                break
        if start < end:
            parts.append((start, end))
        return parts

    def covers(self, start: int, end: int) -> bool:
        """Whether all of [start, end) is in the set."""
        low, high = next(self._ranges_after(start), (END_POSITION, END_POSITION))
        return low <= start and end <= high

    def next_change(self, position: int) -> int:
        """Return the next position that is in the set if this one is not, or the other way round."""
        low, high = next(self._ranges_after(position), (END_POSITION, END_POSITION))
        return high if low <= position else low

    def split(self, start: int, end: int) -> list[tuple[int, int, bool]]:
        """Split [start, end) into parts (start, end, inside) that are in the set completely or not at all."""
        parts: list[tuple[int, int, bool]] = []
        for low, high in self.missing(start, end):
            if start < low:
                parts.append((start, low, True))
            parts.append((low, high, False))
            start = high
        if start < end:
            parts.append((start, end, True))
        return parts


def merge_spans(spans: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Return spans (first, count, stride) as ordered ranges, joined where they touch.

    Consumers that share a queue settle every k-th position each; together these are whole ranges again.
    """
    ranges = []
    singles: list[int] = []
    for first, count, stride in spans:
        if stride == 1 or count == 1:
            ranges.append((first, first + count))
        else:
            singles += range(first, first + count * stride, stride)
    if singles:
        singles.sort()
        ranges += _group_positions(singles)
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


def _group_positions(positions: list[int]) -> Iterator[tuple[int, int]]:
    start = end = positions[0]
    for position in positions:
        if position > end:
            yield start, end
            start = position
        end = position + 1
    yield start, end


def is_covered(ranges: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether one of the ordered ranges contains [start, end)."""
    at = bisect_right(ranges, start, key=itemgetter(0)) - 1
    return at >= 0 and end <= ranges[at][1]


def clip_ranges(ranges: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """Return the parts of the ranges below `limit`."""
    return [(start, min(end, limit)) for start, end in ranges if start < limit]
