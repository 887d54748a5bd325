"""Which actors here are bound to actors elsewhere, and what follows when a node falls silent or comes back.

Nothing here sends or tells the time: the node asks, and does what it is told.

Signals travel as they are, so a watched actor's death is confirmed by its own node: Down with the reason.
What no signal can tell is that a node is gone. Then this does: Down whose reason is an Unreachable, and
nobody knows more.

V1  A bond is entered by the signal that makes it, on both sides, and ends by the signal that ends it.
V2  When a node has been silent for too long, each actor that is bound to one of its own is told, once; then the
    bonds are gone.
V3  When a node comes back before that, or in another life, the bonds that were made here are made there again:
    an actor that is not there any more is confirmed dead by that.
V4  There are no more bonds made by others than the limit.
V5  Who was bound by its name alone is called so in what follows from the bond: those who made it know no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias

from recado.actors.errors import Unreachable
from recado.actors.failing.signals import (
    CellSignal,
    Down,
    Ended,
    Exhausted,
    Exit,
    Failed,
    Link,
    Stop,
    Tie,
    Unlink,
    Untie,
    Unwatch,
    Watch,
)
from recado.actors.ref import ActorRef
from recado.actors.remote.faults import Full

Ref: TypeAlias = ActorRef[Any]


class Kind(Enum):
    WATCHES = auto()  # the actor here watches the one there
    WATCHED = auto()
    SUPERVISES = auto()
    SUPERVISED = auto()
    TIED = auto()


_MADE_THERE = (Kind.WATCHED, Kind.SUPERVISED)


class Bond(NamedTuple):
    kind: Kind
    here: Ref
    there: Ref


class Orphan(NamedTuple):
    """The supervisor of an actor here is gone, or only what the two said to each other is (`parted` is False).

    Nobody will decide about a failure that is not decided yet.
    """

    child: Ref
    supervisor: Ref
    reason: Unreachable
    parted: bool = True


class Told(NamedTuple):
    """A signal for an actor, here or there."""

    ref: Ref
    signal: CellSignal


Effect: TypeAlias = Told | Orphan


class Vigil:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._made_there = 0
        self.bonds: dict[str, dict[Bond, str]] = {}  # by node; one without bonds is not in it

    def __len__(self) -> int:
        return sum(map(len, self.bonds.values()))

    # ── what passes by ────────────────────────────────────────────────────────────────────────────────────

    def sent(self, there: Ref, signal: CellSignal) -> str:
        """How the actor in it is called there, if not by its own address (V5)."""
        match signal:
            case Watch(here):
                self._add(Bond(Kind.WATCHES, here, there))
            case Unwatch(here):
                self._discard(Bond(Kind.WATCHES, here, there))
            case Down(here, _):
                return self._discard(Bond(Kind.WATCHED, here, there))
            case Link(here):
                self._add(Bond(Kind.SUPERVISES, here, there))
            case Unlink(here):
                self._discard(Bond(Kind.SUPERVISES, here, there))
            case Failed(here, _):
                return self._called(Bond(Kind.SUPERVISED, here, there))
            case Ended(here, _):
                return self._discard(Bond(Kind.SUPERVISED, here, there))
            case Tie(here):
                self._add(Bond(Kind.TIED, here, there))
            case Untie(here) | Exit(here, _):
                return self._discard(Bond(Kind.TIED, here, there))
            case _:
                pass
        return ""

    def unsent(self, there: Ref, signal: CellSignal) -> None:
        """It was sent, and refused."""
        match signal:
            case Watch(here):
                self._discard(Bond(Kind.WATCHES, here, there))
            case Link(here):
                self._discard(Bond(Kind.SUPERVISES, here, there))
            case Tie(here):
                self._discard(Bond(Kind.TIED, here, there))
            case _:
                pass

    def heard(self, here: Ref, signal: CellSignal, called: str = "") -> None:
        """`called` is how they call the actor here, if not by its own address. Raises Full."""
        match signal:
            case Watch(there):
                self._add(Bond(Kind.WATCHED, here, there), called)
            case Unwatch(there):
                self._discard(Bond(Kind.WATCHED, here, there))
            case Down(there, _):
                self._discard(Bond(Kind.WATCHES, here, there))
            case Link(there):
                self._add(Bond(Kind.SUPERVISED, here, there), called)
            case Unlink(there):
                self._discard(Bond(Kind.SUPERVISED, here, there))
            case Ended(there, _):
                self._discard(Bond(Kind.SUPERVISES, here, there))
            case Tie(there):
                self._add(Bond(Kind.TIED, here, there), called)
            case Untie(there) | Exit(there, _):
                self._discard(Bond(Kind.TIED, here, there))
            case _:
                pass

    def supervised(self, child: Ref, supervisor: Ref) -> None:
        """An actor was started here for a supervisor there. Raises Full."""
        self._add(Bond(Kind.SUPERVISED, child, supervisor))

    def _add(self, bond: Bond, called: str = "") -> None:
        bonds = self.bonds.setdefault(bond.there.address.node, {})
        if bond not in bonds and bond.kind in _MADE_THERE:
            if self._made_there >= self._limit:
                self._prune(bond.there.address.node)
                raise Full(f"{self._limit} bonds were made by other nodes already")
            self._made_there += 1
        bonds[bond] = called

    def _called(self, bond: Bond) -> str:
        return self.bonds.get(bond.there.address.node, {}).get(bond, "")

    def _discard(self, bond: Bond) -> str:
        node = bond.there.address.node
        bonds = self.bonds.get(node, {})
        called = bonds.pop(bond, None)
        if called is not None:
            self._made_there -= bond.kind in _MADE_THERE
        self._prune(node)
        return called or ""

    def _prune(self, node: str) -> None:
        if not self.bonds.get(node, True):
            del self.bonds[node]

    # ── silence and return ────────────────────────────────────────────────────────────────────────────────

    def silent(self, node: str, why: str) -> list[Effect]:
        """Nobody knows what is there any more."""
        bonds = self.bonds.pop(node, {})
        self._made_there -= sum(bond.kind in _MADE_THERE for bond in bonds)
        effects: list[Effect] = []
        for kind, here, there in bonds:
            reason = Unreachable(f"{there} is out of reach: {why}")
            match kind:
                case Kind.WATCHES:
                    effects.append(Told(here, Down(there, reason)))
                case Kind.WATCHED:
                    effects.append(Told(here, Unwatch(there)))
                case Kind.SUPERVISES:
                    effects.append(Told(here, Ended(there, reason)))
                    effects.append(Told(here, Exhausted(there, reason)))
                case Kind.SUPERVISED:
                    effects.append(Orphan(here, there, reason))
                case Kind.TIED:
                    effects.append(Told(here, Exit(there, reason)))
        return effects

    def back(self, node: str, *, reborn: bool) -> list[Effect]:
        """It speaks again; `reborn` if it is another life, in which nobody of the last one is left."""
        bonds = self.bonds.get(node, {})
        effects: list[Effect] = []
        for bond in list(bonds):
            match bond.kind:
                case Kind.WATCHES:
                    effects.append(Told(bond.there, Watch(bond.here)))
                case Kind.SUPERVISES:
                    effects.append(Told(bond.there, Link(bond.here)))
                case Kind.TIED:
                    effects.append(Told(bond.there, Tie(bond.here)))
                case Kind.WATCHED | Kind.SUPERVISED if reborn:
                    self._discard(bond)
                    effects += self._bereaved(bond)
                case Kind.SUPERVISED:
                    reason = Unreachable(f"{bond.there} was out of reach for a moment")
                    effects.append(Orphan(bond.here, bond.there, reason, parted=False))
                case Kind.WATCHED:
                    pass
        return effects

    def _bereaved(self, bond: Bond) -> Iterable[Effect]:
        if bond.kind is Kind.WATCHED:
            yield Told(bond.here, Unwatch(bond.there))
        else:
            reason = Unreachable(f"{bond.there} is gone: its node began another life")
            yield Orphan(bond.here, bond.there, reason)


def undelivered(there: Ref, signal: CellSignal, why: str) -> list[Effect]:
    """A signal certainly did not arrive: what its sender would hear if the actor there were gone."""
    reason = Unreachable(f"{there} is out of reach: {why}")
    match signal:
        case Watch(here):
            return [Told(here, Down(there, reason))]
        case Link(here):
            return [Told(here, Ended(there, reason)), Told(here, Exhausted(there, reason))]
        case Tie(here):
            return [Told(here, Exit(there, reason))]
        case Failed(child, failure):
            return [Told(child, Stop(failure))]
        case _:
            return []
