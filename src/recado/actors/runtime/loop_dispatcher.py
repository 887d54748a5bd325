"""Dispatchers: which thread runs a cell, and when. The default is LoopDispatcher, which runs cells on the event
loop, in turns. A turn is one callback of the loop that runs many ready cells.

TU1  A cell that has work runs within a bounded number of turns, however much work other cells have: each turn
     runs at most TURN_CELLS_MAX ready cells, in order, and handles at most CELL_MESSAGES_MAX messages of each.
     A turn ends with the first cell that has more messages than that.
TU2  At most one turn is scheduled at a time: 0.6 µs less per cell than one callback for each ready cell.
TU3  A task that asks, and is about to await the reply, may run the asked cell at once, at most EARLY_RUNS_MAX
     times between two turns. An ask takes 3.5 µs instead of 9.5, because the loop does not poll its sockets
     twice before the reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from recado.actors.ref import current_cell

from .state import CellState

if TYPE_CHECKING:
    from .cell import Cell

CELL_MESSAGES_MAX = 256
TURN_CELLS_MAX = 32
EARLY_RUNS_MAX = 32

_IDLE = CellState.IDLE
_CLAIMED = CellState.CLAIMED


class Dispatcher(Protocol):
    def dispatch(self, cell: Cell) -> None:
        """Schedule a cell that has work and seems to be idle.

        Claim it with `cell.claim()`. If that succeeds, call `cell.run(budget)` once, soon, in the thread where
        this dispatcher runs cells. If the cell has more work after that, it is dispatched again. This method is
        called by any thread; it must neither block nor run the cell before it returns.
        """


class AttachingDispatcher:
    """A dispatcher that is notified of its cells."""

    def attach_cell(self, cell: Cell) -> None:
        """Called on the loop's thread when a cell of this dispatcher has started."""
        raise NotImplementedError


class LoopDispatcher:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = get_ident()
        self._ready: deque[Cell] = deque()
        # Turns run in a context of their own, so `current_cell` is neither reset after each cell nor is the
        # context copied for each turn (together 0.5 µs of an ask).
        self._context = copy_context()
        self._turn_scheduled = False
        self._early_runs_left = EARLY_RUNS_MAX

    def dispatch(self, cell: Cell) -> None:
        if get_ident() != self._thread_id:
            # A wakeup takes 5 µs: one is enough for all messages that threads send before the loop runs it.
            if not cell.wakeup_pending:
                cell.wakeup_pending = True
                cell.system._call_on_loop(self._dispatch_on_loop, cell)
            return
        # Only this thread claims the cells that it runs, so it needs no lock (150 ns).
        if cell.state is not _IDLE:
            return
        cell.state = _CLAIMED
        if cell.runs_as_task:
            cell.task = self._loop.create_task(cell.run_as_task(CELL_MESSAGES_MAX))
            return
        self._ready.append(cell)
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._run_turn, context=self._context)

    def _dispatch_on_loop(self, cell: Cell) -> None:
        cell.wakeup_pending = False
        if cell.state is not _CLAIMED:
            cell.dispatcher.dispatch(cell)  # not self: a stopped cell has another dispatcher

    def begin_batch(self) -> bool:
        """Hold back the next turn while the caller delivers a batch of messages, so that `end_batch` can run
        their cells before the loop polls its sockets. If this returns True, the caller must call
        `end_batch`."""
        if self._turn_scheduled:
            return False
        self._turn_scheduled = True
        return True

    def end_batch(self) -> None:
        """Run a turn now if the batch has made cells ready."""
        if self._ready:
            self._context.run(self._run_turn)
        else:
            self._turn_scheduled = False

    def run_early(self) -> None:
        """Run the ready cell now if there is exactly one. For a task that is about to await a reply (TU3)."""
        if self._early_runs_left and len(self._ready) == 1:
            # 0 during the run: a handler that asks must not run another cell within this one.
            left, self._early_runs_left = self._early_runs_left - 1, 0
            self._context.run(self._run_next)
            self._early_runs_left = left

    def _run_next(self) -> Cell:
        cell = self._ready.popleft()
        current_cell.set(cell)
        if cell.run_turn(CELL_MESSAGES_MAX):
            cell.release()
        return cell

    def _run_turn(self) -> None:
        ready = self._ready
        self._early_runs_left = 0
        # Cells that become ready during the turn may run in it, too: a message that passes through ten actors
        # does not wait ten times until the loop has polled its sockets.
        try:
            for _ in range(TURN_CELLS_MAX):
                if not ready:
                    break
                cell = self._run_next()
                if ready and ready[-1] is cell:  # it has more messages (TU1)
                    break
        finally:  # also if a handler ends the program: the other actors must be able to stop
            self._early_runs_left = EARLY_RUNS_MAX
            self._turn_scheduled = bool(ready)
            if ready:
                self._loop.call_soon(self._run_turn, context=self._context)
