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


class Lane:
    __slots__ = ("_fetch", "_fresh", "_returned", "shelved", "weight")

    def __init__(self, fetch: Callable[[], list[Run]] | None = None) -> None:
        """`fetch` brings the next runs that were shelved; without it nothing is, nor weighed."""
        self._fetch = fetch
        self._fresh: deque[Run] = deque()
        self._returned: list[tuple[int, Run]] = []
        self.shelved = 0
        """Messages that only the keeper has."""
        self.weight = 0
        """The memory that those here take, about."""

    def append(self, run: Run) -> None:
        if self._fetch is not None:
            self.weight += run.weight()
        if self._fresh:
            last = self._fresh[-1]
            if run.follows(last):
                last.tails += run.tails[run.taken :] if run.taken else run.tails
                return
        if not run.owned and len(run) < 16:  # a short list of one's own can take in what follows
            run.tails = run.tails[run.taken :]
            run.taken = 0
            run.owned = True
        self._fresh.append(run)

    def put_back(self, run: Run) -> None:
        """Return messages to their places; `run` has no gaps (step 1)."""
        if self._fetch is not None:
            self.weight += run.weight()
        heappush(self._returned, (run.first, run))

    @property
    def head(self) -> Run | None:
        if self._returned:
            return self._returned[0][1]
        if self.shelved and not self._fresh:
            self._refill()
        return self._fresh[0] if self._fresh else None

    def take(self, count: int) -> Run:
        """Up to `count` messages from the front, all of one run; there must be one."""
        if self._returned:
            run = heappop(self._returned)[1]
            part = run.take(count)
            if part is not run:
                heappush(self._returned, (run.first, run))
        else:
            if self.shelved and not self._fresh:
                self._refill()
            run = self._fresh[0]
            part = run.take(count)
            if part is run:
                self._fresh.popleft()
        if self._fetch is not None:
            self.weight -= part.weight()
        return part

    def _refill(self) -> None:
        assert self._fetch is not None
        for run in self._fetch():
            self.shelved -= len(run)
            self.append(run)

    def runs(self) -> Iterator[Run]:
        """Those in memory."""
        yield from self._fresh
        yield from self.returned_runs()

    @property
    def fresh_places(self) -> tuple[int, int]:
        """The first place of the runs in memory that never left, and the number of places up to the last.

        No message in between has left (L2).
        """
        if not self._fresh:
            return 0, 0
        first, last = self._fresh[0], self._fresh[-1]
        return first.first, last.first + len(last) - first.first

    def returned_runs(self) -> Iterator[Run]:
        return (run for _, run in self._returned)

    def detach(self) -> None:
        """The queue is deleted, and nothing more is fetched: do not refer to it any more."""
        self._fetch = None

    def empty(self) -> "tuple[deque[Run], list[tuple[int, Run]]]":
        """Let go of everything; gives the runs that were in memory, to be freed in time."""
        emptied = self._fresh, self._returned
        self._fresh, self._returned = deque(), []
        self.shelved = self.weight = 0
        return emptied
