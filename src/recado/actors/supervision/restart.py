"""What happens when an actor fails: its supervisor decides, and the actor is restarted or stopped.

RS1  A failed cell is suspended until its supervisor has decided (CE4); messages wait meanwhile.
RS2  A restart calls `pre_restart` on the failed instance, stops its children unless it `keeps_children`,
     creates a new instance with the same factory, and calls `pre_start` and `post_restart` on that. Reference
     and mailbox stay.
RS3  A restart that fails is one more failure, with the same budget. A hook that is cancelled has failed, too.
RS4  The restart of a group waits STOP_GRACE_S for the handler of each member. Then a handler that awaits is
     cancelled. If it does not end even so, because it blocks in a thread perhaps, the group is restarted
     without this member, which is restarted when its handler has ended.

The decision is made here, on the loop, and not in a handler of the supervisor: a supervisor that is busy does
not keep its children waiting.
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

# Raised to end the program, or by the loop when it drops a task. These are not failures of an actor.
EXIT_EXCEPTIONS: Final = (GeneratorExit, KeyboardInterrupt, SystemExit)


def handle_failure(cell: Cell, error: BaseException) -> None:
    """Suspend a cell whose handler or restart has failed, and let its supervisor decide."""
    # A stop has abandoned the cell before its handler ended (`lifecycle`).
    if cell.state is CellState.STOPPED:
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
        cell.suspend()
        if cell.supervisor is None:
            supervise_failure(cell.system, None, cell.ref, error)
        else:
            cell.supervisor._send_signal(Failed(cell.ref, error))


def _log_failure(cell: Cell, error: BaseException) -> None:
    if cell.actor is not None and isinstance(error, cell.actor.expected_errors):
        log.info("actor failed (actor=%s error=%r)", cell.ref, error)
    else:
        log.warning("actor failed (actor=%s error=%r)", cell.ref, error, exc_info=error)


@dataclass(frozen=True, eq=False)
class PendingRestart:
    """An exclusive action that restarts an actor. If the actor fails while the action is queued, the action
    runs at once, and the supervisor does not decide again (`handle_failure`)."""

    action: ExclusiveAction

    def __call__(self) -> None:
        self.action()


def _take_pending_restart(cell: Cell) -> PendingRestart | None:
    for item in cell.system_queue or ():
        if isinstance(item, PendingRestart):
            assert cell.system_queue is not None
            cell.system_queue.remove(item)
            return item
    return None


def supervise_failure(
    system: ActorSystem, supervisor_cell: Cell | None, child: Ref, reason: BaseException
) -> None:
    """Decide about the failure of a child, and carry the decision out. Without a cell the guardian is the
    supervisor."""
    children = (
        system._guardian if supervisor_cell is None else supervisor_cell.ensure_links().children
    )
    if children.defer_failure(child, reason):
        return
    match children.decide(child, reason, system._clock.time()):
        case RestartOne(ref):
            ref._send_signal(Restart(reason))
        case RestartGroup(group, refs):
            # Registered now and not in the task: another member may fail before the task runs.
            children.group_restarts[group] = dict.fromkeys(refs)
            system._start_task(
                _restart_group(system, supervisor_cell, children, group, refs, reason)
            )
        case StopChildren(refs):
            for ref in reversed(refs):
                ref._send_signal(Stop(reason))
            if supervisor_cell is None:
                log.error(
                    "actor given up: stopped by its strategy (actor=%s error=%r)", child, reason
                )
                system._publish_event(GivenUp(child, reason))
            else:
                supervisor_cell.enqueue_system(ChildFailed(child, reason))
        case never:
            assert_never(never)


def restart_cell(cell: Cell, reason: BaseException) -> None:
    """Restart an actor as soon as no handler of it runs."""
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
    """End all instances of a group in reverse order, then start new ones in order (FA1). Members on other nodes
    are signalled, and not waited for."""
    failures = children.group_restarts[group]
    local_cells = [cell for ref in refs if (cell := local_cell(ref)) is not None]
    for ref in refs:
        if local_cell(ref) is None:
            ref._send_signal(Restart(reason))
    ended_cells = []
    try:
        for cell in reversed(local_cells):
            if cell.restart_type is TEMPORARY:
                stop(cell, reason)
                await wait_stopped(cell)
            elif await _claim_member(cell, reason):
                await _end_instance(cell, reason)
                ended_cells.append(cell)
            failures[cell.ref] = None  # its failures before this point need no other restart
        for cell in reversed(ended_cells):
            await _start_instance(cell, reason)
    finally:  # otherwise every later failure of the group would be deferred
        del children.group_restarts[group]
    for ref, error in failures.items():
        if error is not None:
            supervise_failure(system, supervisor_cell, ref, error)


async def _claim_member(cell: Cell, reason: BaseException) -> bool:
    """Wait until the handler of a group member has ended, and claim its cell. Returns False if the actor stops,
    or if its handler does not end in time (RS4)."""
    claimed: asyncio.Future[bool] = cell.system._loop.create_future()
    if cell.state is CellState.STOPPED:
        return False

    def on_claimed() -> None:
        if claimed.done():  # the group was restarted without this member (RS4)
            cell.system._start_task(_restart(cell, reason))
        else:
            claimed.set_result(True)

    def on_grace_over() -> None:
        log.warning(
            "restart of a group delayed: handler does not end (actor=%s grace_s=%g)",
            cell.ref,
            STOP_GRACE_S,
        )
        if cell.task is not None:
            cell.task.cancel()
        else:
            resolve_once(claimed, False)

    call_later = cell.system._clock.call_later
    timers = [
        call_later(STOP_GRACE_S, on_grace_over),
        call_later(2 * STOP_GRACE_S, resolve_once, claimed, False),
    ]
    try:
        with stop_callback(cell, partial(resolve_once, claimed, False)):
            cell.run_exclusively(PendingRestart(on_claimed))
            return await claimed
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
        log.exception("pre_restart failed (actor=%s)", cell.ref)
    finally:
        current_cell.reset(token)
    run_instance_end_callbacks(cell)
    if actor is None or not actor.keeps_children:
        await stop_children(cell)
    cell.actor = None  # this instance has ended: a stop must not call its `post_stop` again


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
    except Exception as error:  # noqa: BLE001  one more failure, with the same budget (RS3)
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
