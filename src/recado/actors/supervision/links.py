"""The relations of a cell to other actors: children, monitors, ties. `Links` also holds other state that most
cells do not have (kept behaviours, callbacks), so it is created on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .children import Children
from .signals import Link, Tie, Unlink, Untie, Unwatch, Watch

if TYPE_CHECKING:
    from recado.actors.ref import ActorRef
    from recado.actors.runtime.cell import Behaviour, Cell

    from .strategy import SupervisorStrategy

Ref: TypeAlias = "ActorRef[Any]"


class Links:
    __slots__ = (
        "behaviour_stack",
        "children",
        "instance_end_callbacks",
        "is_stopping_children",
        "stop_callbacks",
        "ties",
        "watched",
        "watchers",
    )

    def __init__(self, default_strategy: SupervisorStrategy) -> None:
        self.children: Children[Ref] = Children(default_strategy)
        # Sets in the order of insertion.
        self.watchers: dict[Ref, None] = {}
        self.watched: dict[Ref, None] = {}
        self.ties: dict[Ref, None] = {}
        # The behaviours that `unbecome` returns to.
        self.behaviour_stack: list[Behaviour] = []
        # Called when this instance of the actor ends: they cancel its timers and requeue its stashed messages.
        self.instance_end_callbacks: list[Callable[[], None]] = []
        # Called when the actor has stopped.
        self.stop_callbacks: list[Callable[[], None]] = []
        # Whether a stop or restart waits for the children to stop.
        self.is_stopping_children = False


def supervises(cell: Cell, ref: Ref) -> bool:
    """Return whether `ref` is the actor of this cell or one of its descendants.

    Such an actor must not supervise the cell: no actor could stop a cycle of supervisors. The search ends at
    supervisors on other nodes.
    """
    while ref != cell.ref:
        descendant = cell.system._find_cell(ref.address)
        if descendant is None or descendant.supervisor is None:
            return False
        ref = descendant.supervisor
    return True


# --- called by Actor, on the loop's thread ----------------------------------------------------------


def link(cell: Cell, ref: Ref, strategy: SupervisorStrategy | None) -> None:
    cell.ensure_links().children.add(ref, strategy)
    ref._send_signal(Link(cell.ref))


def unlink(cell: Cell, ref: Ref) -> None:
    if cell.ensure_links().children.remove(ref):
        ref._send_signal(Unlink(cell.ref))


def monitor(cell: Cell, ref: Ref) -> None:
    cell.ensure_links().watched[ref] = None
    ref._send_signal(Watch(cell.ref))


def unmonitor(cell: Cell, ref: Ref) -> None:
    cell.ensure_links().watched.pop(ref, None)
    ref._send_signal(Unwatch(cell.ref))


def tie(cell: Cell, ref: Ref) -> None:
    cell.ensure_links().ties[ref] = None
    ref._send_signal(Tie(cell.ref))


def untie(cell: Cell, ref: Ref) -> None:
    cell.ensure_links().ties.pop(ref, None)
    ref._send_signal(Untie(cell.ref))
