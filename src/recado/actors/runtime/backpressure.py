"""What becomes of those who send to a full mailbox. Nothing is lost, and nobody fails for it.

PR1  A sender never fails because a mailbox is full, and its message keeps its place.
PR2  An actor that sent to a full mailbox is paused after the handler in which it did: it gets its next message
     when there is room, or after PATIENCE seconds, so that actors in a circle of full mailboxes go on, if
     slowly.
     However much it sent there, that is once for each full mailbox.
PR3  A thread of the program waits until there is room. A task on the loop cannot be made to: it uses
     `tell_wait`.

So a mailbox holds its capacity, and what the handlers that run at the moment send beyond it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, get_ident
from typing import TYPE_CHECKING

from recado.actors.ref import current_cell

from .state import CellState

if TYPE_CHECKING:
    from .cell import Cell
    from .mailbox import MessageEnvelope

PAUSE_MAX_S = 1.0

_callbacks_lock = Lock()


def has_space(cell: Cell) -> bool:
    return cell.state is CellState.STOPPED or cell.mailbox.qsize() < cell.capacity


def handle_overflow(cell: Cell) -> None:
    """Somebody has just sent to it, and it is over its capacity. From the thread of who sent."""
    sender = current_cell.get()
    if sender is not None:
        pause = SenderPause(sender, cell)
        # Once for all that one handler sends there. A copy, since others may urge it meanwhile.
        if sender is not cell and pause not in tuple(sender.system_queue or ()):
            sender.enqueue_system(pause)
    elif get_ident() != cell.system._thread_id:
        space = Event()
        call_when_space(cell, space.set)
        space.wait()


def call_when_space(cell: Cell, callback: Callable[[], object]) -> None:
    """At once, or in the thread that makes room."""
    with _callbacks_lock:
        if cell.space_callbacks is None:
            cell.space_callbacks = []
        cell.space_callbacks.append(callback)
    # Now, and not before: who took a message out in between saw nobody waiting.
    notify_space(cell)


def cancel_callback(cell: Cell, callback: Callable[[], object]) -> None:
    """Whoever waited does so no longer."""
    with _callbacks_lock:
        if cell.space_callbacks and callback in cell.space_callbacks:
            cell.space_callbacks.remove(callback)


def notify_space(cell: Cell) -> None:
    """A message was taken out, or the actor is gone, and somebody waits for room."""
    with _callbacks_lock:
        if not cell.space_callbacks or not has_space(cell):
            return
        callbacks, cell.space_callbacks = cell.space_callbacks, None
    for callback in callbacks:
        callback()


@dataclass(frozen=True)
class SenderPause:
    """A hold on who sent, until there is room."""

    sender: Cell
    target: Cell

    def __call__(self) -> None:
        system, paused = self.sender.system, True

        def go_on() -> None:
            nonlocal paused
            if paused:
                paused = False
                timer.cancel()
                self.sender.release()

        def too_long() -> None:
            cancel_callback(self.target, room)
            go_on()

        room = partial(system._call_on_loop, go_on)
        timer = system._clock.call_later(PAUSE_MAX_S, too_long)
        call_when_space(self.target, room)


async def wait_for_space(cell: Cell) -> None:
    while not has_space(cell):
        waiting: asyncio.Future[None] = cell.system._loop.create_future()
        wake = partial(cell.system._call_on_loop, _resolve, waiting)
        call_when_space(cell, wake)
        try:
            await waiting
        finally:
            cancel_callback(cell, wake)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def store_and_wait(cell: Cell, envelope: MessageEnvelope) -> None:
    """Put it into a mailbox that lasts, and wait until it is safe there."""
    stored: asyncio.Future[None] = cell.system._loop.create_future()

    def on_stored(error: BaseException | None) -> None:
        cell.system._call_on_loop(resolve, error)

    def resolve(error: BaseException | None) -> None:
        if not stored.done():
            if error is None:
                stored.set_result(None)
            else:
                stored.set_exception(error)

    cell.put_durably(envelope, None, on_stored)
    if cell.capacity and cell.mailbox.qsize() > cell.capacity:
        handle_overflow(cell)
    await stored
