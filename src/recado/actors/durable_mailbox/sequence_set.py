"""The settled sequence numbers of one sender, as ranges. Used to drop messages that are redelivered.

A number is settled when its message was processed, and another copy of it must be dropped. Numbers usually
arrive in order, so the set is the range from 1 to `floor`. A gap begins a new range above the floor. Compaction
bounds memory: it raises the floor over the lowest gaps, as if their numbers were settled. Numbers below the new
floor whose messages may still arrive are kept apart in `excluded`, and are not in the set.

SQ1  A number that was added stays in the set.
SQ2  `add` reports when there are more than `ranges_max` ranges; if `compact` could not get to half of `ranges_max`,
     only when there are `ranges_max // 2` more. `compact` reduces them to at most that half: it first fills gaps
     with the numbers that were settled elsewhere (by another SequenceSet for the same sender), then treats the
     lowest gaps as settled. It does not close gaps above `up_to`, where numbers may still arrive; so there may be
     more ranges until they have arrived.
SQ3  `compact` excludes the `unsettled` numbers that are below the new floor and not in the set. An excluded
     number stays so until it is added, or settled elsewhere. Of the numbers that earlier compactions have
     excluded, only the highest `ranges_max` are kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

RANGES_MAX: Final = 4_096
"""A sender numbers all its messages to a node, and durable mailboxes see only some of them. So there are gaps
where no message is missing, and their number would grow as long as the sender lives."""

Range: TypeAlias = tuple[int, int]
"""The first and the last number."""


class SequenceRanges(msgspec.Struct, array_like=True, frozen=True):
    """A sequence set as a record of the journal."""

    floor: int
    starts: list[int]
    ends: list[int]
    excluded: list[int] = []  # missing in old journals


class SequenceSet:
    """Contains the numbers from 1 to `floor` except the `excluded` ones, and those from `starts[i]` to
    `ends[i]`."""

    __slots__ = ("_ranges_limit", "_ranges_max", "ends", "excluded", "floor", "starts")

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        self._ranges_max = ranges_max
        self._ranges_limit = ranges_max  # the number of ranges at which `add` asks for compaction
        self.floor = 0
        self.excluded: set[int] = set()
        self.starts: list[int] = []
        self.ends: list[int] = []

    @classmethod
    def from_ranges(cls, ranges: SequenceRanges, ranges_max: int = RANGES_MAX) -> SequenceSet:
        """Create a set from the result of `to_ranges`."""
        settled = cls(ranges_max)
        settled.floor, settled.excluded = ranges.floor, set(ranges.excluded)
        settled.starts, settled.ends = list(ranges.starts), list(ranges.ends)
        return settled

    def to_ranges(self) -> SequenceRanges:
        return SequenceRanges(self.floor, list(self.starts), list(self.ends), sorted(self.excluded))

    def __contains__(self, number: int) -> bool:
        if number <= self.floor:
            return number not in self.excluded
        if not self.starts or number > self.ends[-1]:  # the usual case
            return False
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number <= self.ends[at]

    @property
    def range_count(self) -> int:
        return len(self.starts)

    def settled_ranges(self) -> list[Range]:
        """Return the ranges, lowest first. The excluded numbers lie within the first one."""
        first = [(1, self.floor)] if self.floor else []
        return [*first, *zip(self.starts, self.ends, strict=True)]

    def add(self, number: int) -> bool:
        """Add a number. Returns True if there are too many ranges now: then call `compact` (SQ2)."""
        starts, ends = self.starts, self.ends
        if not starts:
            if number == self.floor + 1:  # the next number: the usual case
                self.floor = number
                return False
        elif number == ends[-1] + 1:
            ends[-1] = number  # the next number of a sender that started before this node
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
        """Add a range that has numbers above the floor, and merge it with those that it touches."""
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
        """Reduce the number of ranges to half of `ranges_max` (SQ2).

        `settled` are ranges, lowest first, of numbers that were settled elsewhere. The `unsettled` numbers may
        still arrive, though they may lie within these ranges; no other numbers up to `up_to` can still arrive.
        """
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
        """Assert, in tests, that ranges are in order and do not touch, and that excluded numbers are below
        them."""
        bounds = [self.floor]
        for first, last in zip(self.starts, self.ends, strict=True):
            bounds += (first - 1, last)
            assert first <= last
        assert all(low < high for low, high in zip(bounds[::2], bounds[1::2], strict=False))
        assert all(0 < number <= self.floor for number in self.excluded)


def _is_within(ranges: Sequence[Range], number: int) -> bool:
    at = bisect_right(ranges, number, key=itemgetter(0)) - 1
    return at >= 0 and number <= ranges[at][1]
