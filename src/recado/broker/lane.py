"""What is ready in a queue, in order of place. A queue has one lane, or one per priority.

L1  Messages leave in order of place.
L2  A message that returns stands before every one that has not left yet: it left from the front.

So returned runs wait in a heap of their own, and never have to be inserted among the others.
"""

from collections import deque
from heapq import heappop, heappush

from .run import Run


class Lane:
    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[Run] = deque()
        self._returned: list[tuple[int, Run]] = []

    def append(self, run: Run) -> None:
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
        heappush(self._returned, (run.first, run))

    @property
    def head(self) -> Run | None:
        if self._returned:
            return self._returned[0][1]
        return self._fresh[0] if self._fresh else None

    def take(self, count: int) -> Run:
        """Up to `count` messages from the front, all of one run; there must be one."""
        if self._returned:
            run = heappop(self._returned)[1]
            part = run.take(count)
            if part is not run:
                heappush(self._returned, (run.first, run))
            return part
        run = self._fresh[0]
        part = run.take(count)
        if part is run:
            self._fresh.popleft()
        return part

    def clear(self) -> None:
        self._fresh.clear()
        self._returned.clear()
