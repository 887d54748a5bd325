"""Which frames were settled: so that none is processed twice, and none that was not is refused.

A broker gives again what was not settled, in another order if need be; somebody who wrote down a frame may
send it again. Both are frames that came before. They differ in that the first was not settled here.

R1  A settled (incarnation, sequence) is refused as long as its incarnation is remembered.
R2  One that came and was not settled is not refused when it comes again, once the first is let go (`forget`).
R3  While one is being processed, a second copy is refused for now: it is `PENDING`.
R4  Memory is bounded: by incarnations, of which the longest silent is forgotten, and by the gaps of each: where
    there are too many, the lowest is taken for settled.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from enum import Enum, auto
from typing import Final

INCARNATIONS: Final = 65_536
GAPS: Final = 1_024
PENDING: Final = 65_536


class Seen(Enum):
    NEW = auto()
    PENDING = auto()  # it is here, and not yet settled
    SETTLED = auto()


class Settled:
    """Numbers from 1 up, as ranges: those up to `floor`, and `starts[i]` to `ends[i]`."""

    __slots__ = ("_gaps", "ends", "floor", "pending", "starts")

    def __init__(self, gaps: int = GAPS) -> None:
        self._gaps = gaps
        self.floor = 0
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.pending: set[int] = set()

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

    def look(self, number: int) -> Seen:
        """It has come: what is known of it."""
        if number in self:
            return Seen.SETTLED
        if self.pending and (number in self.pending or len(self.pending) >= PENDING):
            return Seen.PENDING
        return Seen.NEW

    def settle(self, number: int) -> None:
        if self.pending:
            self.pending.discard(number)
        self.add(number)

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


class Replay:
    """What is known of every sender. The caller has made sure that frames are authentic."""

    def __init__(self, incarnations: int = INCARNATIONS, gaps: int = GAPS) -> None:
        self._most = incarnations
        self._gaps = gaps
        self._known: OrderedDict[bytes, Settled] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def once(self, incarnation: bytes, sequence: int) -> bool:
        """A frame has come that is settled at once: whether it is new."""
        settled = self._known.get(incarnation)
        if settled is None or len(self._known) > self._most // 2:
            settled = self.of(incarnation)
        if sequence == settled.floor + 1 and not settled.pending and not settled.starts:
            settled.floor = sequence  # the next one, as nearly always
            return True
        if sequence in settled or sequence in settled.pending:
            return False
        settled.add(sequence)
        return True

    def pend(self, incarnation: bytes, sequence: int) -> None:
        """It is NEW, and not settled at once: the caller owes a `settle` or a `forget`."""
        self.of(incarnation).pending.add(sequence)

    def forget(self, incarnation: bytes, sequence: int) -> None:
        """It was not processed, and may come again."""
        settled = self._known.get(incarnation)
        if settled is not None:
            settled.pending.discard(sequence)

    def of(self, incarnation: bytes) -> Settled:
        """What is known of one sender; it is remembered from now on."""
        known = self._known
        settled = known.get(incarnation)
        if settled is None:
            settled = known[incarnation] = Settled(self._gaps)
            if len(known) > self._most:
                known.popitem(last=False)
        elif len(known) > self._most // 2:  # until then the order does not matter
            known.move_to_end(incarnation)
        return settled
