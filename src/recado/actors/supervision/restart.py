"""How an actor fails: who decides, and how it is restarted.

RS1  A failure stays with the cell, which is held, until it is decided (CE4); what is told meanwhile waits.
RS2  A restart is: `pre_restart` on the failed instance; what it supervised stops, unless it `keeps_children`;
     a new instance of the same factory; `started` and `post_restart` on that. Reference and mailbox stay.
RS3  A restart that fails is a failure like any, of the same budget. A hook that is cancelled, or awaits what
     was, has failed, too.
RS4  A group waits GRACE seconds for each handler of its members. Then one that awaits is cancelled; where one
     goes on even so, in a thread perhaps, the others do without it, and it is restarted when that has ended.

Supervisors decide here, and not in a handler: one that awaits something does not keep its children waiting.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from recado.actors.actor_events import GivenUp, Restarted
from recado.actors.future import interrupted_error
from recado.actors.ref import ActorRef, current_cell
from recado.actors.runtime.cell import NO_ENVELOPE, Cell, ExclusiveAction
from recado.actors.runtime.state import CellState

from .children import Children, RestartGroup, RestartOne, StopChildren
from .lifecycle import (
    STOP_GRACE_S,
    create_instance,
    finish_stop,
    local_cell,
    resolve_once,
    run_instance_end_callbacks,
    stop,
    stop_callback,
    stop_children,
    wait_stopped,
)
from .signals import ChildFailed, Failed, Restart, Stop
from .strategy import TEMPORARY, AllForOne

if TYPE_CHECKING:
    from recado.actors.system import ActorSystem

log = logging.getLogger("recado.actors")

Ref: TypeAlias = ActorRef[Any]

# Raised to end the program, or by the loop when it drops a task: no failures of an actor.
EXIT_EXCEPTIONS: Final = (GeneratorExit, KeyboardInterrupt, SystemExit)


def handle_failure(cell: Cell, error: BaseException) -> None:
    """A handler has failed, or a restart; the cell is held, and is until this is decided (CE4)."""
    if cell.state is CellState.STOPPED:  # it was left behind
        return
    _log_failure(cell, error)
    if cell.pending_stop is not None:
        finish_stop(cell, cell.pending_stop[0])
    elif (pending_restart := _take_pending_restart(cell)) is not None:
        pending_restart()
    elif cell.restart_type is TEMPORARY:
        cell.pending_stop = (error,)
        finish_stop(cell, error)
    else:
        cell.is_suspended = True
        if cell.supervisor is None:
            supervise_failure(cell.system, None, cell.ref, error)
        else:
            cell.supervisor._send_signal(Failed(cell.ref, error))


def _log_failure(cell: Cell, error: BaseException) -> None:
    if cell.actor is not None and isinstance(error, cell.actor.expected_errors):
        log.info("%s failed: %r", cell.ref, error)
    else:
        log.warning("%s failed: %r", cell.ref, error, exc_info=error)


@dataclass(frozen=True, eq=False)
class PendingRestart:
    """A hold by which an actor is restarted. If it fails before, this is the answer to that as well."""

    action: ExclusiveAction

    def __call__(self) -> None:
        self.action()


def _take_pending_restart(cell: Cell) -> PendingRestart | None:
    for first in cell.system_queue or ():
        if isinstance(first, PendingRestart):
            assert cell.system_queue is not None
            cell.system_queue.remove(first)
            return first
    return None


def supervise_failure(
    system: ActorSystem, supervisor_cell: Cell | None, child: Ref, reason: BaseException
) -> None:
    """A child of `owner`, or of the system itself, has failed: decide, and do it."""
    children = (
        system._guardian if supervisor_cell is None else supervisor_cell.ensure_links().children
    )
    if children.defer_failure(child, reason):
        return
    match children.decide(child, reason, system._clock.time()):
        case RestartOne(ref):
            ref._send_signal(Restart(reason))
        case RestartGroup(group, refs):
            # From now on, not from when the task begins: another one may fail in between.
            children.group_restarts[group] = dict.fromkeys(refs)
            system._start_task(
                _restart_group(system, supervisor_cell, children, group, refs, reason)
            )
        case StopChildren(refs):
            for ref in reversed(refs):
                ref._send_signal(Stop(reason))
            if supervisor_cell is None:
                log.error("%s is given up: %r", child, reason)
                system._publish_event(GivenUp(child, reason))
            else:
                supervisor_cell.enqueue_system(ChildFailed(child, reason))
        case never:
            assert_never(never)


def restart_cell(cell: Cell, reason: BaseException) -> None:
    cell.run_exclusively(PendingRestart(lambda: cell.system._start_task(_restart(cell, reason))))


async def _restart(cell: Cell, reason: BaseException) -> None:
    await _end_instance(cell, reason)
    await _start_instance(cell, reason)


async def _restart_group(
    system: ActorSystem,
    supervisor_cell: Cell | None,
    children: Children[Ref],
    group: AllForOne,
    refs: tuple[Ref, ...],
    reason: BaseException,
) -> None:
    """Restart a group, as a house is rebuilt (FA1). Those on other nodes are told to, and not waited for."""
    deferred_failures = children.group_restarts[group]
    local_cells = [cell for ref in refs if (cell := local_cell(ref)) is not None]
    for ref in refs:
        if local_cell(ref) is None:
            ref._send_signal(Restart(reason))
    stopped_cells = []
    try:
        for cell in reversed(local_cells):
            if cell.restart_type is TEMPORARY:
                stop(cell, reason)
                await wait_stopped(cell)
            elif await _hold_member(cell, reason):
                await _end_instance(cell, reason)
                stopped_cells.append(cell)
            deferred_failures[cell.ref] = (
                None  # whatever it failed by meanwhile, this is the answer to it
            )
        for cell in reversed(stopped_cells):
            await _start_instance(cell, reason)
    finally:  # or no failure of the group would be answered any more
        del children.group_restarts[group]
    for ref, error in deferred_failures.items():
        if error is not None:
            supervise_failure(system, supervisor_cell, ref, error)


async def _hold_member(cell: Cell, reason: BaseException) -> bool:
    """Wait for its handler to end; False if it has stopped meanwhile, or is going to, or does not end (RS4)."""
    held: asyncio.Future[bool] = cell.system._loop.create_future()
    if cell.state is CellState.STOPPED:
        return False

    def on_held() -> None:
        if held.done():  # the others did not wait
            cell.system._start_task(_restart(cell, reason))
        else:
            held.set_result(True)

    def on_grace_over() -> None:
        log.warning("%s is to be restarted with its group, and its handler does not end", cell.ref)
        if cell.task is not None:
            cell.task.cancel()
        else:
            resolve_once(held, False)

    call_later = cell.system._clock.call_later
    timers = [
        call_later(STOP_GRACE_S, on_grace_over),
        call_later(2 * STOP_GRACE_S, resolve_once, held, False),
    ]
    try:
        with stop_callback(cell, partial(resolve_once, held, False)):
            cell.run_exclusively(PendingRestart(on_held))
            return await held
    finally:
        for timer in timers:
            timer.cancel()


async def _end_instance(cell: Cell, reason: BaseException) -> None:
    actor, message = cell.actor, cell.envelope[0]
    token = current_cell.set(cell)
    try:
        if actor is not None and (hook := actor.pre_restart(reason, message)) is not None:
            await hook
    except EXIT_EXCEPTIONS:
        raise
    except BaseException:
        log.exception("pre_restart of %s failed", cell.ref)
    finally:
        current_cell.reset(token)
    run_instance_end_callbacks(cell)
    if actor is None or not actor.keeps_children:
        await stop_children(cell)
    cell.actor = None  # it has ended, and is not to be told so again by a stop


async def _start_instance(cell: Cell, reason: BaseException) -> None:
    if cell.pending_stop is not None:
        finish_stop(cell, cell.pending_stop[0])
        return
    cell.envelope = NO_ENVELOPE
    token = current_cell.set(cell)
    try:
        if (hook := create_instance(cell)) is not None:
            await hook
        assert cell.actor is not None
        if (hook := cell.actor.post_restart(reason)) is not None:
            await hook
    except EXIT_EXCEPTIONS:
        raise
    except Exception as error:  # noqa: BLE001  one more failure, with the same budget
        handle_failure(cell, error)
        return
    except BaseException as error:  # noqa: BLE001  as above
        handle_failure(cell, interrupted_error(cell.ref, error))
        return
    finally:
        current_cell.reset(token)
    cell.restarts += 1
    cell.system._publish_event(Restarted(cell.ref, reason))
    cell.release()
