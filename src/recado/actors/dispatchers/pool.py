"""A number of threads for any number of actors: who has work waits in one queue for the next thread."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING

from .crew import MESSAGES, Crew

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell


class Pool(Crew):
    def __init__(
        self, threads: int = 8, *, messages: int = MESSAGES, name: str = "recado-pool"
    ) -> None:
        """At most `threads`; each is begun when there is work for it. An actor's turn is `messages` long."""
        if threads < 1:
            raise ValueError(f"a pool of {threads} threads would run nothing")
        super().__init__(name)
        self._most = threads
        self._messages = messages
        self._ready: SimpleQueue[Cell | None] = SimpleQueue()
        self._unfinished = 0  # cells that are ready or run

    def _enqueue(self, cell: Cell) -> None:
        self._ready.put(cell)
        self._unfinished += 1
        if len(self._threads) < min(self._most, self._unfinished):
            self._begin(self._work)

    def _release(self) -> None:
        for _ in self._threads:
            self._ready.put(None)

    def _work(self) -> None:
        while (cell := self._ready.get()) is not None:
            self._run(cell, self._messages)
            del cell  # or it, and its actor, would live as long as nothing else comes
            with self._lock:
                self._unfinished -= 1
