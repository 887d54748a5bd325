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
from recado.actors.actor_events import Stopped
from recado.actors.errors import ActorStoppedError
from recado.actors.ref import ActorRef, current_cell
from recado.actors.runtime import backpressure
from recado.actors.runtime.cell import CLAIM_PASSED_ON, NO_ENVELOPE, Cell
from recado.actors.runtime.state import CellState

from .links import Links
from .signals import Down, Ended, Exit, Reason, Stop, Untie, Unwatch

log = logging.getLogger("recado.actors")

# How long a stop waits for a handler that awaits; then it is cancelled.
STOP_GRACE_S = 5.0


async def start(cell: Cell) -> None:
    """Make the instance; raise what its constructor or `started` raises (LI2)."""
    token = current_cell.set(cell)
    try:
        if (hook := create_instance(cell)) is not None:
            await hook
        if cell.state is CellState.STOPPED:
            raise ActorStoppedError(
                f"{cell.ref} was to stop before it was started, and was left behind"
            )
    except BaseException as error:
        cell.pending_stop = (error,)
        await stop_children(cell)
        _mark_stopped(cell, error)
        raise
    finally:
        current_cell.reset(token)
    cell.state = CellState.STARTED
    if (attach_cell := getattr(cell.dispatcher, "attach_cell", None)) is not None:
        attach_cell(cell)
    cell.release()


def create_instance(cell: Cell) -> Awaitable[None] | None:
    actor = cell.factory()
    actor._cell = cell
    cell.actor = actor
    cell.become(actor.receive)
    if cell.links is not None:
        cell.links.behaviour_stack.clear()
        cell.links.children.default_strategy = actor.supervisor_strategy
    return actor.pre_start()


# --- stop ----------------------------------------------------------------------------------------


def stop(cell: Cell, reason: Reason) -> None:
    if not cell.is_stopping:
        cell.pending_stop = (reason,)
        cell.run_exclusively(partial(finish_stop, cell, reason))


def finish_stop(cell: Cell, reason: Reason) -> None:
    """Nothing runs it any more. Where nobody is to be waited for, it is gone at once, without a task."""
    actor, links = cell.actor, cell.links
    has_children = links is not None and links.children.strategies
    if has_children or actor is None or type(actor).post_stop is not Actor.post_stop:
        cell.system._start_task(_finish_stop_async(cell, reason))
    else:
        _mark_stopped(cell, reason)


async def _finish_stop_async(cell: Cell, reason: Reason) -> None:
    await stop_children(cell)
    token = current_cell.set(cell)
    try:
        if cell.actor is not None and (hook := cell.actor.post_stop()) is not None:
            await hook
    except Exception:
        log.exception("stopped of %s failed", cell.ref)
    finally:
        current_cell.reset(token)
        _mark_stopped(cell, reason)


def run_instance_end_callbacks(cell: Cell) -> None:
    if cell.links is not None:
        endings, cell.links.instance_end_callbacks = cell.links.instance_end_callbacks, []
        for ending in endings:
            ending()


def _mark_stopped(cell: Cell, reason: Reason) -> None:
    """The last thing that happens to a cell."""
    if cell.state is CellState.STOPPED:  # it was left behind
        return
    was_started = cell.state is CellState.STARTED
    system, ref = cell.system, cell.ref
    run_instance_end_callbacks(cell)
    cell.state = CellState.STOPPED
    cell.actor = cell.task = None
    cell.behaviour, cell.message_types = CLAIM_PASSED_ON, None
    cell.is_suspended = False
    cell.envelope = NO_ENVELOPE
    cell.dispatcher = system._dead_letter_office
    cell.is_claimed = False
    system._remove_cell(cell)
    if cell.durable_mailbox is not None:
        cell.durable_mailbox.close()
    else:
        system._dead_letter_office.dispatch(cell)
    if cell.space_callbacks:
        backpressure.notify_space(cell)
    if cell.supervisor is not None:
        cell.supervisor._send_signal(Ended(ref, reason))
    else:
        system._guardian.remove(ref)
    if cell.links is not None:
        _notify_linked(ref, reason, cell.links)
    if was_started and system._listeners:
        system._publish_event(Stopped(ref, reason))


def _notify_linked(ref: ActorRef[Any], reason: Reason, links: Links) -> None:
    for watched in links.watched:
        watched._send_signal(Unwatch(ref))
    for watcher in links.watchers:
        watcher._send_signal(Down(ref, reason))
    for tied in links.ties:
        tied._send_signal(Untie(ref) if reason is None else Exit(ref, reason))
    for callback in tuple(links.stop_callbacks):
        callback()


async def stop_children(cell: Cell) -> None:
    """The last linked first, each when the one before is gone (LI3)."""
    if cell.links is None:
        return
    cell.links.is_stopping_children = True
    try:
        for ref in reversed(cell.children):
            ref._send_signal(Stop(None))
            if (child := local_cell(ref)) is not None:
                await wait_stopped(child)
    finally:
        cell.links.is_stopping_children = False


async def wait_stopped(cell: Cell, grace: float = STOP_GRACE_S) -> None:
    """Wait until it has stopped. A handler that still awaits after `grace` seconds is cancelled; one that
    goes on even so, in a thread perhaps, is left behind: it will find its actor gone."""
    if cell.state is CellState.STOPPED:
        return
    stopped: asyncio.Future[bool] = cell.system._loop.create_future()
    timer = cell.system._clock.call_later(grace, partial(_force_stop, cell, grace))
    try:
        with stop_callback(cell, partial(resolve_once, stopped, True)):
            await stopped
    finally:
        timer.cancel()


@contextmanager
def stop_callback(cell: Cell, callback: Callable[[], None]) -> Iterator[None]:
    """Have it called if the actor stops meanwhile."""
    farewells = cell.ensure_links().stop_callbacks
    farewells.append(callback)
    try:
        yield
    finally:
        farewells.remove(callback)


def resolve_once(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


def _force_stop(cell: Cell, grace: float) -> None:
    if (
        cell.links is not None and cell.links.is_stopping_children
    ):  # its children have a grace of their own
        cell.system._clock.call_later(grace, partial(_force_stop, cell, grace))
    elif cell.task is not None:
        log.warning("%s is cancelled: it was to stop %g s ago, and awaits", cell.ref, grace)
        cell.task.cancel()
        cell.task = None
        cell.system._clock.call_later(grace, partial(_force_stop, cell, grace))
    elif cell.state is not CellState.STOPPED:
        log.error("%s is left behind: it was to stop, and its handler does not end", cell.ref)
        if cell.children:
            cell.system._start_task(_abandon(cell))
        else:
            _mark_stopped(cell, _stop_reason(cell))


async def _abandon(cell: Cell) -> None:
    await stop_children(cell)
    _mark_stopped(cell, _stop_reason(cell))


def _stop_reason(cell: Cell) -> Reason:
    return cell.pending_stop[0] if cell.pending_stop is not None else None


def local_cell(ref: ActorRef[Any]) -> Cell | None:
    """Its cell, if the actor is of this process."""
    post = ref._target
    return post if isinstance(post, Cell) else None
