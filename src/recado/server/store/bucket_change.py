"""A change of buckets: the paged-out messages of a queue get other priorities, while they are paged in and out.

RBK1  `buckets` has the paged-out messages that have been counted: those before the cursor, and those that were
      paged out since the beginning.
RBK2  `taken` of a bucket has the live messages from `first` on that are in memory or delivered. A message enters
      it when it is counted, if it is not paged out then, or later when it leaves the paged-out ones.

The journal has the priority of each message as it was published; a queue limits it. So nothing is written: the
messages are only counted by priority, which means reading all of their records.
"""

from collections.abc import Iterable

from recado.broker.run import Run
from recado.journal.journal import Journal

from .paged_out import read_priorities
from .pending_run import PagedOutBucket
from .queue_index import QueueIndex


class BucketChange:
    def __init__(self, index: QueueIndex, max_priority: int) -> None:
        self.buckets: dict[int, PagedOutBucket] = {}
        """By the new priority; installed when all messages have been counted."""
        self.end = index.end_position
        self.first = min(
            (each.next_position for each in index.paged_out.values()), default=self.end
        )
        self._index = index
        self._max_priority = max_priority
        self._cursor = PagedOutBucket(self.first)

    @property
    def is_complete(self) -> bool:
        return self._cursor.next_position >= self.end

    def count_some(self, journal: Journal) -> int:
        """Count the next messages; return the cost."""
        found, cost = read_priorities(journal, self._index, self._cursor, self.end)
        for priority, live, paged_out in found:
            bucket = self.bucket(priority)
            for start, end in live:
                bucket.taken.add(start, end)
            for start, end in paged_out:
                bucket.taken.remove(start, end)
                bucket.stored_count += end - start
        return cost

    def bucket(self, priority: int) -> PagedOutBucket:
        priority = min(priority, self._max_priority)
        bucket = self.buckets.get(priority)
        if bucket is None:
            bucket = self.buckets[priority] = PagedOutBucket(self.first)
        return bucket

    def add(self, run: Run) -> None:
        """Count messages that are being paged out: new ones, or ones that were in memory."""
        bucket = self.bucket(run.traits.priority)
        bucket.stored_count += len(run)
        bucket.taken.remove(run.first_position, run.end_position)

    def remove(self, runs: Iterable[Run]) -> None:
        """Discount messages that have left the paged-out ones, if they have been counted."""
        for run in runs:
            low, high = run.first_position, run.end_position
            for start, end in (
                (low, min(high, self._cursor.next_position, self.end)),
                (max(low, self.end), high),
            ):
                if start < end:
                    bucket = self.bucket(run.traits.priority)
                    bucket.stored_count -= end - start
                    bucket.taken.add(start, end)

    def restart(self, end_position: int) -> None:
        """Begin anew: no message is paged out any more, and all up to now have left."""
        self.buckets.clear()
        self.first = self.end = end_position
        self._cursor = PagedOutBucket(end_position)
