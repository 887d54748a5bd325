"""Which actors here are bound to actors elsewhere, and what follows when a node falls silent or comes back.

Nothing here sends or tells the time: the node asks, and does what it is told.

Signals travel as they are, so a watched actor's death is confirmed by its own node: Down with the reason.
What no signal can tell is that a node is gone. Then this does: Down whose reason is an Unreachable, and
nobody knows more.

V1  A bond is entered by the signal that makes it, on both sides, and ends by the signal that ends it.
V2  When a node has been silent for too long, each actor that is bound to one of its own is told, once; then the
    bonds are gone.
V3  When a node comes back before that, or in another life, the bonds that were made here are made there again,
    with the actors of before (V6): one that is not there any more is confirmed dead by that.
V4  There are no more bonds made by others than the limit.
V5  Who was bound by its name alone is called so in what follows from the bond: those who made it know no other.
V6  A bond is with one incarnation of an actor. If it was made by name, the actor's node says which uid has the
    name, and the bond is made again with that one only. If the first word of another life of the node comes
    before that, the signal reached the last life or this one. A *probe* tells: the same signal, for a uid that
    no actor has. Its answer says that the actor is dead, and comes after the uid if this life got the signal.
    If the signal was sent twice by then, the actor is dead.
V7  A bond has a token, which is in all that follows from it. So the end of an earlier bond of the same two
    actors, told late or twice, does not end the present one.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from recado.actors.errors import ActorError, NoSuchActor, Unreachable
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
# Those made here, by the signals that make them; a tie is made by either side.
_MADE_BY: Final[dict[Kind, type[Watch | Link | Tie]]] = {
    Kind.WATCHES: Watch,
    Kind.SUPERVISES: Link,
    Kind.TIED: Tie,
}
NO_UID: Final = 2**63 - 1  # larger than those of actors


class Bond(NamedTuple):
    kind: Kind
    here: Ref
    there: Ref


class Marks(NamedTuple):
    """What is said of a bond in signals, beside the two actors."""

    token: int = 0
    """Given by the node that made the bond (V7)."""
    called: str = ""
    """How the other node calls the actor here, if not by its full address (V5)."""
    uid: int = 0
    """Of the actor there, if it was bound by name and its node has said which one that is (V6)."""
    probe: int = 0
    """The token of the last probe, if there was one (V6)."""
    is_repeated: bool = False
    """Whether the signal was sent again before the uid was known (V6)."""

    def is_ended_by(self, token: int) -> bool:
        """Whether the end that was told with this token is that of the bond. Nodes that give none mean any."""
        if token and token == self.probe:
            return not self.uid
        return token in (0, self.token)


UNMARKED: Final = Marks()


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
        self._token = 0  # the last one
        self.bonds: dict[str, dict[Bond, Marks]] = {}  # by node; one without bonds is not in it

    def __len__(self) -> int:
        return sum(map(len, self.bonds.values()))

    # ── what passes by ────────────────────────────────────────────────────────────────────────────────────

    def sent(self, there: Ref, signal: CellSignal) -> Marks:
        """What has to be said with it."""
        match signal:
            case Watch(here):
                return self._make(Bond(Kind.WATCHES, here, there))
            case Unwatch(here):
                return self._discard(Bond(Kind.WATCHES, here, there))
            case Down(here, _):
                return self._discard(Bond(Kind.WATCHED, here, there))
            case Link(here):
                return self._make(Bond(Kind.SUPERVISES, here, there))
            case Unlink(here):
                return self._discard(Bond(Kind.SUPERVISES, here, there))
            case Failed(here, _):
                return self._marks(Bond(Kind.SUPERVISED, here, there)) or UNMARKED
            case Ended(here, _):
                return self._discard(Bond(Kind.SUPERVISED, here, there))
            case Tie(here):
                return self._make(Bond(Kind.TIED, here, there))
            case Untie(here) | Exit(here, _):
                return self._discard(Bond(Kind.TIED, here, there))
            case _:
                return UNMARKED

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

    def heard(self, here: Ref, signal: CellSignal, called: str = "", token: int = 0) -> bool:
        """`called` is how they call the actor here, if not by its own address. False: it is about an earlier
        bond, and the actor must not hear of it (V7). Raises Full."""
        match signal:
            case Watch(there):
                self._add(Bond(Kind.WATCHED, here, there), Marks(token, called))
            case Unwatch(there):
                self._discard(Bond(Kind.WATCHED, here, there))
            case Down(there, _):
                return self._end(Bond(Kind.WATCHES, here, there), token)
            case Link(there):
                self._add(Bond(Kind.SUPERVISED, here, there), Marks(token, called))
            case Unlink(there):
                self._discard(Bond(Kind.SUPERVISED, here, there))
            case Ended(there, _):
                return self._end(Bond(Kind.SUPERVISES, here, there), token)
            case Tie(there):
                tied = Bond(Kind.TIED, here, there)
                if self._marks(tied) is None:  # or it is ours, and the other side makes it again
                    self._add(tied, Marks(token, called))
            case Untie(there) | Exit(there, _):
                tied = Bond(Kind.TIED, here, there)
                marks = self._marks(tied) or UNMARKED
                if token and token == marks.probe and marks.uid:
                    return False
                self._discard(tied)
            case _:
                pass
        return True

    def identified(self, here: Ref, named: Ref, uid: int, token: int) -> None:
        """The actor that a bond of ours calls by name has this uid (V6)."""
        for kind in _MADE_BY:
            bond = Bond(kind, here, named)
            marks = self._marks(bond)
            if marks is not None and marks.token == token and not marks.uid:
                self.bonds[named.address.node][bond] = marks._replace(uid=uid)

    def supervised(self, child: Ref, supervisor: Ref) -> None:
        """An actor was started here for a supervisor there. Raises Full."""
        self._add(Bond(Kind.SUPERVISED, child, supervisor))

    def _make(self, bond: Bond) -> Marks:
        """Here. One that is there already stays as it is: it is with the same actor (V6)."""
        marks = self._marks(bond)
        if marks is None:
            self._token += 1
            marks = Marks(self._token)
            self._add(bond, marks)
        elif _is_by_name(bond, marks):
            if marks.probe:
                return marks._replace(token=marks.probe, uid=NO_UID)
            self._add(bond, marks._replace(is_repeated=True))
        return marks

    def _add(self, bond: Bond, marks: Marks = UNMARKED) -> None:
        bonds = self.bonds.setdefault(bond.there.address.node, {})
        if bond not in bonds and bond.kind in _MADE_THERE:
            if self._made_there >= self._limit:
                self._prune(bond.there.address.node)
                raise Full(f"{self._limit} bonds were made by other nodes already")
            self._made_there += 1
        bonds[bond] = marks

    def _marks(self, bond: Bond) -> Marks | None:
        return self.bonds.get(bond.there.address.node, {}).get(bond)

    def _end(self, bond: Bond, token: int) -> bool:
        """They say that it has ended: whether it was this one."""
        marks = self._marks(bond)
        if marks is not None and not marks.is_ended_by(token):
            return False
        self._discard(bond)
        return True

    def _discard(self, bond: Bond) -> Marks:
        node = bond.there.address.node
        bonds = self.bonds.get(node, {})
        marks = bonds.pop(bond, None)
        if marks is not None:
            self._made_there -= bond.kind in _MADE_THERE
        self._prune(node)
        return marks or UNMARKED

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
                case Kind.WATCHES | Kind.SUPERVISES | Kind.TIED:
                    effects += _bereaved(kind, here, there, reason)
                case Kind.WATCHED:
                    effects.append(Told(here, Unwatch(there)))
                case Kind.SUPERVISED:
                    effects.append(Orphan(here, there, reason))
        return effects

    def back(self, node: str, *, reborn: bool) -> list[Effect]:
        """It speaks again; `reborn` if it is another life, in which nobody of the last one is left."""
        bonds = self.bonds.get(node, {})
        effects: list[Effect] = []
        for bond, marks in list(bonds.items()):
            match bond.kind:
                case Kind.WATCHES | Kind.SUPERVISES | Kind.TIED:
                    if reborn and _is_by_name(bond, marks):
                        if marks.is_repeated:
                            self._discard(bond)
                            gone = NoSuchActor(f"{bond.there} is gone: its node began another life")
                            effects += _bereaved(*bond, gone)
                            continue
                        self._token += 1
                        self._add(bond, marks._replace(probe=self._token))
                    effects.append(Told(bond.there, _MADE_BY[bond.kind](bond.here)))
                case Kind.WATCHED | Kind.SUPERVISED if reborn:
                    self._discard(bond)
                    effects.append(_parted(bond))
                case Kind.SUPERVISED:
                    reason = Unreachable(f"{bond.there} was out of reach for a moment")
                    effects.append(Orphan(bond.here, bond.there, reason, parted=False))
                case Kind.WATCHED:
                    pass
        return effects


def _is_by_name(bond: Bond, marks: Marks) -> bool:
    """Whether it is not known which actor it is with (V6)."""
    return not (bond.there.address.uid or marks.uid)


def _parted(bond: Bond) -> Effect:
    """Who made it there is gone."""
    if bond.kind is Kind.WATCHED:
        return Told(bond.here, Unwatch(bond.there))
    reason = Unreachable(f"{bond.there} is gone: its node began another life")
    return Orphan(bond.here, bond.there, reason)


def _bereaved(kind: Kind, here: Ref, there: Ref, reason: ActorError) -> list[Effect]:
    """What an actor here is told that has bound itself to one that is gone."""
    match kind:
        case Kind.WATCHES:
            return [Told(here, Down(there, reason))]
        case Kind.SUPERVISES:
            return [Told(here, Ended(there, reason)), Told(here, Exhausted(there, reason))]
        case _:
            return [Told(here, Exit(there, reason))]


def undelivered(there: Ref, signal: CellSignal, why: str) -> list[Effect]:
    """A signal certainly did not arrive: what its sender would hear if the actor there were gone."""
    reason = Unreachable(f"{there} is out of reach: {why}")
    match signal:
        case Watch(here):
            return _bereaved(Kind.WATCHES, here, there, reason)
        case Link(here):
            return _bereaved(Kind.SUPERVISES, here, there, reason)
        case Tie(here):
            return _bereaved(Kind.TIED, here, there, reason)
        case Failed(child, failure):
            return [Told(child, Stop(failure))]
        case _:
            return []
