"""Messages: values that are sent to actors, and that nobody changes afterwards.

    class Ack(Message[None]):
        order: int

    class Place(Message[Ack]):      # whoever asks this is answered by an Ack
        order: int
        price: Decimal

ME1  What a handler is given cannot be changed by whoever sent it: it is immutable, or it is a copy.

Whether a message is immutable is decided by its class, once: a frozen struct or dataclass whose fields are of
immutable types. Everything else is copied each time it is sent, which takes microseconds instead of nothing.
A class that holds what cannot be copied says `by_reference: ClassVar[bool] = True`, and its users keep ME1
themselves.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import types
import typing
import uuid
from copy import deepcopy
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

import msgspec

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Message(msgspec.Struct, Generic[R_co], frozen=True):
    """A frozen struct that knows the type of its reply; `Message[None]` if there is none to speak of."""

    by_reference: ClassVar[bool] = False


# The types that are sent as they are. Looked up at each tell: 30 ns, where asking anew would be 2,000.
shareable_types: set[type] = {
    bool, int, float, complex, str, bytes, types.NoneType, range, type,
    decimal.Decimal, fractions.Fraction, uuid.UUID,
    datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
}  # fmt: skip
# Those that were found to be mutable, so that the search is not repeated.
_copied_types: set[type] = set()


def isolate(message: T) -> T:
    """What may be given to somebody else: the message, or a copy of it (ME1)."""
    message_class = type(message)
    if message_class in shareable_types:
        return message
    if message_class not in _copied_types:
        if getattr(message_class, "by_reference", False) is True or is_immutable(message_class):
            shareable_types.add(message_class)
            return message
        _copied_types.add(message_class)
    return deepcopy(message)


def is_immutable(annotation: Any, enclosing: frozenset[Any] = frozenset()) -> bool:
    """Whether values of this type cannot change. A type that contains itself is, if the rest of it is."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return is_immutable(arguments[0], enclosing)
    if isinstance(annotation, typing.NewType):
        return is_immutable(annotation.__supertype__, enclosing)
    if annotation is None or origin is typing.Literal or annotation in enclosing:
        return True
    if origin in (typing.Union, types.UnionType, tuple, frozenset):
        return all(each is Ellipsis or is_immutable(each, enclosing) for each in arguments)
    cls = origin or annotation
    if not isinstance(cls, type):
        return False
    if (
        cls in shareable_types
        or issubclass(cls, enum.Enum)
        or getattr(cls, "by_reference", False) is True
    ):
        return True
    return _is_frozen(cls) and _fields_are_immutable(cls, enclosing | {annotation})


def _is_frozen(cls: type) -> bool:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_config__.frozen
    return dataclasses.is_dataclass(cls) and bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _fields_are_immutable(cls: type, enclosing: frozenset[Any]) -> bool:
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError:  # a name that only the type checker sees, or a class inside of a function
        return False
    fields = (hint for hint in hints.values() if typing.get_origin(hint) is not ClassVar)
    return all(is_immutable(hint, enclosing) for hint in fields)
