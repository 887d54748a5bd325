"""Which frames were settled: so that none is processed twice, and none that was not is refused.

A broker gives again what was not settled, in another order if need be; somebody who wrote down a frame may
send it again. Both are frames that came before. They differ in that the first was not settled here.

RP1  A settled (incarnation, sequence) is refused as long as its incarnation is remembered.
RP2  One that came and was not settled is not refused when it comes again, once the first is let go (`forget`).
RP3  While one is being processed, a second copy is refused for now: it is `PENDING`.
RP4  Memory is bounded: by incarnations, of which the longest silent is forgotten, and by the gaps of each:
     where there are too many, the lowest are taken for settled, but for what in them came and was not settled.
     A sender uses each number once, so there are few: what it had no room for, what never arrived.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from typing import Final

from recado.actors.durable.settled import GAPS, Settled

INCARNATIONS: Final = 65_536
PENDING: Final = 65_536


class Standing(Enum):
    NEW = auto()
    PENDING = auto()  # it is here, and not yet settled
    SETTLED = auto()


NEW: Final = Standing.NEW  # which is said for each frame


class Sequences(Settled):
    """Those of one sender: which were settled, and which are being processed."""

    __slots__ = ("pending",)

    def __init__(self, gaps: int = GAPS) -> None:
        super().__init__(gaps)
        self.pending: set[int] = set()

    def look(self, number: int) -> Standing:
        """It has come: what is known of it."""
        pending = self.pending
        if not pending and not self.starts and number > self.floor:  # beyond all, as nearly always
            return NEW
        if number in pending:
            return Standing.PENDING
        if number in self:
            return Standing.SETTLED
        return Standing.PENDING if len(pending) >= PENDING else NEW

    def settle(self, number: int) -> None:
        if number == self.floor + 1 and not self.pending and not self.starts:  # in order, likewise
            self.floor = number
            return
        if self.pending:
            self.pending.discard(number)
        if self.add(number):
            self.narrow(self.ends[-1], unsettled=self.pending)

    def reach(self) -> int:
        """The highest that came, to a node that is given its frames in order."""
        highest = self.ends[-1] if self.ends else self.floor
        return max(highest, max(self.pending, default=0))

    def unsettled(self) -> set[int]:
        """What came, and may come again."""
        return self.pending | self.held


class Replay:
    """What is known of every sender. The caller has made sure that frames are authentic."""

    def __init__(self, incarnations: int = INCARNATIONS, gaps: int = GAPS) -> None:
        self._most = incarnations
        self._gaps = gaps
        self._known: OrderedDict[bytes, Sequences] = OrderedDict()

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
        settled.settle(sequence)
        return True

    def pend(self, incarnation: bytes, sequence: int) -> None:
        """It is NEW, and not settled at once: the caller owes a `settle` or a `forget`."""
        self.of(incarnation).pending.add(sequence)

    def forget(self, incarnation: bytes, sequence: int) -> None:
        """It was not processed, and may come again."""
        settled = self._known.get(incarnation)
        if settled is not None:
            settled.pending.discard(sequence)

    def heard(self, incarnation: bytes) -> Sequences | None:
        """What is known of one sender, if anything is."""
        return self._known.get(incarnation)

    def of(self, incarnation: bytes) -> Sequences:
        """What is known of one sender; it is remembered from now on."""
        known = self._known
        settled = known.get(incarnation)
        if settled is None:
            settled = known[incarnation] = Sequences(self._gaps)
            if len(known) > self._most:
                known.popitem(last=False)
        elif len(known) > self._most // 2:  # until then the order does not matter
            known.move_to_end(incarnation)
        return settled
