"""Which numbers of one sender were settled, as ranges.

SE1  A number that was added is known for good.
SE2  When `add` says that there are more ranges than `gaps`, `narrow` leaves no more than half of that: what was
     settled elsewhere fills gaps, and if that is not enough the lowest gaps are taken for settled. But none
     above `upto`: what is unsettled there may still have to come, and until it has there may be more.
SE3  What `narrow` is told to be unsettled does not become known by it: it is `held`, until it is added, or is
     settled elsewhere. What was held before, and is neither, stays so: the highest `gaps` of these.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

GAPS: Final = 4_096
"""A sender counts all that it sends to a node, and durable mailboxes see only what is for them. So there are
gaps where nothing is missing, and while the sender lives they would only become more."""

Range: TypeAlias = tuple[int, int]
"""The first and the last."""


class Ranges(msgspec.Struct, array_like=True, frozen=True):
    """What is known, to be written down."""

    floor: int
    starts: list[int]
    ends: list[int]
    held: list[int] = []  # old journals do not have it


class Settled:
    """Numbers from 1 up, as ranges: those up to `floor` but for the `held`, and `starts[i]` to `ends[i]`."""

    __slots__ = ("_gaps", "_most", "ends", "floor", "held", "starts")

    def __init__(self, gaps: int = GAPS) -> None:
        self._gaps = gaps
        self._most = gaps  # ranges, until it is narrowed
        self.floor = 0
        self.held: set[int] = set()
        self.starts: list[int] = []
        self.ends: list[int] = []

    @classmethod
    def of(cls, ranges: Ranges, gaps: int = GAPS) -> Settled:
        """As `state` gave it."""
        settled = cls(gaps)
        settled.floor, settled.held = ranges.floor, set(ranges.held)
        settled.starts, settled.ends = list(ranges.starts), list(ranges.ends)
        return settled

    def state(self) -> Ranges:
        return Ranges(self.floor, list(self.starts), list(self.ends), sorted(self.held))

    def __contains__(self, number: int) -> bool:
        if number <= self.floor:
            return number not in self.held
        if not self.starts or number > self.ends[-1]:  # beyond all that came, as nearly always
            return False
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number <= self.ends[at]

    @property
    def ranges(self) -> int:
        return len(self.starts)

    def known(self) -> list[Range]:
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
            return len(starts) > self._most
        if number <= self.floor:
            self.held.discard(number)
            return False
        self._cover(number, number)
        return len(starts) > self._most

    def _cover(self, first: int, last: int) -> None:
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

    def narrow(
        self, upto: int, settled: Sequence[Range] = (), unsettled: Iterable[int] = ()
    ) -> None:
        """Have half as many ranges as there may be. Of numbers that did not come here others know that they are
        settled, as ranges, lowest first. The `unsettled` ones are not, though they may be within these, and up
        to `upto` they are all that may still come."""
        missing = {number for number in unsettled if number not in self}
        self.held = {number for number in self.held if not _is_within(settled, number)}
        for first, last in settled:
            if last > self.floor:
                self._cover(first, last)
        half = self._gaps // 2
        surplus = min(len(self.starts) - half, bisect_right(self.starts, upto + 1))
        if surplus > 0:
            self.floor = self.ends[surplus - 1]
            del self.starts[:surplus], self.ends[:surplus]
        self._most = max(self._gaps, len(self.starts) + half)
        older = sorted(self.held - missing)[-self._gaps :]
        self.held = {*older, *(number for number in missing if number <= self.floor)}

    def check(self) -> None:
        """For tests: ranges are in order, and do not touch; what is held is below them."""
        bounds = [self.floor]
        for first, last in zip(self.starts, self.ends, strict=True):
            bounds += (first - 1, last)
            assert first <= last
        assert all(low < high for low, high in zip(bounds[::2], bounds[1::2], strict=False))
        assert all(0 < number <= self.floor for number in self.held)


def _is_within(ranges: Sequence[Range], number: int) -> bool:
    at = bisect_right(ranges, number, key=itemgetter(0)) - 1
    return at >= 0 and number <= ranges[at][1]
