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

from recado.actors.durable_mailbox.sequence_set import RANGES_MAX, SequenceSet

MAX_INCARNATIONS: Final = 65_536
MAX_PENDING_COUNT: Final = 65_536


class FrameStatus(Enum):
    NEW = auto()
    PENDING = auto()  # it is here, and not yet settled
    SETTLED = auto()


NEW: Final = FrameStatus.NEW  # which is said for each frame


class SenderHistory(SequenceSet):
    """Those of one sender: which were settled, and which are being processed."""

    __slots__ = ("pending",)

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        super().__init__(ranges_max)
        self.pending: set[int] = set()

    def status_of(self, number: int) -> FrameStatus:
        """It has come: what is known of it."""
        pending = self.pending
        if not pending and not self.starts and number > self.floor:  # beyond all, as nearly always
            return NEW
        if number in pending:
            return FrameStatus.PENDING
        if number in self:
            return FrameStatus.SETTLED
        return FrameStatus.PENDING if len(pending) >= MAX_PENDING_COUNT else NEW

    def settle(self, number: int) -> None:
        if number == self.floor + 1 and not self.pending and not self.starts:  # in order, likewise
            self.floor = number
            return
        if self.pending:
            self.pending.discard(number)
        if self.add(number):
            self.compact(self.ends[-1], unsettled=self.pending)

    def highest(self) -> int:
        """The highest that came, to a node that is given its frames in order."""
        highest = self.ends[-1] if self.ends else self.floor
        return max(highest, max(self.pending, default=0))

    def unsettled(self) -> set[int]:
        """What came, and may come again."""
        return self.pending | self.excluded


class Deduplicator:
    """What is known of every sender. The caller has made sure that frames are authentic."""

    def __init__(self, incarnations: int = MAX_INCARNATIONS, gaps: int = RANGES_MAX) -> None:
        self._max_incarnations = incarnations
        self._max_gaps = gaps
        self._histories: OrderedDict[bytes, SenderHistory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._histories)

    def accept_once(self, incarnation: bytes, sequence: int) -> bool:
        """A frame has come that is settled at once: whether it is new."""
        history = self._histories.get(incarnation)
        if history is None or len(self._histories) > self._max_incarnations // 2:
            history = self.history_of(incarnation)
        if sequence == history.floor + 1 and not history.pending and not history.starts:
            history.floor = sequence  # the next one, as nearly always
            return True
        if sequence in history or sequence in history.pending:
            return False
        history.settle(sequence)
        return True

    def mark_pending(self, incarnation: bytes, sequence: int) -> None:
        """It is NEW, and not settled at once: the caller owes a `settle` or a `forget`."""
        self.history_of(incarnation).pending.add(sequence)

    def release(self, incarnation: bytes, sequence: int) -> None:
        """It was not processed, and may come again."""
        history = self._histories.get(incarnation)
        if history is not None:
            history.pending.discard(sequence)

    def received_from(self, incarnation: bytes) -> SenderHistory | None:
        """What is known of one sender, if anything is."""
        return self._histories.get(incarnation)

    def history_of(self, incarnation: bytes) -> SenderHistory:
        """What is known of one sender; it is remembered from now on."""
        histories = self._histories
        history = histories.get(incarnation)
        if history is None:
            history = histories[incarnation] = SenderHistory(self._max_gaps)
            if len(histories) > self._max_incarnations:
                histories.popitem(last=False)
        elif len(histories) > self._max_incarnations // 2:  # until then the order does not matter
            histories.move_to_end(incarnation)
        return history
