"""The message types of an actor: the classes that it declares as `Actor[...]`.

    class Book(Actor[Place | Cancel])      accepts Place, Cancel, and subclasses of them

TA1  A message of another class fails with UnhandledMessageError. Without this check, a `match` in `receive`
     that has no case for the message would drop it silently.
TA2  A declaration that classes cannot express accepts every message: Any, Literal, an unbound type variable, a
     name that cannot be resolved. Of list[int] only the list is checked.
TA3  The declaration applies to `receive`. Behaviours that are set by `become` accept every message.

Events, replies to messages that the actor told, and messages of its timers are messages, and must be declared;
signals are not. A declaration is resolved when the first instance of its class is created, so it may name
classes that are defined below it.
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

# None accepts every message (TA2).
MessageClasses: TypeAlias = tuple[type, ...] | None

# The limit of cached subclasses, because programs may create classes at runtime.
SUBCLASSES_MAX: Final = 1000

# The types that type checkers accept in place of these.
PROMOTIONS: Final[dict[Any, tuple[type, ...]]] = {
    float: (int,),
    complex: (float, int),
    bytes: (bytearray, memoryview),
}


class MessageTypes(set[type]):
    """The declared classes, and those of their subclasses that were received so far."""

    __slots__ = ("_declared",)

    def __init__(self, declared: tuple[type, ...]) -> None:
        super().__init__(declared)
        self._declared = declared

    def find_handler(self, cell: Cell) -> Behaviour:
        """Return the handler of the current message of a cell, whose class is not in this set (TA1)."""
        assert cell.actor is not None
        message = cell.envelope[0]
        try:
            if not isinstance(message, self._declared):
                return cell.actor.unhandled
        except Exception:  # noqa: BLE001  a runtime protocol may evaluate properties of the message
            return cell.behaviour
        if len(self) < SUBCLASSES_MAX:
            self.add(type(message))
        return cell.behaviour


_cache: WeakKeyDictionary[type, MessageTypes | None] = WeakKeyDictionary()


def message_types_of(cell: Cell) -> MessageTypes | None:
    """Return the message types of the current behaviour; None if it accepts every message (TA3)."""
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
    except Exception:  # noqa: BLE001  resolving a name can raise anything (TA2)
        return None
    return None if message_classes is None else MessageTypes(message_classes)


def _declared_classes(
    actor_class: type, type_arguments: Mapping[Any, MessageClasses]
) -> Iterator[MessageClasses]:
    """Yield the declaration of each base class. `type_arguments` are those of the class itself."""
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
            # Without arguments the type variables accept everything.
            parameters = getattr(origin, "__parameters__", ()) if arguments else ()
            yield from _declared_classes(origin, dict(zip(parameters, arguments, strict=True)))


def _resolve_names(annotation: Any, actor_class: type) -> Any:
    """Replace names by the classes that they denote in the module of the actor."""
    module = vars(sys.modules[actor_class.__module__])
    return get_type_hints(SimpleNamespace(__annotations__={"declared": annotation}), module)[
        "declared"
    ]


def _classes_of(annotation: Any, type_arguments: Mapping[Any, MessageClasses]) -> MessageClasses:
    """Return the classes of a type."""
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
    """Return whether `isinstance` accepts a class; it rejects some protocols."""
    try:
        isinstance(None, cls)
    except TypeError:
        return False
    return cls is not object


def _union(parts: Iterator[MessageClasses]) -> MessageClasses:
    found: list[type] = []
    for classes in parts:
        if classes is None:
            return None
        found += classes
    return tuple(found) or None
