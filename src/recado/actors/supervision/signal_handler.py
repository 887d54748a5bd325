"""How a cell handles a signal, and how an address without an actor replies to one. On the loop's thread."""

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
        # A temporary actor gets a Restart when its group is restarted by another node.
        case Restart(reason) if cell.restart_type is TEMPORARY:
            stop(cell, reason)
        case Restart(reason):
            restart_cell(cell, reason)
        case Failed(ref, reason):
            supervise_failure(cell.system, cell, ref, reason)
        case Ended(ref, _):
            cell.ensure_links().children.remove(ref)
        case Link(supervisor) if supervises(cell, supervisor):
            cycle = AlreadyLinkedError(
                f"{supervisor} is supervised by {cell.ref}, directly or indirectly"
            )
            supervisor._send_signal(Ended(cell.ref, cycle))
        case Link(supervisor) if cell.supervisor in (None, supervisor):
            cell.system._guardian.remove(cell.ref)
            cell.supervisor = supervisor
        case Link(supervisor):
            taken = AlreadyLinkedError(f"{cell.ref} is supervised by {cell.supervisor}")
            supervisor._send_signal(Ended(cell.ref, taken))
        case Unlink(supervisor):
            if cell.supervisor == supervisor:
                cell.supervisor = None
        case Watch(watcher):
            cell.ensure_links().watchers[watcher] = None
        case Unwatch(watcher):
            cell.ensure_links().watchers.pop(watcher, None)
        case Tie(peer):
            cell.ensure_links().ties[peer] = None
        case Untie(peer):
            cell.ensure_links().ties.pop(peer, None)
        case Exit(ref, reason):
            if ref in cell.ensure_links().ties:
                stop(cell, reason)
        case Down(ref, _):
            # Dropped if the actor is not monitored any more.
            if cell.ensure_links().watched.pop(ref, cell) is None:
                cell.enqueue_system(signal)
        case ChildFailed():
            cell.enqueue_system(signal)
        case never:
            assert_never(never)


def reply_for_absent(ref: Ref, signal: CellSignal) -> None:
    """Reply to a signal for an address without an actor."""
    if (reply := absent_reply(ref, signal)) is not None:
        recipient, reply_signal = reply
        recipient._send_signal(reply_signal)


def absent_reply(
    ref: Ref, signal: CellSignal, absent_address: Address | None = None
) -> tuple[Ref, CellSignal] | None:
    """Return the recipient and the signal that reply for an absent actor; None if no reply is due.
    `absent_address` is its address, if that differs from the one of `ref`."""
    absent = NoSuchActorError(f"{absent_address or ref} does not exist")
    match signal:
        case Watch(watcher):
            return watcher, Down(ref, absent)
        case Tie(peer):
            return peer, Exit(ref, absent)
        case Failed(child, reason):
            return child, Stop(reason)
        case Link(supervisor):
            return supervisor, Ended(ref, absent)
        case _:
            return None
