"""Backpressure: pauses senders to a bounded mailbox that is full. No message is lost, and no sender fails.

PR1  A sender never fails because a mailbox is full, and its message keeps its position.
PR2  An actor that sent to a full mailbox is paused when the handler that sent has ended. It gets its next
     message when the mailbox has space, or after PAUSE_MAX_S: so a cycle of actors with full mailboxes does not
     deadlock, but makes slow progress. It is paused once per full mailbox, however many messages it sent there.
PR3  A thread of the program blocks until there is space. A task on the loop cannot be blocked; it uses
     `tell_wait`.

So a mailbox can exceed its capacity: by the messages that running handlers send before they are paused, by one
message per blocked thread, and without a limit by tasks on the loop that use `tell`.
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

# Guards `space_callbacks` of all cells.
_callbacks_lock = Lock()


def has_space(cell: Cell) -> bool:
    return cell.state is CellState.STOPPED or cell.mailbox.qsize() < cell.capacity


def handle_overflow(cell: Cell) -> None:
    """Slow down the sender of a message that exceeded the capacity. Runs in the sender's thread."""
    sender = current_cell.get()
    if sender is not None:
        pause = SenderPause(sender, cell)
        # One pause for all messages of a handler. Iterate over a copy: other threads may append meanwhile.
        if sender is not cell and pause not in tuple(sender.system_queue or ()):
            sender.enqueue_system(pause)
    elif get_ident() != cell.system._thread_id:
        space = Event()
        call_when_space(cell, space.set)
        space.wait()


def call_when_space(cell: Cell, callback: Callable[[], object]) -> None:
    """Call `callback` at once, or in the thread that makes space."""
    with _callbacks_lock:
        if cell.space_callbacks is None:
            cell.space_callbacks = []
        cell.space_callbacks.append(callback)
    # Check after the append: a thread that removed a message before the append has found no callback to call.
    notify_space(cell)


def cancel_callback(cell: Cell, callback: Callable[[], object]) -> None:
    with _callbacks_lock:
        if cell.space_callbacks and callback in cell.space_callbacks:
            cell.space_callbacks.remove(callback)


def notify_space(cell: Cell) -> None:
    """Run the callbacks of a cell if its mailbox has space, or the actor has stopped."""
    with _callbacks_lock:
        if not cell.space_callbacks or not has_space(cell):
            return
        callbacks, cell.space_callbacks = cell.space_callbacks, None
    for callback in callbacks:
        callback()


@dataclass(frozen=True)
class SenderPause:
    """An exclusive action of the sender: holds its claim until `target` has space (PR2)."""

    sender: Cell
    target: Cell

    def __call__(self) -> None:
        system, paused = self.sender.system, True

        def resume() -> None:
            nonlocal paused
            if paused:
                paused = False
                timer.cancel()
                self.sender.release()

        def resume_after_timeout() -> None:
            cancel_callback(self.target, on_space)
            resume()

        on_space = partial(system._call_on_loop, resume)
        timer = system._clock.call_later(PAUSE_MAX_S, resume_after_timeout)
        call_when_space(self.target, on_space)


async def wait_for_space(cell: Cell) -> None:
    while not has_space(cell):
        space: asyncio.Future[None] = cell.system._loop.create_future()
        on_space = partial(cell.system._call_on_loop, _resolve, space)
        call_when_space(cell, on_space)
        try:
            await space
        finally:
            cancel_callback(cell, on_space)


def _resolve(future: asyncio.Future[None], error: BaseException | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def store_and_wait(cell: Cell, envelope: MessageEnvelope) -> None:
    """Put an envelope into a durable mailbox, and return when it is on disk. Raises the reason if it cannot be
    stored."""
    stored: asyncio.Future[None] = cell.system._loop.create_future()
    cell.put_durably(envelope, None, partial(cell.system._call_on_loop, _resolve, stored))
    if cell.capacity and cell.mailbox.qsize() > cell.capacity:
        handle_overflow(cell)
    await stored
