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

from recado.actors.future import interrupted
from recado.actors.occurrences import GivenUp, Restarted
from recado.actors.ref import ActorRef, current
from recado.actors.running.cell import NOTHING, Cell, Hold
from recado.actors.running.state import State

from .family import Family, GiveUp, RestartGroup, RestartOne
from .lifecycle import (
    GRACE,
    end,
    end_instance,
    farewell,
    gone,
    instantiate,
    local,
    resolve,
    stop,
    stop_children,
)
from .signals import Exhausted, Failed, Restart, Stop
from .supervision import TEMPORARY, AllForOne

if TYPE_CHECKING:
    from recado.actors.system import ActorSystem

log = logging.getLogger("recado.actors")

Ref: TypeAlias = ActorRef[Any]

# Raised to end the program, or by the loop when it drops a task: no failures of an actor.
ENDINGS: Final = (GeneratorExit, KeyboardInterrupt, SystemExit)


def failed(cell: Cell, error: BaseException) -> None:
    """A handler has failed, or a restart; the cell is held, and is until this is decided (CE4)."""
    if cell.state is State.STOPPED:  # it was left behind
        return
    _note(cell, error)
    if cell.doom is not None:
        end(cell, cell.doom[0])
    elif (verdict := _pending(cell)) is not None:
        verdict()
    elif cell.lifecycle is TEMPORARY:
        cell.doom = (error,)
        end(cell, error)
    else:
        cell.suspended = True
        if cell.supervisor is None:
            judge(cell.system, None, cell.ref, error)
        else:
            cell.supervisor.signal(Failed(cell.ref, error))


def _note(cell: Cell, error: BaseException) -> None:
    if cell.actor is not None and isinstance(error, cell.actor.expected):
        log.info("%s failed: %r", cell.ref, error)
    else:
        log.warning("%s failed: %r", cell.ref, error, exc_info=error)


@dataclass(frozen=True, eq=False)
class Verdict:
    """A hold by which an actor is restarted. If it fails before, this is the answer to that as well."""

    carry_out: Hold

    def __call__(self) -> None:
        self.carry_out()


def _pending(cell: Cell) -> Verdict | None:
    for first in cell.urgent or ():
        if isinstance(first, Verdict):
            assert cell.urgent is not None
            cell.urgent.remove(first)
            return first
    return None


def judge(system: ActorSystem, owner: Cell | None, child: Ref, reason: BaseException) -> None:
    """A child of `owner`, or of the system itself, has failed: decide, and do it."""
    family = system.guardian if owner is None else owner.bonds().family
    if family.fails_meanwhile(child, reason):
        return
    match family.decide(child, reason, system.clock.time()):
        case RestartOne(ref):
            ref.signal(Restart(reason))
        case RestartGroup(group, refs):
            # From now on, not from when the task begins: another one may fail in between.
            family.rebuilding[group] = dict.fromkeys(refs)
            system.keep(_rebuild(system, owner, family, group, refs, reason))
        case GiveUp(refs):
            for ref in reversed(refs):
                ref.signal(Stop(reason))
            if owner is None:
                log.error("%s is given up: %r", child, reason)
                system.publish(GivenUp(child, reason))
            else:
                owner.urge(Exhausted(child, reason))
        case never:
            assert_never(never)


def restart(cell: Cell, reason: BaseException) -> None:
    cell.hold(Verdict(lambda: cell.system.keep(_restart(cell, reason))))


async def _restart(cell: Cell, reason: BaseException) -> None:
    await _take_down(cell, reason)
    await _put_up(cell, reason)


async def _rebuild(
    system: ActorSystem,
    owner: Cell | None,
    family: Family[Ref],
    group: AllForOne,
    refs: tuple[Ref, ...],
    reason: BaseException,
) -> None:
    """Restart a group, as a house is rebuilt (FA1). Those on other nodes are told to, and not waited for."""
    again = family.rebuilding[group]
    here = [cell for ref in refs if (cell := local(ref)) is not None]
    for ref in refs:
        if local(ref) is None:
            ref.signal(Restart(reason))
    down = []
    try:
        for cell in reversed(here):
            if cell.lifecycle is TEMPORARY:
                stop(cell, reason)
                await gone(cell)
            elif await _held(cell, reason):
                await _take_down(cell, reason)
                down.append(cell)
            again[cell.ref] = None  # whatever it failed by meanwhile, this is the answer to it
        for cell in reversed(down):
            await _put_up(cell, reason)
    finally:  # or no failure of the group would be answered any more
        del family.rebuilding[group]
    for ref, error in again.items():
        if error is not None:
            judge(system, owner, ref, error)


async def _held(cell: Cell, reason: BaseException) -> bool:
    """Wait for its handler to end; False if it has stopped meanwhile, or is going to, or does not end (RS4)."""
    holding: asyncio.Future[bool] = cell.system.loop.create_future()
    if cell.state is State.STOPPED:
        return False

    def reached() -> None:
        if holding.done():  # the others did not wait
            cell.system.keep(_restart(cell, reason))
        else:
            holding.set_result(True)

    def impatient() -> None:
        log.warning("%s is to be restarted with its group, and its handler does not end", cell.ref)
        if cell.task is not None:
            cell.task.cancel()
        else:
            resolve(holding, False)

    call_later = cell.system.clock.call_later
    timers = [call_later(GRACE, impatient), call_later(2 * GRACE, resolve, holding, False)]
    try:
        with farewell(cell, partial(resolve, holding, False)):
            cell.hold(Verdict(reached))
            return await holding
    finally:
        for timer in timers:
            timer.cancel()


async def _take_down(cell: Cell, reason: BaseException) -> None:
    actor, message = cell.actor, cell.letter[0]
    token = current.set(cell)
    try:
        if actor is not None and (going := actor.pre_restart(reason, message)) is not None:
            await going
    except ENDINGS:
        raise
    except BaseException:
        log.exception("pre_restart of %s failed", cell.ref)
    finally:
        current.reset(token)
    end_instance(cell)
    if actor is None or not actor.keeps_children:
        await stop_children(cell)
    cell.actor = None  # it has ended, and is not to be told so again by a stop


async def _put_up(cell: Cell, reason: BaseException) -> None:
    if cell.doom is not None:
        end(cell, cell.doom[0])
        return
    cell.letter = NOTHING
    token = current.set(cell)
    try:
        if (starting := instantiate(cell)) is not None:
            await starting
        assert cell.actor is not None
        if (going := cell.actor.post_restart(reason)) is not None:
            await going
    except ENDINGS:
        raise
    except Exception as error:  # noqa: BLE001  one more failure, with the same budget
        failed(cell, error)
        return
    except BaseException as error:  # noqa: BLE001  as above
        failed(cell, interrupted(cell.ref, error))
        return
    finally:
        current.reset(token)
    cell.restarts += 1
    cell.system.publish(Restarted(cell.ref, reason))
    cell.rest()
