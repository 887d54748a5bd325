"""A fixed number of threads for any number of actors: ready cells wait in one queue for the next thread."""

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
        """Use at most `threads` threads; each is started when there is work for it. An actor handles up to
        `messages_max` messages before the next one runs."""
        if threads < 1:
            raise ValueError(f"a pool needs at least one thread: {threads}")
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

    def _end_threads(self) -> None:
        for _ in self._threads:
            self._ready.put(None)

    def _worker_loop(self) -> None:
        while (cell := self._ready.get()) is not None:
            self._run_cell(cell, self._messages_max)
            del cell  # otherwise an idle thread would keep the cell and its actor alive
            with self._lock:
                self._unfinished_count -= 1
