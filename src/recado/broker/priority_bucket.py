"""What is ready in a queue, in order of place. A queue has one lane, or one per priority.

L1  Messages leave in order of place.
L2  A message that returns stands before every one that has not left yet: it left from the front.
L3  What is shelved stands behind all that is in memory, and all that comes later is shelved behind it.

So returned runs wait in a heap of their own, and never have to be inserted among the others.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from .run import Run


class PriorityBucket:
    __slots__ = ("_fresh", "_page_in", "_requeued", "memory_bytes", "paged_out_count")

    def __init__(self, page_in: Callable[[], list[Run]] | None = None) -> None:
        """`page_in` brings the next runs that were shelved; without it nothing is, nor weighed."""
        self._page_in = page_in
        self._fresh: deque[Run] = deque()
        self._requeued: list[tuple[int, Run]] = []
        self.paged_out_count = 0
        """Messages that only the keeper has."""
        self.memory_bytes = 0
        """The memory that those here take, about."""

    def append(self, run: Run) -> None:
        if self._page_in is not None:
            self.memory_bytes += run.memory_bytes()
        if self._fresh:
            last = self._fresh[-1]
            if run.can_extend(last):
                last.payloads += (
                    run.payloads[run.taken_count :] if run.taken_count else run.payloads
                )
                return
        if (
            not run.owns_payloads and len(run) < 16
        ):  # a short list of one's own can take in what follows
            run.payloads = run.payloads[run.taken_count :]
            run.taken_count = 0
            run.owns_payloads = True
        self._fresh.append(run)

    def requeue(self, run: Run) -> None:
        """Return messages to their places; `run` has no gaps (step 1)."""
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
        """Up to `count` messages from the front, all of one run; there must be one."""
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
        """Those in memory."""
        yield from self._fresh
        yield from self.requeued_runs()

    @property
    def fresh_positions(self) -> tuple[int, int]:
        """The first place of the runs in memory that never left, and the number of places up to the last.

        No message in between has left (L2).
        """
        if not self._fresh:
            return 0, 0
        first, last = self._fresh[0], self._fresh[-1]
        return first.first_position, last.first_position + len(last) - first.first_position

    def requeued_runs(self) -> Iterator[Run]:
        return (run for _, run in self._requeued)

    def detach(self) -> None:
        """The queue is deleted, and nothing more is fetched: do not refer to it any more."""
        self._page_in = None

    def clear(self) -> "tuple[deque[Run], list[tuple[int, Run]]]":
        """Let go of everything; gives the runs that were in memory, to be freed in time."""
        emptied = self._fresh, self._requeued
        self._fresh, self._requeued = deque(), []
        self.paged_out_count = self.memory_bytes = 0
        return emptied
