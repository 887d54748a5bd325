"""The ready messages of one priority of a queue, in order of position. A queue has one bucket per priority.

BKT1  Messages leave in order of position.
BKT2  A requeued message precedes every message that has not left yet, because it had left from the front.
BKT3  Paged-out messages follow all messages in memory; while there are any, new messages are paged out
      behind them.

Because of BKT2, requeued runs wait in a heap of their own, and the *fresh* runs, those that have not been
delivered yet, in a deque. Only to be read or removed by position, requeued runs are merged into the deque.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

from .run import COPIED_PAYLOADS_MAX, Run, first_position


class ReadLimits(NamedTuple):
    """How much to read at once; at least one message is read."""

    message_count: int
    byte_count: int
    run_count: int


class PriorityBucket:
    __slots__ = (
        "_fresh",
        "_page_in",
        "_requeued",
        "has_gaps",
        "memory_bytes",
        "paged_out_bytes",
        "paged_out_count",
    )

    def __init__(self, page_in: Callable[[], list[Run]] | None = None) -> None:
        """`page_in` loads the next paged-out runs.

        Without it nothing is paged out, and memory is not measured.
        """
        self._page_in = page_in
        self._fresh: deque[Run] = deque()
        self._requeued: list[tuple[int, Run]] = []
        self.paged_out_count = 0
        """The number of messages that only the store has."""
        self.paged_out_bytes = 0
        """The approximate memory that they would take."""
        self.memory_bytes = 0
        """The approximate memory of the messages here."""
        self.has_gaps = False
        """Whether messages between the fresh runs may be unsettled deliveries."""

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
        """Return messages to their positions; `run` has no gaps."""
        run.stride = 1  # a single message may have come from a run with a larger stride
        if self._page_in is not None:
            self.memory_bytes += run.memory_bytes()
        heappush(self._requeued, (run.first_position, run))

    @property
    def _is_requeued_first(self) -> bool:
        """Whether the first message is a requeued one; some of them may be among the fresh runs."""
        requeued, fresh = self._requeued, self._fresh
        return bool(requeued) and not (fresh and fresh[0].first_position < requeued[0][0])

    @property
    def front(self) -> Run | None:
        if self._is_requeued_first:
            return self._requeued[0][1]
        if self.paged_out_count and not self._fresh:
            self._load_paged_out()
        return self._fresh[0] if self._fresh else None

    def take(self, count: int) -> Run:
        """Remove and return up to `count` messages of the front run; the bucket must not be empty."""
        if self._requeued and self._is_requeued_first:
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

    def pop(self) -> Run | None:
        """Remove and return the first run in memory, None if there is none."""
        if self._is_requeued_first:
            run = heappop(self._requeued)[1]
        elif self._fresh:
            run = self._fresh.popleft()
        else:
            return None
        if run.taken_count:
            run.drop_taken()
        if self._page_in is not None:
            self.memory_bytes -= run.memory_bytes()
        return run

    def insert(self, run: Run) -> None:
        """Add messages in memory at their position."""
        if self._fresh and run.first_position < self._fresh[-1].end_position:
            self.requeue(run)
        else:
            self.append(run)

    def count_paged_out(self, run: Run) -> None:
        """Count messages that were handed to the store instead of this bucket."""
        self.paged_out_count += len(run)
        self.paged_out_bytes += run.memory_bytes()

    def uncount_paged_out(self, run: Run) -> None:
        """Discount messages that the store has handed back or settled."""
        self.paged_out_count -= len(run)
        # After a restart, the size is an estimate.
        rest = self.paged_out_bytes - run.memory_bytes()
        self.paged_out_bytes = max(rest, 0) if self.paged_out_count else 0

    def _load_paged_out(self) -> None:
        assert self._page_in is not None
        for run in self._page_in():
            self.uncount_paged_out(run)
            self.append(run)

    def runs(self) -> Iterator[Run]:
        """Iterate over the runs in memory."""
        yield from self._fresh
        yield from self.requeued_runs()

    # ── reading and removing by position ──────────────────────────────────────────────────────────────

    def read(self, position: int, limits: ReadLimits) -> list[Run] | None:
        """Return copies of some messages in memory, from `position` on; None if there are none.

        An empty list means that the next call may find some. Messages that are requeued meanwhile, behind
        `position`, are not read.
        """
        self._merge_requeued(limits.run_count)
        fresh, requeued = self._fresh, self._requeued
        start = self._index_of(position)
        if start == len(fresh) and not requeued:
            return None
        runs: list[Run] = []
        count_left, bytes_left = limits.message_count, limits.byte_count
        fresh.rotate(-start)  # indexing the middle of a long deque is slower
        for run in islice(fresh, min(limits.run_count, len(fresh) - start)):
            if requeued and run.first_position > requeued[0][0]:
                break
            low = max(run.first_position, position)
            part = run.copy_range(low, min(run.end_position, low + count_left))
            size = part.memory_bytes()
            if size > bytes_left:
                fitting = bytes_left * len(part) // size or not runs
                part = part.copy_range(low, low + fitting)
            if part.payloads:
                runs.append(part)
            count_left, bytes_left = count_left - len(part), bytes_left - size
            if count_left <= 0 or bytes_left <= 0:
                break
        fresh.rotate(start)
        return runs

    def _merge_requeued(self, run_count: int) -> None:
        """Move up to `run_count` requeued runs among the fresh ones, to their positions."""
        requeued, fresh = self._requeued, self._fresh
        if not requeued:
            return
        self.has_gaps = True
        runs = [heappop(requeued)[1] for _ in range(min(run_count, len(requeued)))]
        start = bisect_right(fresh, runs[0].first_position, key=first_position)
        if start == bisect_right(fresh, runs[-1].first_position, key=first_position):
            fresh.rotate(-start)
            fresh.extendleft(reversed(runs))
            fresh.rotate(start)
        else:
            for run in runs:
                fresh.insert(bisect_right(fresh, run.first_position, key=first_position), run)

    def merge_requeued(self, run_count: int) -> bool:
        """Move up to `run_count` requeued runs among the fresh ones; return whether there were any."""
        had_requeued = bool(self._requeued)
        self._merge_requeued(run_count)
        return had_requeued

    def find(self, position: int, count: int) -> list[Run]:
        """Return the first fresh runs with messages from `position` on. They are not copies."""
        fresh = self._fresh
        start = self._index_of(position)
        fresh.rotate(-start)  # indexing the middle of a long deque is slower
        found = list(islice(fresh, min(count, len(fresh) - start)))
        fresh.rotate(start)
        return found

    def _index_of(self, position: int) -> int:
        """Return the index of the first fresh run with messages from `position` on, or after the last one."""
        fresh = self._fresh
        start = bisect_right(fresh, position, key=first_position) - 1
        if start < 0 or fresh[start].end_position <= position:
            start += 1
        return start

    def remove(self, removed: Sequence[Run]) -> None:
        """Remove messages that `read` has just returned: parts of its runs, in order."""
        fresh = self._fresh
        start = bisect_right(fresh, removed[0].first_position, key=first_position) - 1
        fresh.rotate(-start)
        kept: list[Run] = []
        at = 0
        while at < len(removed):
            run = fresh.popleft()
            position, end = run.first_position, run.end_position
            while at < len(removed) and removed[at].first_position < end:
                if position < removed[at].first_position:
                    kept.append(run.copy_range(position, removed[at].first_position))
                position = removed[at].end_position
                at += 1
            if position == run.first_position:
                kept.append(run)
            elif position < end:
                kept.append(run.copy_range(position, end))
        fresh.extendleft(reversed(kept))
        fresh.rotate(start)
        if self._page_in is not None:
            self.memory_bytes -= sum(run.memory_bytes() for run in removed)

    @property
    def fresh_positions(self) -> tuple[int, int]:
        """The first position of the fresh runs, and the number of positions up to the last.

        Messages in between have not left (BKT2) or are settled, unless `has_gaps`.
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
        self.paged_out_count = self.paged_out_bytes = self.memory_bytes = 0
        self.has_gaps = False
        return emptied
