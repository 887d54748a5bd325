"""Deduplication: which frames of each sender were settled, so that none is processed twice.

A broker redelivers unsettled frames, possibly in another order; an attacker may replay a recorded frame. Both
are frames that were received before. Only the redelivered one was not settled here.

RDD1  A settled (incarnation, sequence) is not processed again as long as its incarnation is remembered.
RDD2  A frame that came and was not settled is accepted when it comes again, after `release`.
RDD3  While a frame is being processed, further copies of it are `PENDING` and not processed.
RDD4  Memory is bounded. Of the incarnations, the one silent for longest is forgotten. Of the gaps in one
     incarnation's sequence numbers, the lowest are treated as settled when there are too many, except for
     frames that came and were not settled. A sender uses each number once, so gaps are few: frames for which it
     had no space, and frames that never arrived.
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
    PENDING = auto()  # being processed, not settled yet
    SETTLED = auto()


NEW: Final = FrameStatus.NEW  # returned for nearly every frame


class SenderHistory(SequenceSet):
    """The settled sequence numbers of one incarnation, and those being processed."""

    __slots__ = ("pending",)

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        super().__init__(ranges_max)
        self.pending: set[int] = set()

    def status_of(self, number: int) -> FrameStatus:
        pending = self.pending
        if not pending and not self.starts and number > self.floor:  # the usual case: in order
            return NEW
        if number in pending:
            return FrameStatus.PENDING
        if number in self:
            return FrameStatus.SETTLED
        # Too many pending frames: handled as a copy of a pending one, it stays unsettled and is redelivered.
        return FrameStatus.PENDING if len(pending) >= MAX_PENDING_COUNT else NEW

    def settle(self, number: int) -> None:
        if number == self.floor + 1 and not self.pending and not self.starts:  # the usual case
            self.floor = number
            return
        if self.pending:
            self.pending.discard(number)
        if self.add(number):
            self.compact(self.ends[-1], unsettled=self.pending)

    def highest(self) -> int:
        """Return the highest number that is settled or being processed."""
        highest = self.ends[-1] if self.ends else self.floor
        return max(highest, max(self.pending, default=0))

    def unsettled(self) -> set[int]:
        """Return the numbers that were received and may be redelivered."""
        return self.pending | self.excluded


class Deduplicator:
    """The histories of all senders. Only authentic frames may be recorded."""

    def __init__(
        self, max_incarnations: int = MAX_INCARNATIONS, ranges_max: int = RANGES_MAX
    ) -> None:
        self._max_incarnations = max_incarnations
        self._ranges_max = ranges_max
        self._histories: OrderedDict[bytes, SenderHistory] = OrderedDict()

    def __len__(self) -> int:
        return len(self._histories)

    def accept_once(self, incarnation: bytes, sequence: int) -> bool:
        """Settle a frame at once. Returns False if it is a duplicate."""
        history = self._histories.get(incarnation)
        if history is None or len(self._histories) > self._max_incarnations // 2:
            history = self.history_of(incarnation)
        if sequence == history.floor + 1 and not history.pending and not history.starts:
            history.floor = sequence  # the usual case: in order
            return True
        if sequence in history or sequence in history.pending:
            return False
        history.settle(sequence)
        return True

    def mark_pending(self, incarnation: bytes, sequence: int) -> None:
        """Record a NEW frame that will be settled later: the caller owes a `settle` or a `release`."""
        self.history_of(incarnation).pending.add(sequence)

    def release(self, incarnation: bytes, sequence: int) -> None:
        """Forget a pending frame that was not processed: it may come again."""
        history = self._histories.get(incarnation)
        if history is not None:
            history.pending.discard(sequence)

    def received_from(self, incarnation: bytes) -> SenderHistory | None:
        """Return the history of a sender, None if nothing was received from it."""
        return self._histories.get(incarnation)

    def history_of(self, incarnation: bytes) -> SenderHistory:
        """Return the history of a sender, creating it if necessary."""
        histories = self._histories
        history = histories.get(incarnation)
        if history is None:
            history = histories[incarnation] = SenderHistory(self._ranges_max)
            if len(histories) > self._max_incarnations:
                histories.popitem(last=False)
        elif len(histories) > self._max_incarnations // 2:  # below that, no LRU order is needed
            histories.move_to_end(incarnation)
        return history
