"""What a cell does about a signal, and what an address answers where nobody lives. On the loop's thread."""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from recado.actors.address import Address
from recado.actors.errors import AlreadyLinked, NoSuchActor
from recado.actors.ref import ActorRef
from recado.actors.running.cell import Cell
from recado.actors.running.state import State

from .bonds import supervises
from .lifecycle import stop
from .restart import judge, restart
from .signals import (
    CellSignal,
    Down,
    Ended,
    Exhausted,
    Exit,
    Failed,
    Link,
    Restart,
    Stop,
    Tie,
    Unlink,
    Untie,
    Unwatch,
    Watch,
)
from .supervision import TEMPORARY

Ref: TypeAlias = ActorRef[Any]


def hear(cell: Cell, signal: CellSignal) -> None:
    if cell.state is State.STOPPED:
        echo(cell.ref, signal)
        return
    match signal:
        case Stop(reason):
            stop(cell, reason)
        case Restart(reason) if cell.lifecycle is TEMPORARY:  # with its group, by another node
            stop(cell, reason)
        case Restart(reason):
            restart(cell, reason)
        case Failed(ref, reason):
            judge(cell.system, cell, ref, reason)
        case Ended(ref, _):
            cell.bonds().family.unlink(ref)
        case Link(supervisor) if supervises(cell, supervisor):
            circle = AlreadyLinked(f"{supervisor} is supervised by {cell.ref}, if not at once")
            supervisor.signal(Ended(cell.ref, circle))
        case Link(supervisor) if cell.supervisor in (None, supervisor):
            cell.system.guardian.unlink(cell.ref)
            cell.supervisor = supervisor
        case Link(supervisor):
            taken = AlreadyLinked(f"{cell.ref} is supervised by {cell.supervisor}")
            supervisor.signal(Ended(cell.ref, taken))
        case Unlink(supervisor):
            if cell.supervisor == supervisor:
                cell.supervisor = None
        case Watch(by):
            cell.bonds().watchers[by] = None
        case Unwatch(by):
            cell.bonds().watchers.pop(by, None)
        case Tie(to):
            cell.bonds().ties[to] = None
        case Untie(to):
            cell.bonds().ties.pop(to, None)
        case Exit(ref, reason):
            if ref in cell.bonds().ties:
                stop(cell, reason)
        case Down(ref, _):
            # Who does not monitor it any more does not hear of it.
            if cell.bonds().watched.pop(ref, cell) is None:
                cell.urge(signal)
        case Exhausted():
            cell.urge(signal)
        case never:
            assert_never(never)


def echo(ref: Ref, signal: CellSignal) -> None:
    """Answer for an address without an actor."""
    if (answer := answer_for_absent(ref, signal)) is not None:
        to, said = answer
        to.signal(said)


def answer_for_absent(
    ref: Ref, signal: CellSignal, gone: Address | None = None
) -> tuple[Ref, CellSignal] | None:
    """The recipient and the signal that answer for an absent actor, if any. `gone` is its address, if that is
    not the one of `ref`."""
    absent = NoSuchActor(f"{gone or ref} is not there")
    match signal:
        case Watch(by):
            return by, Down(ref, absent)
        case Tie(to):
            return to, Exit(ref, absent)
        case Failed(child, reason):
            return child, Stop(reason)
        case Link(supervisor):
            return supervisor, Ended(ref, absent)
        case _:
            return None
