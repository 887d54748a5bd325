"""Which numbers of one sender were settled, as ranges.

SE1  A number that was added is known for good.
SE2  When `add` says that there are more ranges than `gaps`, `compact` leaves no more than half of that: what was
     settled elsewhere fills gaps, and if that is not enough the lowest gaps are taken for settled. But none
     above `upto`: what is unsettled there may still have to come, and until it has there may be more.
SE3  What `compact` is told to be unsettled does not become known by it: it is `held`, until it is added, or is
     settled elsewhere. What was held before, and is neither, stays so: the highest `gaps` of these.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

RANGES_MAX: Final = 4_096
"""A sender counts all that it sends to a node, and durable mailboxes see only what is for them. So there are
gaps where nothing is missing, and while the sender lives they would only become more."""

Range: TypeAlias = tuple[int, int]
"""The first and the last."""


class SequenceRanges(msgspec.Struct, array_like=True, frozen=True):
    """What is known, to be written down."""

    floor: int
    starts: list[int]
    ends: list[int]
    excluded: list[int] = []  # old journals do not have it


class SequenceSet:
    """Numbers from 1 up, as ranges: those up to `floor` but for the `held`, and `starts[i]` to `ends[i]`."""

    __slots__ = ("_ranges_limit", "_ranges_max", "ends", "excluded", "floor", "starts")

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        self._ranges_max = ranges_max
        self._ranges_limit = ranges_max  # ranges, until it is narrowed
        self.floor = 0
        self.excluded: set[int] = set()
        self.starts: list[int] = []
        self.ends: list[int] = []

    @classmethod
    def from_ranges(cls, ranges: SequenceRanges, ranges_max: int = RANGES_MAX) -> SequenceSet:
        """As `state` gave it."""
        settled = cls(ranges_max)
        settled.floor, settled.excluded = ranges.floor, set(ranges.excluded)
        settled.starts, settled.ends = list(ranges.starts), list(ranges.ends)
        return settled

    def to_ranges(self) -> SequenceRanges:
        return SequenceRanges(self.floor, list(self.starts), list(self.ends), sorted(self.excluded))

    def __contains__(self, number: int) -> bool:
        if number <= self.floor:
            return number not in self.excluded
        if not self.starts or number > self.ends[-1]:  # beyond all that came, as nearly always
            return False
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number <= self.ends[at]

    @property
    def range_count(self) -> int:
        return len(self.starts)

    def settled_ranges(self) -> list[Range]:
        """Lowest first; what is held is within the first one."""
        first = [(1, self.floor)] if self.floor else []
        return [*first, *zip(self.starts, self.ends, strict=True)]

    def add(self, number: int) -> bool:
        """Whether there are too many ranges now, and it has to be narrowed."""
        starts, ends = self.starts, self.ends
        if not starts:
            if number == self.floor + 1:  # the next one, as nearly always
                self.floor = number
                return False
        elif number == ends[-1] + 1:
            ends[-1] = number  # the next one, of a sender who began before we did
            return False
        elif number > ends[-1]:
            starts.append(number)
            ends.append(number)
            return len(starts) > self._ranges_limit
        if number <= self.floor:
            self.excluded.discard(number)
            return False
        self._add_range(number, number)
        return len(starts) > self._ranges_limit

    def _add_range(self, first: int, last: int) -> None:
        """These are settled, and there are some above the floor. What they touch becomes one with them."""
        starts, ends = self.starts, self.ends
        begin, end = bisect_left(ends, first - 1), bisect_right(starts, last + 1)
        if begin < end:
            first, last = min(first, starts[begin]), max(last, ends[end - 1])
        if first <= self.floor + 1:
            self.floor = last
            del starts[:end], ends[:end]
        else:
            starts[begin:end], ends[begin:end] = [first], [last]

    def compact(
        self, up_to: int, settled: Sequence[Range] = (), unsettled: Iterable[int] = ()
    ) -> None:
        """Have half as many ranges as there may be. Of numbers that did not come here others know that they are
        settled, as ranges, lowest first. The `unsettled` ones are not, though they may be within these, and up
        to `upto` they are all that may still come."""
        missing = {number for number in unsettled if number not in self}
        self.excluded = {number for number in self.excluded if not _is_within(settled, number)}
        for first, last in settled:
            if last > self.floor:
                self._add_range(first, last)
        half = self._ranges_max // 2
        surplus = min(len(self.starts) - half, bisect_right(self.starts, up_to + 1))
        if surplus > 0:
            self.floor = self.ends[surplus - 1]
            del self.starts[:surplus], self.ends[:surplus]
        self._ranges_limit = max(self._ranges_max, len(self.starts) + half)
        still_excluded = sorted(self.excluded - missing)[-self._ranges_max :]
        self.excluded = {*still_excluded, *(number for number in missing if number <= self.floor)}

    def check(self) -> None:
        """For tests: ranges are in order, and do not touch; what is held is below them."""
        bounds = [self.floor]
        for first, last in zip(self.starts, self.ends, strict=True):
            bounds += (first - 1, last)
            assert first <= last
        assert all(low < high for low, high in zip(bounds[::2], bounds[1::2], strict=False))
        assert all(0 < number <= self.floor for number in self.excluded)


def _is_within(ranges: Sequence[Range], number: int) -> bool:
    at = bisect_right(ranges, number, key=itemgetter(0)) - 1
    return at >= 0 and number <= ranges[at][1]
