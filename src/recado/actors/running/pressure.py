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

from recado.actors.ref import current

from .state import State

if TYPE_CHECKING:
    from .cell import Cell
    from .mailbox import Letter

PATIENCE = 1.0

_waiters = Lock()


def has_room(cell: Cell) -> bool:
    return cell.state is State.STOPPED or cell.mailbox.qsize() < cell.capacity


def overfull(cell: Cell) -> None:
    """Somebody has just sent to it, and it is over its capacity. From the thread of who sent."""
    sender = current.get()
    if sender is not None:
        pause = Pause(sender, cell)
        # Once for all that one handler sends there. A copy, since others may urge it meanwhile.
        if sender is not cell and pause not in tuple(sender.urgent or ()):
            sender.urge(pause)
    elif get_ident() != cell.system.home:
        room = Event()
        when_room(cell, room.set)
        room.wait()


def when_room(cell: Cell, then: Callable[[], object]) -> None:
    """At once, or in the thread that makes room."""
    with _waiters:
        if cell.waiting is None:
            cell.waiting = []
        cell.waiting.append(then)
    # Now, and not before: who took a message out in between saw nobody waiting.
    relieve(cell)


def forget(cell: Cell, then: Callable[[], object]) -> None:
    """Whoever waited does so no longer."""
    with _waiters:
        if cell.waiting and then in cell.waiting:
            cell.waiting.remove(then)


def relieve(cell: Cell) -> None:
    """A message was taken out, or the actor is gone, and somebody waits for room."""
    with _waiters:
        if not cell.waiting or not has_room(cell):
            return
        waiting, cell.waiting = cell.waiting, None
    for then in waiting:
        then()


@dataclass(frozen=True)
class Pause:
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
                self.sender.rest()

        def too_long() -> None:
            forget(self.target, room)
            go_on()

        room = partial(system.on_loop, go_on)
        timer = system.clock.call_later(PATIENCE, too_long)
        when_room(self.target, room)


async def room(cell: Cell) -> None:
    while not has_room(cell):
        waiting: asyncio.Future[None] = cell.system.loop.create_future()
        wake = partial(cell.system.on_loop, _wake, waiting)
        when_room(cell, wake)
        try:
            await waiting
        finally:
            forget(cell, wake)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


async def stored(cell: Cell, letter: Letter) -> None:
    """Put it into a mailbox that lasts, and wait until it is safe there."""
    waiting: asyncio.Future[None] = cell.system.loop.create_future()

    def then(error: BaseException | None) -> None:
        cell.system.on_loop(settle, error)

    def settle(error: BaseException | None) -> None:
        if not waiting.done():
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

    cell.put_from(letter, None, then)
    if cell.capacity and cell.mailbox.qsize() > cell.capacity:
        overfull(cell)
    await waiting
