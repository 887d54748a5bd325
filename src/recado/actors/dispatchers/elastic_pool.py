"""A thread pool that adapts its size: it adds threads while its workers block, and removes idle ones.

SZ1  Once started, `threads_min` threads stay. Another one starts when a ready cell has waited for `grow_delay`
     seconds, up to `threads_max`: so the pool grows only while handlers block. A thread that is idle for
     `idle_timeout` seconds ends.
SZ2  However many cells become ready at once, one thread is woken. It runs cells while there are any, and wakes
     the next thread if there are more. So events that arrive close together need one wakeup.
SZ3  No ready cell waits while a thread is idle, unless a thread is being woken.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from .worker_threads import WorkerThreads

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell


class ElasticPool(WorkerThreads):
    def __init__(
        self,
        threads_min: int = 2,
        threads_max: int = 256,
        *,
        grow_delay: float = 0.01,
        idle_timeout: float = 5.0,
        name: str = "recado-elastic",
    ) -> None:
        """Use from `threads_min` to `threads_max` threads, and one more that checks whether to add a thread.
        `grow_delay` and `idle_timeout` are in seconds (SZ1)."""
        if not 1 <= threads_min <= threads_max:
            raise ValueError(
                f"threads_min must be from 1 to threads_max: {threads_min}, {threads_max}"
            )
        super().__init__(name)
        self._threads_min = threads_min
        self._threads_max = threads_max
        self._grow_delay = grow_delay
        self._idle_timeout = idle_timeout
        self._ready: deque[tuple[float, Cell]] = deque()  # with the time at which they became ready
        self._work_available = threading.Condition(self._lock)  # idle workers wait for it
        self._growth_check = threading.Condition(self._lock)  # the monitor thread waits for it
        self._has_monitor = False
        self._idle_count = 0
        # Whether a thread was woken or started, and has not taken a cell yet.
        self._is_waking = False
        self.worker_count = 0
        self.wakeup_count = 0
        """How often a thread was woken or started because there was work."""

    def _enqueue(self, cell: Cell) -> None:
        self._ready.append((time.monotonic(), cell))
        self._wake_worker()

    def _wake_worker(self) -> None:
        """Ensure that a thread runs the ready cells (SZ3). Call it with the lock held."""
        if self._is_waking:
            return
        if self._idle_count:
            self._is_waking = True
            self.wakeup_count += 1
            self._work_available.notify()
        elif self.worker_count < self._threads_min:
            self._start_worker()
        elif not self._has_monitor:
            self._has_monitor = True
            self._start_thread(self._monitor_loop)
        else:
            self._growth_check.notify()

    def _start_worker(self) -> None:
        self._is_waking = True
        self.wakeup_count += 1
        self.worker_count += 1
        self._start_thread(self._worker_loop)

    def _end_threads(self) -> None:
        self._work_available.notify_all()
        self._growth_check.notify()

    def _worker_loop(self) -> None:
        while (cell := self._next_cell()) is not None:
            self._run_cell(cell)
            del cell  # otherwise an idle thread would keep the cell and its actor alive

    def _next_cell(self) -> Cell | None:
        """Return the next cell to run; None if this thread should end."""
        with self._lock:
            self._is_waking = False
            deadline = time.monotonic() + self._idle_timeout
            while not self._ready:
                remaining = deadline - time.monotonic()
                if self._is_closed or (remaining <= 0 and self.worker_count > self._threads_min):
                    self.worker_count -= 1
                    return None
                self._idle_count += 1
                self._work_available.wait(remaining if remaining > 0 else None)
                self._idle_count -= 1
                self._is_waking = False
            _, cell = self._ready.popleft()
            if self._ready:
                self._wake_worker()
            return cell

    def _monitor_loop(self) -> None:
        """Start another thread when a ready cell has waited for too long (SZ1)."""
        with self._lock:
            while not self._is_closed:
                if not self._ready or self.worker_count == self._threads_max:
                    self._growth_check.wait()
                    continue
                remaining = self._ready[0][0] + self._grow_delay - time.monotonic()
                if remaining > 0:
                    self._growth_check.wait(remaining)
                elif self._is_waking or self._idle_count:
                    self._growth_check.wait(self._grow_delay)
                else:
                    self._start_worker()
