"""A pool that finds its size: as few threads as the work needs, more while they block, fewer when they idle.

SZ1  `least` threads are kept once they have begun. One more begins when a ready actor has waited for `patience`
     seconds, up to `most`: so only handlers that block make it grow. One that idles for `linger` seconds ends.
SZ2  However many actors become ready at once, one thread is woken, and it goes on with the next while there is
     one; the next thread is woken by this one. Events that come close together are one task.
SZ3  No ready actor waits while a thread sleeps, unless one is on its way.
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
        name: str = "recado-sizing",
    ) -> None:
        if not 1 <= threads_min <= threads_max:
            raise ValueError(
                f"between {threads_min} and {threads_max} threads there is nothing to choose from"
            )
        super().__init__(name)
        self._threads_min = threads_min
        self._threads_max = threads_max
        self._grow_delay = grow_delay
        self._idle_timeout = idle_timeout
        self._ready: deque[tuple[float, Cell]] = deque()  # since when
        self._work_available = threading.Condition(self._lock)  # for workers that sleep
        self._check_growth = threading.Condition(self._lock)  # for the one that watches over them
        self._has_monitor = False
        self._idle_count = 0
        self._is_waking = False
        self.worker_count = 0
        self.wakeup_count = 0
        """How often a thread was woken, or begun, because there was work."""

    def _enqueue(self, cell: Cell) -> None:
        self._ready.append((time.monotonic(), cell))
        self._wake_worker()

    def _wake_worker(self) -> None:
        """See to it that a thread comes for what is ready (SZ3). The lock is held, here and below."""
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
            self._check_growth.notify()

    def _start_worker(self) -> None:
        self._is_waking = True
        self.wakeup_count += 1
        self.worker_count += 1
        self._start_thread(self._worker_loop)

    def _wake_all(self) -> None:
        self._work_available.notify_all()
        self._check_growth.notify()

    def _worker_loop(self) -> None:
        while (cell := self._next_cell()) is not None:
            self._run_cell(cell)
            del cell  # or it, and its actor, would live as long as nothing else comes

    def _next_cell(self) -> Cell | None:
        """What to run now; None if this thread is not needed any more."""
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
        """Begin one more thread for whoever has waited too long (SZ1)."""
        with self._lock:
            while not self._is_closed:
                if not self._ready or self.worker_count == self._threads_max:
                    self._check_growth.wait()
                    continue
                patience = self._ready[0][0] + self._grow_delay - time.monotonic()
                if patience > 0:
                    self._check_growth.wait(patience)
                elif self._is_waking or self._idle_count:
                    self._check_growth.wait(self._grow_delay)
                else:
                    self._start_worker()
