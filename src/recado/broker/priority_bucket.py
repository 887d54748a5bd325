"""The ready messages of one priority of a queue, in order of position. A queue has one bucket per priority.

BKT1  Messages leave in order of position.
BKT2  A requeued message precedes every message that has not left yet, because it had left from the front.
BKT3  Paged-out messages follow all messages in memory; while there are any, new messages are paged out
      behind them.

Because of BKT2, requeued runs wait in a heap of their own. They are never inserted among the *fresh* runs,
those that have not been delivered yet.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from .run import COPIED_PAYLOADS_MAX, Run


class PriorityBucket:
    __slots__ = ("_fresh", "_page_in", "_requeued", "memory_bytes", "paged_out_count")

    def __init__(self, page_in: Callable[[], list[Run]] | None = None) -> None:
        """`page_in` loads the next paged-out runs.

        Without it nothing is paged out, and memory is not measured.
        """
        self._page_in = page_in
        self._fresh: deque[Run] = deque()
        self._requeued: list[tuple[int, Run]] = []
        self.paged_out_count = 0
        """The number of messages that only the store has."""
        self.memory_bytes = 0
        """The approximate memory of the messages here."""

    def append(self, run: Run) -> None:
        if self._page_in is not None:
            self.memory_bytes += run.memory_bytes()
        if self._fresh:
            last = self._fresh[-1]
            if run.can_follow(last):
                last.extend(run)
                return
        if not run.owns_payloads and len(run) < COPIED_PAYLOADS_MAX:
            run.drop_taken()  # which copies the list, so that the following runs can extend it
        self._fresh.append(run)

    def requeue(self, run: Run) -> None:
        """Return messages to their positions; `run` has no gaps (stride 1)."""
        if self._page_in is not None:
            self.memory_bytes += run.memory_bytes()
        heappush(self._requeued, (run.first_position, run))

    @property
    def front(self) -> Run | None:
        if self._requeued:
            return self._requeued[0][1]
        if self.paged_out_count and not self._fresh:
            self._load_paged_out()
        return self._fresh[0] if self._fresh else None

    def take(self, count: int) -> Run:
        """Remove and return up to `count` messages of the front run; the bucket must not be empty."""
        if self._requeued:
            run = heappop(self._requeued)[1]
            part = run.take(count)
            if part is not run:
                heappush(self._requeued, (run.first_position, run))
        else:
            if self.paged_out_count and not self._fresh:
                self._load_paged_out()
            run = self._fresh[0]
            part = run.take(count)
            if part is run:
                self._fresh.popleft()
        if self._page_in is not None:
            self.memory_bytes -= part.memory_bytes()
        return part

    def _load_paged_out(self) -> None:
        assert self._page_in is not None
        for run in self._page_in():
            self.paged_out_count -= len(run)
            self.append(run)

    def runs(self) -> Iterator[Run]:
        """Iterate over the runs in memory."""
        yield from self._fresh
        yield from self.requeued_runs()

    @property
    def fresh_positions(self) -> tuple[int, int]:
        """The first position of the fresh runs, and the number of positions up to the last.

        No message in between has left (BKT2).
        """
        if not self._fresh:
            return 0, 0
        first, last = self._fresh[0], self._fresh[-1]
        return first.first_position, last.first_position + len(last) - first.first_position

    def requeued_runs(self) -> Iterator[Run]:
        return (run for _, run in self._requeued)

    def detach(self) -> None:
        """Release the reference to the deleted queue; nothing will be paged in any more."""
        self._page_in = None

    def clear(self) -> "tuple[deque[Run], list[tuple[int, Run]]]":
        """Remove everything; return the runs in memory, to be freed in portions."""
        emptied = self._fresh, self._requeued
        self._fresh, self._requeued = deque(), []
        self.paged_out_count = self.memory_bytes = 0
        return emptied
