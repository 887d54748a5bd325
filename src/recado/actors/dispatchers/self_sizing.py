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

from .crew import Crew

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell


class SelfSizing(Crew):
    def __init__(
        self,
        least: int = 2,
        most: int = 256,
        *,
        patience: float = 0.01,
        linger: float = 5.0,
        name: str = "recado-sizing",
    ) -> None:
        if not 1 <= least <= most:
            raise ValueError(f"between {least} and {most} threads there is nothing to choose from")
        super().__init__(name)
        self._least = least
        self._most = most
        self._patience = patience
        self._linger = linger
        self._ready: deque[tuple[float, Cell]] = deque()  # since when
        self._bell = threading.Condition(self._lock)  # for workers that sleep
        self._alarm = threading.Condition(self._lock)  # for the one that watches over them
        self._watching = False
        self._sleeping = 0
        self._on_its_way = False
        self.workers = 0
        self.wakings = 0
        """How often a thread was woken, or begun, because there was work."""

    def _enqueue(self, cell: Cell) -> None:
        self._ready.append((time.monotonic(), cell))
        self._call_somebody()

    def _call_somebody(self) -> None:
        """See to it that a thread comes for what is ready (SZ3). The lock is held, here and below."""
        if self._on_its_way:
            return
        if self._sleeping:
            self._on_its_way = True
            self.wakings += 1
            self._bell.notify()
        elif self.workers < self._least:
            self._grow()
        elif not self._watching:
            self._watching = True
            self._begin(self._watch)
        else:
            self._alarm.notify()

    def _grow(self) -> None:
        self._on_its_way = True
        self.wakings += 1
        self.workers += 1
        self._begin(self._work)

    def _release(self) -> None:
        self._bell.notify_all()
        self._alarm.notify()

    def _work(self) -> None:
        while (cell := self._next()) is not None:
            self._run(cell)
            del cell  # or it, and its actor, would live as long as nothing else comes

    def _next(self) -> Cell | None:
        """What to run now; None if this thread is not needed any more."""
        with self._lock:
            self._on_its_way = False
            until = time.monotonic() + self._linger
            while not self._ready:
                rest = until - time.monotonic()
                if self._closed or (rest <= 0 and self.workers > self._least):
                    self.workers -= 1
                    return None
                self._sleeping += 1
                self._bell.wait(rest if rest > 0 else None)
                self._sleeping -= 1
                self._on_its_way = False
            _, cell = self._ready.popleft()
            if self._ready:
                self._call_somebody()
            return cell

    def _watch(self) -> None:
        """Begin one more thread for whoever has waited too long (SZ1)."""
        with self._lock:
            while not self._closed:
                if not self._ready or self.workers == self._most:
                    self._alarm.wait()
                    continue
                patience = self._ready[0][0] + self._patience - time.monotonic()
                if patience > 0:
                    self._alarm.wait(patience)
                elif self._on_its_way or self._sleeping:
                    self._alarm.wait(self._patience)
                else:
                    self._grow()
