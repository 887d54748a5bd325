"""Timers of queues: at most one due time for each queue, in a heap."""

from heapq import heapify, heappop, heappush
from itertools import count

from .queue import Queue


class QueueTimers:
    def __init__(self) -> None:
        self._due_times: dict[Queue, int] = {}
        self._heap: list[tuple[int, int, Queue]] = []  # includes outdated entries
        self._sequence = count()

    def set(self, queue: Queue, due: int) -> None:
        self._due_times[queue] = due
        heappush(self._heap, (due, next(self._sequence), queue))
        self._compact()

    def cancel(self, queue: Queue) -> None:
        self._due_times.pop(queue, None)
        self._compact()

    def next_due(self) -> int | None:
        """Return the earliest due time. It may be outdated, but no valid one is earlier."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: int) -> Queue | None:
        """Remove and return a queue whose timer is due, or None."""
        while self._heap and self._heap[0][0] <= now:
            at, _, queue = heappop(self._heap)
            if self._due_times.get(queue) == at:
                del self._due_times[queue]
                return queue
        return None

    def _compact(self) -> None:
        """Rebuild the heap if most entries are outdated, so that deleted queues do not stay in memory."""
        if len(self._heap) > 64 + 2 * len(self._due_times):
            self._heap = [
                (at, next(self._sequence), queue) for queue, at in self._due_times.items()
            ]
            heapify(self._heap)
