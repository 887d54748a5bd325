"""The threads of a dispatcher: how they begin, run cells, and end.

CR1  After `close` no thread of it is left, and what was dispatched before has been run; but for handlers that
     do not end: when none has for GRACE seconds, they are left behind, in threads that hold up no program.
CR2  What is dispatched later is run by the loop: late, perhaps slow, but not lost.
CR3  No handler ends a thread, whatever it raises: its actor fails.
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

CELL_MESSAGES_MAX = 64  # of one actor, before it is another's turn

log = logging.getLogger("recado.actors")


class WorkerThreads(ABC):
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread_ended = threading.Condition(self._lock)
        self._threads: set[threading.Thread] = set()
        self._started_count = 0
        self._finished_runs = 0  # that have ended, or nearly: threads count them without a lock
        self._is_closed = False

    @property
    def thread_count(self) -> int:
        """How many there are now."""
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
        """Have it run by a thread. The lock is held."""

    @abstractmethod
    def _wake_all(self) -> None:
        """Have every thread end when there is nothing to run any more. The lock is held."""

    def _start_thread(self, work: Callable[[], None]) -> None:
        """Start a thread. The lock is held."""
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
        except Exception as error:  # noqa: BLE001  a cell whose actor was stopped while its handler ran
            cell.fail(interrupted_error(cell.ref, error))
        self._finished_runs += 1

    def close(self) -> None:
        """Run what waits, and end the threads. Not in the loop's thread if handlers may wait for the loop."""
        with self._lock:
            self._is_closed = True
            self._wake_all()
            runs, until = self._finished_runs, time.monotonic() + STOP_GRACE_S
            while self._threads:
                if time.monotonic() >= until:
                    if self._finished_runs == runs:
                        break
                    runs, until = self._finished_runs, time.monotonic() + STOP_GRACE_S
                self._thread_ended.wait(until - time.monotonic())
            if self._threads:
                log.error("%d threads of %s are left behind", len(self._threads), self._name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)
