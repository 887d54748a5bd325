"""The threads of a dispatcher: how they start, run cells, and end.

CR1  After `close` no thread is left, and all cells that were dispatched before have run. Handlers that do not
     end are the exception: when no run of a cell has ended for STOP_GRACE_S, the remaining daemon threads are
     abandoned.
CR2  Cells that are dispatched after `close` run on the event loop, so that their messages are not lost.
CR3  No exception of a handler ends a thread: its actor fails.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from recado.actors.future import interrupted_error
from recado.actors.supervision.lifecycle import STOP_GRACE_S

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell

CELL_MESSAGES_MAX = 64  # per run of a cell

log = logging.getLogger("recado.actors")


class WorkerThreads(ABC):
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread_ended = threading.Condition(self._lock)
        self._threads: set[threading.Thread] = set()
        self._started_count = 0
        self._finished_runs = 0  # approximate: threads count without a lock
        self._is_closed = False

    @property
    def thread_count(self) -> int:
        """The current number of threads."""
        return len(self._threads)

    def dispatch(self, cell: Cell) -> None:
        if not cell.claim():
            return
        with self._lock:
            if not self._is_closed:
                self._enqueue(cell)
                return
        cell.system._call_on_loop(cell.run, CELL_MESSAGES_MAX)

    @abstractmethod
    def _enqueue(self, cell: Cell) -> None:
        """Let a thread run the cell. Called with the lock held."""

    @abstractmethod
    def _end_threads(self) -> None:
        """Let every thread end when there is nothing left to run. Called with the lock held."""

    def _start_thread(self, work: Callable[[], None]) -> None:
        """Start a thread. Call it with the lock held."""
        self._started_count += 1
        thread = threading.Thread(
            target=self._run_thread,
            args=(work,),
            name=f"{self._name}-{self._started_count}",
            daemon=True,
        )
        self._threads.add(thread)
        thread.start()

    def _run_thread(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                self._thread_ended.notify()

    def _run_cell(self, cell: Cell, messages_max: int = CELL_MESSAGES_MAX) -> None:
        try:
            cell.run(messages_max)
        except Exception as error:  # noqa: BLE001  `run` reports those of handlers: this cell was stopped meanwhile
            cell.fail(interrupted_error(cell.ref, error))
        self._finished_runs += 1

    def close(self) -> None:
        """Run the cells that are ready, and end the threads. Do not call it in the loop's thread if handlers
        may wait for the loop; `async with` uses another thread."""
        with self._lock:
            self._is_closed = True
            self._end_threads()
            runs, deadline = self._finished_runs, time.monotonic() + STOP_GRACE_S
            while self._threads:
                if time.monotonic() >= deadline:
                    if self._finished_runs == runs:
                        break
                    runs, deadline = self._finished_runs, time.monotonic() + STOP_GRACE_S
                self._thread_ended.wait(deadline - time.monotonic())
            if self._threads:
                log.error(
                    "threads abandoned: their handlers do not end (dispatcher=%s threads=%d)",
                    self._name,
                    len(self._threads),
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)
