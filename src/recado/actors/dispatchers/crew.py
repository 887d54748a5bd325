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

from recado.actors.failing.lifecycle import GRACE
from recado.actors.future import interrupted

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell

MESSAGES = 64  # of one actor, before it is another's turn

log = logging.getLogger("recado.actors")


class Crew(ABC):
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._threads: set[threading.Thread] = set()
        self._begun = 0
        self._runs = 0  # that have ended, or nearly: threads count them without a lock
        self._closed = False

    @property
    def threads(self) -> int:
        """How many there are now."""
        return len(self._threads)

    def dispatch(self, cell: Cell) -> None:
        if not cell.claim():
            return
        with self._lock:
            if not self._closed:
                self._enqueue(cell)
                return
        cell.system.on_loop(cell.run, MESSAGES)

    @abstractmethod
    def _enqueue(self, cell: Cell) -> None:
        """Have it run by a thread. The lock is held."""

    @abstractmethod
    def _release(self) -> None:
        """Have every thread end when there is nothing to run any more. The lock is held."""

    def _begin(self, work: Callable[[], None]) -> None:
        """Start a thread. The lock is held."""
        self._begun += 1
        thread = threading.Thread(
            target=self._live, args=(work,), name=f"{self._name}-{self._begun}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _live(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())
                self._ended.notify()

    def _run(self, cell: Cell, messages: int = MESSAGES) -> None:
        try:
            cell.run(messages)
        except Exception as error:  # noqa: BLE001  a cell whose actor was stopped while its handler ran
            cell.fail(interrupted(cell.ref, error))
        self._runs += 1

    def close(self) -> None:
        """Run what waits, and end the threads. Not in the loop's thread if handlers may wait for the loop."""
        with self._lock:
            self._closed = True
            self._release()
            runs, until = self._runs, time.monotonic() + GRACE
            while self._threads:
                if time.monotonic() >= until:
                    if self._runs == runs:
                        break
                    runs, until = self._runs, time.monotonic() + GRACE
                self._ended.wait(until - time.monotonic())
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
