"""Which numbers of one sender were settled, as ranges.

SE1  A number that was added is known for good.
SE2  There are no more ranges than `gaps`: where there would be, the lowest gap is taken for settled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

GAPS: Final = 4_096
"""As many as a transport may leave unsettled: one that is held back while others are taken makes a gap."""


class Settled:
    """Numbers from 1 up, as ranges: those up to `floor`, and `starts[i]` to `ends[i]`."""

    __slots__ = ("_gaps", "ends", "floor", "starts")

    def __init__(self, gaps: int = GAPS) -> None:
        self._gaps = gaps
        self.floor = 0
        self.starts: list[int] = []
        self.ends: list[int] = []

    @classmethod
    def of(cls, floor: int, starts: list[int], ends: list[int]) -> Settled:
        """As `state` gave it."""
        settled = cls()
        settled.floor, settled.starts, settled.ends = floor, list(starts), list(ends)
        return settled

    def state(self) -> tuple[int, list[int], list[int]]:
        return self.floor, list(self.starts), list(self.ends)

    def __contains__(self, number: int) -> bool:
        if number <= self.floor:
            return True
        if not self.starts or number > self.ends[-1]:  # beyond all that came, as nearly always
            return False
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number <= self.ends[at]

    @property
    def ranges(self) -> int:
        return len(self.starts)

    def add(self, number: int) -> None:
        starts, ends = self.starts, self.ends
        if not starts:
            if number == self.floor + 1:  # the next one, as nearly always
                self.floor = number
                return
        elif number == ends[-1] + 1:
            ends[-1] = number  # the next one, of a sender who began before we did
            return
        if number in self:
            return
        at = bisect_left(starts, number)
        joins_left = at > 0 and ends[at - 1] == number - 1
        joins_right = at < len(starts) and starts[at] == number + 1
        if joins_left and joins_right:
            ends[at - 1] = ends[at]
            del starts[at], ends[at]
        elif joins_left:
            ends[at - 1] = number
        elif joins_right:
            starts[at] = number
        else:
            starts.insert(at, number)
            ends.insert(at, number)
        if starts[0] == self.floor + 1 or len(starts) > self._gaps:
            self.floor = ends[0]
            del starts[0], ends[0]
