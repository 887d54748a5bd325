"""What a cell does about a signal, and what an address answers where nobody lives. On the loop's thread."""

from __future__ import annotations

from typing import Any, TypeAlias, assert_never

from recado.actors.address import Address
from recado.actors.errors import AlreadyLinkedError, NoSuchActorError
from recado.actors.ref import ActorRef
from recado.actors.runtime.cell import Cell
from recado.actors.runtime.state import CellState

from .lifecycle import stop
from .links import supervises
from .restart import restart_cell, supervise_failure
from .signals import (
    CellSignal,
    ChildFailed,
    Down,
    Ended,
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
from .strategy import TEMPORARY

Ref: TypeAlias = ActorRef[Any]


def handle_signal(cell: Cell, signal: CellSignal) -> None:
    if cell.state is CellState.STOPPED:
        reply_for_absent(cell.ref, signal)
        return
    match signal:
        case Stop(reason):
            stop(cell, reason)
        case Restart(reason) if cell.restart_type is TEMPORARY:  # with its group, by another node
            stop(cell, reason)
        case Restart(reason):
            restart_cell(cell, reason)
        case Failed(ref, reason):
            supervise_failure(cell.system, cell, ref, reason)
        case Ended(ref, _):
            cell.ensure_links().children.remove(ref)
        case Link(supervisor) if supervises(cell, supervisor):
            circle = AlreadyLinkedError(f"{supervisor} is supervised by {cell.ref}, if not at once")
            supervisor._send_signal(Ended(cell.ref, circle))
        case Link(supervisor) if cell.supervisor in (None, supervisor):
            cell.system._guardian.remove(cell.ref)
            cell.supervisor = supervisor
        case Link(supervisor):
            taken = AlreadyLinkedError(f"{cell.ref} is supervised by {cell.supervisor}")
            supervisor._send_signal(Ended(cell.ref, taken))
        case Unlink(supervisor):
            if cell.supervisor == supervisor:
                cell.supervisor = None
        case Watch(by):
            cell.ensure_links().watchers[by] = None
        case Unwatch(by):
            cell.ensure_links().watchers.pop(by, None)
        case Tie(to):
            cell.ensure_links().ties[to] = None
        case Untie(to):
            cell.ensure_links().ties.pop(to, None)
        case Exit(ref, reason):
            if ref in cell.ensure_links().ties:
                stop(cell, reason)
        case Down(ref, _):
            # Who does not monitor it any more does not hear of it.
            if cell.ensure_links().watched.pop(ref, cell) is None:
                cell.enqueue_system(signal)
        case ChildFailed():
            cell.enqueue_system(signal)
        case never:
            assert_never(never)


def reply_for_absent(ref: Ref, signal: CellSignal) -> None:
    """Answer for an address without an actor."""
    if (answer := absent_reply(ref, signal)) is not None:
        to, answer_signal = answer
        to._send_signal(answer_signal)


def absent_reply(
    ref: Ref, signal: CellSignal, absent_address: Address | None = None
) -> tuple[Ref, CellSignal] | None:
    """The recipient and the signal that answer for an absent actor, if any. `gone` is its address, if that is
    not the one of `ref`."""
    absent = NoSuchActorError(f"{absent_address or ref} is not there")
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
