"""When which queue has something to do: for each at most one time."""

from heapq import heapify, heappop, heappush
from itertools import count

from .queue import Queue


class Alarms:
    def __init__(self) -> None:
        self._times: dict[Queue, int] = {}
        self._heap: list[tuple[int, int, Queue]] = []  # with entries that no longer count
        self._number = count()

    def set(self, queue: Queue, at: int) -> None:
        self._times[queue] = at
        heappush(self._heap, (at, next(self._number), queue))
        self._tidy()

    def drop(self, queue: Queue) -> None:
        self._times.pop(queue, None)
        self._tidy()

    def next(self) -> int | None:
        """The earliest time; perhaps one that no longer counts, but then none that does is earlier."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: int) -> Queue | None:
        """A queue whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            at, _, queue = heappop(self._heap)
            if self._times.get(queue) == at:
                del self._times[queue]
                return queue
        return None

    def _tidy(self) -> None:
        """Queues that came and went must not be kept until a time long after."""
        if len(self._heap) > 64 + 2 * len(self._times):
            self._heap = [(at, next(self._number), queue) for queue, at in self._times.items()]
            heapify(self._heap)
