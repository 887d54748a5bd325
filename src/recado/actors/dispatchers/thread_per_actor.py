"""A thread for each actor: as simple as it gets, for actors that block most of the time. Each costs a thread.

It is begun with the actor's first message, and ends when the actor has stopped.
"""

from __future__ import annotations

from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from .crew import Crew

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell

Turns: TypeAlias = "SimpleQueue[Cell | None]"


class ThreadPerActor(Crew):
    def __init__(self, *, name: str = "recado-actor") -> None:
        super().__init__(name)
        self._turns: dict[Cell, Turns] = {}

    def _enqueue(self, cell: Cell) -> None:
        turns = self._turns.get(cell)
        if turns is None:
            turns = self._turns[cell] = SimpleQueue()
            self._begin(partial(self._work, turns))
            cell.system.on_loop(cell.at_stop, partial(self._dismiss, cell))
        turns.put(cell)

    def _dismiss(self, cell: Cell) -> None:
        with self._lock:
            if turns := self._turns.pop(cell, None):
                turns.put(None)

    def _release(self) -> None:
        for turns in self._turns.values():
            turns.put(None)
        self._turns.clear()

    def _work(self, turns: Turns) -> None:
        while (cell := turns.get()) is not None:
            self._run(cell)
            del cell
