"""How an actor starts and how it stops.

LI1  All of this happens on the loop's thread, to a cell that is held: no handler of it runs meanwhile (CE1).
LI2  An actor that could not be started was never there: its name is free, nobody is told.
LI3  A stop ends those that it supervised first, the last linked first; who is to stop is not restarted.
LI4  Who monitors an actor hears a Down once, after `stopped`; the name is free by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from recado.actors.actor import Actor
from recado.actors.errors import ActorStopped
from recado.actors.occurrences import Stopped
from recado.actors.ref import ActorRef, current
from recado.actors.running import pressure
from recado.actors.running.cell import GIVEN_AWAY, NOTHING, Cell
from recado.actors.running.state import State

from .bonds import Bonds
from .signals import Down, Ended, Exit, Reason, Stop, Untie, Unwatch

log = logging.getLogger("recado.actors")

# How long a stop waits for a handler that awaits; then it is cancelled.
GRACE = 5.0


async def start(cell: Cell) -> None:
    """Make the instance; raise what its constructor or `started` raises (LI2)."""
    token = current.set(cell)
    try:
        if (starting := instantiate(cell)) is not None:
            await starting
        if cell.state is State.STOPPED:
            raise ActorStopped(f"{cell.ref} was to stop before it was started, and was left behind")
    except BaseException as error:
        cell.doom = (error,)
        await stop_children(cell)
        _leave(cell, error)
        raise
    finally:
        current.reset(token)
    cell.state = State.STARTED
    if (attach := getattr(cell.dispatcher, "attach", None)) is not None:
        attach(cell)
    cell.rest()


def instantiate(cell: Cell) -> Awaitable[None] | None:
    actor = cell.factory()
    actor._cell = cell
    cell.actor = actor
    cell.become(actor.receive)
    if cell.bonded is not None:
        cell.bonded.behaviours.clear()
        cell.bonded.family.default = actor.supervision
    return actor.started()


# --- stop ----------------------------------------------------------------------------------------


def stop(cell: Cell, reason: Reason) -> None:
    if not cell.doomed:
        cell.doom = (reason,)
        cell.hold(partial(end, cell, reason))


def end(cell: Cell, reason: Reason) -> None:
    """Nothing runs it any more. Where nobody is to be waited for, it is gone at once, without a task."""
    actor, bound = cell.actor, cell.bonded
    has_children = bound is not None and bound.family.children
    if has_children or actor is None or type(actor).stopped is not Actor.stopped:
        cell.system.keep(_end_slowly(cell, reason))
    else:
        _leave(cell, reason)


async def _end_slowly(cell: Cell, reason: Reason) -> None:
    await stop_children(cell)
    token = current.set(cell)
    try:
        if cell.actor is not None and (going := cell.actor.stopped()) is not None:
            await going
    except Exception:
        log.exception("stopped of %s failed", cell.ref)
    finally:
        current.reset(token)
        _leave(cell, reason)


def end_instance(cell: Cell) -> None:
    if cell.bonded is not None:
        endings, cell.bonded.endings = cell.bonded.endings, []
        for ending in endings:
            ending()


def _leave(cell: Cell, reason: Reason) -> None:
    """The last thing that happens to a cell."""
    if cell.state is State.STOPPED:  # it was left behind
        return
    was_started = cell.state is State.STARTED
    system, ref = cell.system, cell.ref
    end_instance(cell)
    cell.state = State.STOPPED
    cell.actor = cell.task = None
    cell.behaviour, cell.taken = GIVEN_AWAY, None
    cell.suspended = False
    cell.letter = NOTHING
    cell.dispatcher = system.undertaker
    cell.busy = False
    system.forget(cell)
    if cell.lasting is not None:
        cell.lasting.close()
    else:
        system.undertaker.dispatch(cell)
    if cell.waiting:
        pressure.relieve(cell)
    if cell.supervisor is not None:
        cell.supervisor.signal(Ended(ref, reason))
    else:
        system.guardian.unlink(ref)
    if cell.bonded is not None:
        _part(ref, reason, cell.bonded)
    if was_started and system.listeners:
        system.publish(Stopped(ref, reason))


def _part(ref: ActorRef[Any], reason: Reason, bound: Bonds) -> None:
    for watched in bound.watched:
        watched.signal(Unwatch(ref))
    for watcher in bound.watchers:
        watcher.signal(Down(ref, reason))
    for tied in bound.ties:
        tied.signal(Untie(ref) if reason is None else Exit(ref, reason))
    for said in tuple(bound.farewells):
        said()


async def stop_children(cell: Cell) -> None:
    """The last linked first, each when the one before is gone (LI3)."""
    if cell.bonded is None:
        return
    cell.bonded.parting = True
    try:
        for ref in reversed(cell.children):
            ref.signal(Stop(None))
            if (child := local(ref)) is not None:
                await gone(child)
    finally:
        cell.bonded.parting = False


async def gone(cell: Cell, grace: float = GRACE) -> None:
    """Wait until it has stopped. A handler that still awaits after `grace` seconds is cancelled; one that
    goes on even so, in a thread perhaps, is left behind: it will find its actor gone."""
    if cell.state is State.STOPPED:
        return
    ended: asyncio.Future[bool] = cell.system.loop.create_future()
    timer = cell.system.clock.call_later(grace, partial(_impatient, cell, grace))
    try:
        with farewell(cell, partial(resolve, ended, True)):
            await ended
    finally:
        timer.cancel()


@contextmanager
def farewell(cell: Cell, callback: Callable[[], None]) -> Iterator[None]:
    """Have it called if the actor stops meanwhile."""
    farewells = cell.bonds().farewells
    farewells.append(callback)
    try:
        yield
    finally:
        farewells.remove(callback)


def resolve(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


def _impatient(cell: Cell, grace: float) -> None:
    if cell.bonded is not None and cell.bonded.parting:  # its children have a grace of their own
        cell.system.clock.call_later(grace, partial(_impatient, cell, grace))
    elif cell.task is not None:
        log.warning("%s is cancelled: it was to stop %g s ago, and awaits", cell.ref, grace)
        cell.task.cancel()
        cell.task = None
        cell.system.clock.call_later(grace, partial(_impatient, cell, grace))
    elif cell.state is not State.STOPPED:
        log.error("%s is left behind: it was to stop, and its handler does not end", cell.ref)
        if cell.children:
            cell.system.keep(_leave_behind(cell))
        else:
            _leave(cell, _fate(cell))


async def _leave_behind(cell: Cell) -> None:
    await stop_children(cell)
    _leave(cell, _fate(cell))


def _fate(cell: Cell) -> Reason:
    return cell.doom[0] if cell.doom is not None else None


def local(ref: ActorRef[Any]) -> Cell | None:
    """Its cell, if the actor is of this process."""
    post = ref._post
    return post if isinstance(post, Cell) else None
