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
    from .runtime.cell import Behaviour, Cell

# None: anything (TA2).
MessageClasses: TypeAlias = tuple[type, ...] | None

# How many classes that are derived from the declared ones are remembered. Programs may make them as they go.
SUBCLASSES_MAX: Final = 1000

# What type checkers take for these as well.
PROMOTIONS: Final[dict[Any, tuple[type, ...]]] = {
    float: (int,),
    complex: (float, int),
    bytes: (bytearray, memoryview),
}


class MessageTypes(set[type]):
    """The classes of messages that some actors take: those that were declared, and what was derived from them
    as far as it was met."""

    __slots__ = ("_declared",)

    def __init__(self, declared: tuple[type, ...]) -> None:
        super().__init__(declared)
        self._declared = declared

    def find_handler(self, cell: Cell) -> Behaviour:
        """What handles the letter of a cell, which is of a class that is not among these yet (TA1)."""
        assert cell.actor is not None
        message = cell.envelope[0]
        try:
            if not isinstance(message, self._declared):
                return cell.actor.unhandled
        except Exception:  # noqa: BLE001  a protocol asks the message's properties, which are anybody's
            return cell.behaviour
        if len(self) < SUBCLASSES_MAX:
            self.add(type(message))
        return cell.behaviour


_cache: WeakKeyDictionary[type, MessageTypes | None] = WeakKeyDictionary()


def message_types_of(cell: Cell) -> MessageTypes | None:
    """What its behaviour takes; None: anything (TA3)."""
    actor = cell.actor
    if actor is None or cell.behaviour != actor.receive:
        return None
    actor_class = type(actor)
    try:
        return _cache[actor_class]
    except KeyError:
        message_types = _cache[actor_class] = _read_declaration(actor_class)
        return message_types


def _read_declaration(actor_class: type[Actor[Any]]) -> MessageTypes | None:
    try:
        message_classes = _union(_declared_classes(actor_class, {}))
    except Exception:  # noqa: BLE001  names that are not to be found can fail in any way (TA2)
        return None
    return None if message_classes is None else MessageTypes(message_classes)


def _declared_classes(
    actor_class: type, type_arguments: Mapping[Any, MessageClasses]
) -> Iterator[MessageClasses]:
    """What each base of a class says. `meant` are the type variables of the class."""
    for base in actor_class.__dict__.get("__orig_bases__", actor_class.__bases__):
        origin = get_origin(base) or base
        if not issubclass(origin, Actor):
            continue
        arguments = [
            _classes_of(_resolve_names(part, actor_class), type_arguments)
            for part in get_args(base)
        ]
        if origin is Actor:
            yield arguments[0] if arguments else None
        else:
            # Without arguments, they mean anything.
            parameters = getattr(origin, "__parameters__", ()) if arguments else ()
            yield from _declared_classes(origin, dict(zip(parameters, arguments, strict=True)))


def _resolve_names(annotation: Any, actor_class: type) -> Any:
    """With the classes instead of their names, as the module of the actor knows them."""
    module = vars(sys.modules[actor_class.__module__])
    return get_type_hints(SimpleNamespace(__annotations__={"said": annotation}), module)["said"]


def _classes_of(annotation: Any, type_arguments: Mapping[Any, MessageClasses]) -> MessageClasses:
    """The classes of a type."""
    if isinstance(annotation, TypeVar):
        return type_arguments.get(annotation)
    if isinstance(annotation, NewType):
        return _classes_of(annotation.__supertype__, type_arguments)
    origin, parts = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, UnionType):
        return _union(_classes_of(part, type_arguments) for part in parts)
    if origin is Annotated:
        return _classes_of(parts[0], type_arguments)
    if not isinstance(origin, type) and hasattr(origin, "__value__"):  # a `type` statement
        arguments = (_classes_of(part, type_arguments) for part in parts)
        return _classes_of(
            origin.__value__, dict(zip(origin.__type_params__, arguments, strict=False))
        )
    return (origin, *PROMOTIONS.get(origin, ())) if _supports_isinstance(origin) else None


def _supports_isinstance(cls: Any) -> bool:
    """Whether `isinstance` knows an answer: some protocols, for one, have none."""
    try:
        isinstance(None, cls)
    except TypeError:
        return False
    return cls is not object


def _union(parts: Iterator[MessageClasses]) -> MessageClasses:
    found: list[type] = []
    for kinds in parts:
        if kinds is None:
            return None
        found += kinds
    return tuple(found) or None
