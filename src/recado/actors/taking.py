"""What an actor takes: the classes of messages that it was declared with.

    class Book(Actor[Place | Cancel])      Place, Cancel, and what is derived from them

TA1  What was not declared is Unhandled when it comes, also where a `match` has no case for it.
TA2  Nothing is refused for a declaration that classes cannot express: Any, Literal, an open type variable, a
     name that is not to be found. Of list[int], the list is asked for.
TA3  It is `receive` that the declaration is about. What else an actor becomes says itself what it takes.

Events, answers to what it told and its own timers are messages like any, so they are declared, too; signals are
none. A declaration is read when the first instance of its class is made: it may name what is defined below it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    NewType,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from weakref import WeakKeyDictionary

from .actor import Actor

if TYPE_CHECKING:
    from .running.cell import Behaviour, Cell

# None: anything (TA2).
Kinds: TypeAlias = tuple[type, ...] | None

# How many classes that are derived from the declared ones are remembered. Programs may make them as they go.
REMEMBERED_MOST: Final = 1000

# What type checkers take for these as well.
ALSO: Final[dict[Any, tuple[type, ...]]] = {
    float: (int,),
    complex: (float, int),
    bytes: (bytearray, memoryview),
}


class Taken(set[type]):
    """The classes of messages that some actors take: those that were declared, and what was derived from them
    as far as it was met."""

    __slots__ = ("_declared",)

    def __init__(self, declared: tuple[type, ...]) -> None:
        super().__init__(declared)
        self._declared = declared

    def handler(self, cell: Cell) -> Behaviour:
        """What handles the letter of a cell, which is of a class that is not among these yet (TA1)."""
        assert cell.actor is not None
        message = cell.letter[0]
        try:
            if not isinstance(message, self._declared):
                return cell.actor.unhandled
        except Exception:  # noqa: BLE001  a protocol asks the message's properties, which are anybody's
            return cell.behaviour
        if len(self) < REMEMBERED_MOST:
            self.add(type(message))
        return cell.behaviour


_read: WeakKeyDictionary[type, Taken | None] = WeakKeyDictionary()


def taken_by(cell: Cell) -> Taken | None:
    """What its behaviour takes; None: anything (TA3)."""
    actor = cell.actor
    if actor is None or cell.behaviour != actor.receive:
        return None
    kind = type(actor)
    try:
        return _read[kind]
    except KeyError:
        taken = _read[kind] = _read_declaration(kind)
        return taken


def _read_declaration(kind: type[Actor[Any]]) -> Taken | None:
    try:
        kinds = _together(_declared(kind, {}))
    except Exception:  # noqa: BLE001  names that are not to be found can fail in any way (TA2)
        return None
    return None if kinds is None else Taken(kinds)


def _declared(actor: type, meant: Mapping[Any, Kinds]) -> Iterator[Kinds]:
    """What each base of a class says. `meant` are the type variables of the class."""
    for base in actor.__dict__.get("__orig_bases__", actor.__bases__):
        origin = get_origin(base) or base
        if not issubclass(origin, Actor):
            continue
        said = [_kinds(_resolved(part, actor), meant) for part in get_args(base)]
        if origin is Actor:
            yield said[0] if said else None
        else:
            # Without arguments, they mean anything.
            parameters = getattr(origin, "__parameters__", ()) if said else ()
            yield from _declared(origin, dict(zip(parameters, said, strict=True)))


def _resolved(said: Any, actor: type) -> Any:
    """With the classes instead of their names, as the module of the actor knows them."""
    module = vars(sys.modules[actor.__module__])
    return get_type_hints(SimpleNamespace(__annotations__={"said": said}), module)["said"]


def _kinds(said: Any, meant: Mapping[Any, Kinds]) -> Kinds:
    """The classes of a type."""
    if isinstance(said, TypeVar):
        return meant.get(said)
    if isinstance(said, NewType):
        return _kinds(said.__supertype__, meant)
    origin, parts = get_origin(said) or said, get_args(said)
    if origin in (Union, UnionType):
        return _together(_kinds(part, meant) for part in parts)
    if origin is Annotated:
        return _kinds(parts[0], meant)
    if not isinstance(origin, type) and hasattr(origin, "__value__"):  # a `type` statement
        arguments = (_kinds(part, meant) for part in parts)
        return _kinds(origin.__value__, dict(zip(origin.__type_params__, arguments, strict=False)))
    return (origin, *ALSO.get(origin, ())) if _can_be_asked(origin) else None


def _can_be_asked(kind: Any) -> bool:
    """Whether `isinstance` knows an answer: some protocols, for one, have none."""
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return kind is not object


def _together(several: Iterator[Kinds]) -> Kinds:
    found: list[type] = []
    for kinds in several:
        if kinds is None:
            return None
        found += kinds
    return tuple(found) or None
