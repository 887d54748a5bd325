"""A number of threads for any number of actors: who has work waits in one queue for the next thread."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING

from .worker_threads import CELL_MESSAGES_MAX, WorkerThreads

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell


class FixedPool(WorkerThreads):
    def __init__(
        self, threads: int = 8, *, messages_max: int = CELL_MESSAGES_MAX, name: str = "recado-pool"
    ) -> None:
        """At most `threads`; each is begun when there is work for it. An actor's turn is `messages` long."""
        if threads < 1:
            raise ValueError(f"a pool of {threads} threads would run nothing")
        super().__init__(name)
        self._threads_max = threads
        self._messages_max = messages_max
        self._ready: SimpleQueue[Cell | None] = SimpleQueue()
        self._unfinished_count = 0  # cells that are ready or run

    def _enqueue(self, cell: Cell) -> None:
        self._ready.put(cell)
        self._unfinished_count += 1
        if len(self._threads) < min(self._threads_max, self._unfinished_count):
            self._start_thread(self._worker_loop)

    def _wake_all(self) -> None:
        for _ in self._threads:
            self._ready.put(None)

    def _worker_loop(self) -> None:
        while (cell := self._ready.get()) is not None:
            self._run_cell(cell, self._messages_max)
            del cell  # or it, and its actor, would live as long as nothing else comes
            with self._lock:
                self._unfinished_count -= 1
