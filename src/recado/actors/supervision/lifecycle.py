"""How an actor starts and how it stops.

LI1  These functions run on the loop's thread and hold the claim of the cell: no handler of it runs meanwhile
     (CE1 in runtime/cell.py). An abandoned cell is the exception, see below.
LI2  If a start fails, `spawn` raises the exception, the name is free again, children that `pre_start` has
     started are stopped, and no Stopped event is published.
LI3  A stop first stops the children, the last linked one first. An actor that is to stop is not restarted.
LI4  Each watcher of an actor gets one Down, after `post_stop`; the name is free by then.

A stop waits for the running handler. If the handler still awaits after a grace period, its task is cancelled.
If it does not end even then, for example because it blocks in a thread, the cell is abandoned: it is marked as
stopped, and stays so when the handler ends later.
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
from recado.actors.runtime.cell import Cell
from recado.actors.runtime.loop_dispatcher import AttachingDispatcher
from recado.actors.runtime.state import CellState

from .links import Links
from .signals import Down, Ended, Exit, Reason, Stop, Untie, Unwatch

log = logging.getLogger("recado.actors")

# How long a stop waits for a handler that awaits before it cancels it.
STOP_GRACE_S = 5.0


async def start(cell: Cell) -> None:
    """Create the actor and run `pre_start`. Raises their exceptions (LI2)."""
    token = current_cell.set(cell)
    try:
        if (hook := create_instance(cell)) is not None:
            await hook
        if cell.state is CellState.STOPPED:
            raise ActorStoppedError(
                f"{cell.ref} was abandoned: it was stopped, and pre_start did not end in time"
            )
    except BaseException as error:
        cell.pending_stop = (error,)
        await stop_children(cell)
        _finish(cell, error)
        raise
    finally:
        current_cell.reset(token)
    cell.finish_start()
    if isinstance(cell.dispatcher, AttachingDispatcher):
        cell.dispatcher.attach_cell(cell)
    cell.release()


def create_instance(cell: Cell) -> Awaitable[None] | None:
    """Create the actor of a cell, and call `pre_start`. Returns the awaitable of the hook, if it is async."""
    actor = cell.factory()
    actor._cell = cell
    cell.actor = actor
    cell.become(actor.receive)
    if cell.links is not None:
        cell.links.behaviour_stack.clear()
        cell.links.children.default_strategy = actor.supervisor_strategy
    return actor.pre_start()


# --- stop -------------------------------------------------------------------------------------------


def stop(cell: Cell, reason: Reason) -> None:
    """Stop an actor after its current message, unless it is stopping already."""
    if not cell.is_stopping:
        cell.pending_stop = (reason,)
        cell.run_exclusively(partial(finish_stop, cell, reason))


def finish_stop(cell: Cell, reason: Reason) -> None:
    """Stop a cell that is claimed by the caller. Without children or a `post_stop` this needs no task."""
    actor, links = cell.actor, cell.links
    has_children = links is not None and links.children.strategies
    if has_children or actor is None or type(actor).post_stop is not Actor.post_stop:
        cell.system._start_task(_finish_stop_async(cell, reason))
    else:
        _finish(cell, reason)


async def _finish_stop_async(cell: Cell, reason: Reason) -> None:
    await stop_children(cell)
    token = current_cell.set(cell)
    try:
        if cell.actor is not None and (hook := cell.actor.post_stop()) is not None:
            await hook
    except Exception:
        log.exception("post_stop failed (actor=%s)", cell.ref)
    finally:
        current_cell.reset(token)
        _finish(cell, reason)


def run_instance_end_callbacks(cell: Cell) -> None:
    """Call the callbacks of an instance that ends: they cancel its timers and unstash its messages."""
    if cell.links is not None:
        callbacks, cell.links.instance_end_callbacks = cell.links.instance_end_callbacks, []
        for callback in callbacks:
            callback()


def _finish(cell: Cell, reason: Reason) -> None:
    """Mark a cell as stopped, dead-letter its messages, and notify the linked actors. The last step of every
    stop."""
    if cell.state is CellState.STOPPED:  # it was abandoned
        return
    was_started = cell.is_started
    system, ref = cell.system, cell.ref
    run_instance_end_callbacks(cell)
    cell.mark_stopped(system._dead_letter_office)
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
    """Stop the children one after the other, the last linked one first (LI3)."""
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
    """Return when a stopping actor has stopped. A handler that still awaits after `grace` seconds is cancelled;
    if it does not end within another `grace` seconds, the cell is abandoned."""
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
    """Call `callback` if the actor stops during the block."""
    callbacks = cell.ensure_links().stop_callbacks
    callbacks.append(callback)
    try:
        yield
    finally:
        callbacks.remove(callback)


def resolve_once(future: asyncio.Future[bool], value: bool) -> None:
    if not future.done():
        future.set_result(value)


def _force_stop(cell: Cell, grace: float) -> None:
    """Cancel the handler of an actor that did not stop in time; when called again, abandon the cell."""
    if cell.links is not None and cell.links.is_stopping_children:  # children have their own grace
        cell.system._clock.call_later(grace, partial(_force_stop, cell, grace))
    elif cell.task is not None:
        log.warning(
            "cancelling handler: actor did not stop in time (actor=%s grace_s=%g)", cell.ref, grace
        )
        cell.task.cancel()
        cell.task = None
        cell.system._clock.call_later(grace, partial(_force_stop, cell, grace))
    elif cell.state is not CellState.STOPPED:
        log.error(
            "actor abandoned: its handler does not end (actor=%s grace_s=%g)", cell.ref, grace
        )
        if cell.children:
            cell.system._start_task(_abandon(cell))
        else:
            _finish(cell, _stop_reason(cell))


async def _abandon(cell: Cell) -> None:
    await stop_children(cell)
    _finish(cell, _stop_reason(cell))


def _stop_reason(cell: Cell) -> Reason:
    return cell.pending_stop[0] if cell.pending_stop is not None else None


def local_cell(ref: ActorRef[Any]) -> Cell | None:
    """Return the cell of a reference, if the actor is in this process."""
    return ref._target if isinstance(ref._target, Cell) else None
