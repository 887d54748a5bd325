"""One thread for each actor, for actors that block most of the time.

The thread starts with the actor's first message, and ends when the actor has stopped.
"""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from .worker_threads import WorkerThreads

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell

CellQueue: TypeAlias = "SimpleQueue[Cell | None]"


class ThreadPerActor(WorkerThreads):
    def __init__(self, *, name: str = "recado-actor") -> None:
        super().__init__(name)
        self._queues: dict[Cell, CellQueue] = {}

    def _enqueue(self, cell: Cell) -> None:
        queue = self._queues.get(cell)
        if queue is None:
            queue = self._queues[cell] = SimpleQueue()
            self._start_thread(partial(self._worker_loop, queue))
            cell.system._call_on_loop(cell.on_stop, partial(self._stop_thread, cell))
        queue.put(cell)

    def _stop_thread(self, cell: Cell) -> None:
        with self._lock:
            if queue := self._queues.pop(cell, None):
                queue.put(None)

    def _end_threads(self) -> None:
        for queue in self._queues.values():
            queue.put(None)
        self._queues.clear()

    def _worker_loop(self, queue: CellQueue) -> None:
        while (cell := queue.get()) is not None:
            self._run_cell(cell)
            del cell
