"""Who runs cells, where and when. The usual dispatcher is the loop itself, in turns.

TU1  A cell that has work is run within a bounded number of turns, however much others have: each turn takes at
     most CELLS of those that wait, in order, and of each at most MESSAGES. It ends with one that had as many.
TU2  A turn is one callback of the loop for all cells that are ready: 0.6 µs less per cell than one for each.
TU3  Whoever asks, and is about to wait, may have the cell run at once, at most EARLY times between two turns:
     an ask takes 3.5 µs instead of 9.5, as the loop need not look at its sockets twice before the answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from recado.actors.ref import current_cell

if TYPE_CHECKING:
    from .cell import Cell

CELL_MESSAGES_MAX = 256
TURN_CELLS_MAX = 32
EARLY_RUNS_MAX = 32


class Dispatcher(Protocol):
    def dispatch(self, cell: Cell) -> None:
        """It has work, and seems to be idle. Claim it (`cell.claim()`); if that succeeds, call
        `cell.run(budget)` soon, once, where this dispatcher runs cells. If more is to be done, the cell comes
        here again. Called by any thread; neither waits nor runs the cell before it returns.

        One that has a method `attach(cell)` is told of each cell once it is started, on the loop's thread.
        """


class LoopDispatcher:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = get_ident()
        self._ready: deque[Cell] = deque()
        # Turns have a context of their own, so nothing is to be reset after each cell, nor copied for each turn
        # (together 0.5 µs of an ask).
        self._context = copy_context()
        self._turn_scheduled = False
        self._early_runs_left = EARLY_RUNS_MAX

    def dispatch(self, cell: Cell) -> None:
        if get_ident() != self._thread_id:
            # Once for all that a thread sends before the loop hears of it: 5 µs each.
            if not cell.wakeup_pending:
                cell.wakeup_pending = True
                cell.system._call_on_loop(self._dispatch_on_loop, cell)
            return
        # Only this thread claims cells that are run here, so no lock is needed (150 ns).
        if cell.is_claimed:
            return
        cell.is_claimed = True
        if cell.runs_as_task:
            cell.task = self._loop.create_task(cell.run_as_task(CELL_MESSAGES_MAX))
            return
        self._ready.append(cell)
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._run_turn, context=self._context)

    def _dispatch_on_loop(self, cell: Cell) -> None:
        cell.wakeup_pending = False
        if not cell.is_claimed:
            cell.dispatcher.dispatch(cell)  # by now, it may have stopped and have another one

    def begin_batch(self) -> bool:
        """For who is about to dispatch cells, and would have them run before the loop looks at its sockets
        again. If this is True, `end` has to be called afterwards, whatever happens."""
        if self._turn_scheduled:
            return False
        self._turn_scheduled = True
        return True

    def end_batch(self) -> None:
        if self._ready:
            self._context.run(self._run_turn)
        else:
            self._turn_scheduled = False

    def run_early(self) -> None:
        """For a task that is about to wait for an answer: run the cell that is ready, if only one is (TU3)."""
        if self._early_runs_left and len(self._ready) == 1:
            left, self._early_runs_left = self._early_runs_left - 1, 0
            self._context.run(self._run_next)
            self._early_runs_left = left

    def _run_next(self) -> Cell:
        cell = self._ready.popleft()
        current_cell.set(cell)
        cell.run_turn(CELL_MESSAGES_MAX)
        return cell

    def _run_turn(self) -> None:
        ready = self._ready
        self._early_runs_left = 0
        # Those that become ready meanwhile may run in this turn too: a message that goes through ten
        # actors does not wait ten times for the loop to look at its sockets.
        try:
            for _ in range(TURN_CELLS_MAX):
                if not ready:
                    break
                cell = self._run_next()
                # One that has handled as much as it may is enough for this turn.
                if ready and ready[-1] is cell:
                    break
        finally:  # a handler may end the program, and the other actors still stop in order
            self._early_runs_left = EARLY_RUNS_MAX
            self._turn_scheduled = bool(ready)
            if ready:
                self._loop.call_soon(self._run_turn, context=self._context)
