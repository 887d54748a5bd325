"""What ties a cell to others. Most cells have none of it, so it is made when it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from .family import Family
from .signals import Link, Tie, Unlink, Untie, Unwatch, Watch

if TYPE_CHECKING:
    from recado.actors.ref import ActorRef
    from recado.actors.running.cell import Behaviour, Cell

    from .supervision import Supervision

Ref: TypeAlias = "ActorRef[Any]"


class Bonds:
    __slots__ = (
        "behaviours", "endings", "family", "farewells", "parting", "ties", "watched", "watchers",
    )  # fmt: skip

    def __init__(self, default: Supervision) -> None:
        self.family: Family[Ref] = Family(default)
        self.watchers: dict[Ref, None] = {}
        self.watched: dict[Ref, None] = {}
        self.ties: dict[Ref, None] = {}
        # Those before the present one, for unbecome.
        self.behaviours: list[Behaviour] = []
        # Called when this instance of the actor ends: its timers, its subscriptions.
        self.endings: list[Callable[[], None]] = []
        # Called when the actor has stopped; who waits for that no longer takes its own out again.
        self.farewells: list[Callable[[], None]] = []
        # It waits until those that it supervises have stopped.
        self.parting = False


def supervises(cell: Cell, ref: Ref) -> bool:
    """Whether it does so, by others perhaps, or is it: to be supervised by that one would make a circle, which
    nobody could stop. Only those of this node are known."""
    while ref != cell.ref:
        below = cell.system.cell(ref.address)
        if below is None or below.supervisor is None:
            return False
        ref = below.supervisor
    return True


# --- what a handler may do, on the loop's thread ----------------------------------------------------


def link(cell: Cell, ref: Ref, supervision: Supervision | None) -> None:
    cell.bonds().family.link(ref, supervision)
    ref.signal(Link(cell.ref))


def unlink(cell: Cell, ref: Ref) -> None:
    if cell.bonds().family.unlink(ref):
        ref.signal(Unlink(cell.ref))


def monitor(cell: Cell, ref: Ref) -> None:
    cell.bonds().watched[ref] = None
    ref.signal(Watch(cell.ref))


def unmonitor(cell: Cell, ref: Ref) -> None:
    cell.bonds().watched.pop(ref, None)
    ref.signal(Unwatch(cell.ref))


def tie(cell: Cell, ref: Ref) -> None:
    cell.bonds().ties[ref] = None
    ref.signal(Tie(cell.ref))


def untie(cell: Cell, ref: Ref) -> None:
    cell.bonds().ties.pop(ref, None)
    ref.signal(Untie(cell.ref))
