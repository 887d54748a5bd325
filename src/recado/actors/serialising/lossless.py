"""Which values msgspec writes and reads again as they were, given their declared type.

msgspec writes a struct in C and reads it by the types of its fields: 0.2 µs each. It writes a Decimal, a date,
an Enum or a set as what MessagePack and JSON have instead, so a value arrives as it was only if its type is
exactly the declared one, and the declaration leaves no choice. That is checked here before a value is written;
all else is written with its types (tagged.py), which takes some ten times as long.

    order: int            an int, and no bool          price: float   a finite float, and no int
    side: Side            a member of this Enum        order: Bid | Ask, Any, Sequence[int]   never

LO1  A value that a Shape accepts is read again as it was, by msgspec's decoder for the declared type, in
     MessagePack and in JSON.

A Shape looks at many values at a time: `{*map(type, values)}` takes 12 ns for each, a call in Python 100.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable, Sequence
from itertools import chain
from math import isfinite
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec

from recado.actors.ref import ActorRef

from .declarations import Field, fields_of
from .faults import CannotSerialise

Look: TypeAlias = Callable[[Sequence[Any]], bool]
Check: TypeAlias = Callable[[Any], bool]

_PRIMITIVES: Final = frozenset({types.NoneType, bool, int, float, str})
_KEYS: Final = frozenset({int, str})


class Shape:
    """What values have to be: of one of these types, and `look` at those of them that have more to see.
    `look_at` is the same for a single one."""

    __slots__ = ("look", "look_at", "types")

    def __init__(
        self, kinds: frozenset[type], look: Look | None = None, look_at: Check | None = None
    ) -> None:
        self.types = kinds
        self.look = look
        self.look_at = look_at
        if look is not None and look_at is None:
            self.look_at = lambda value: look((value,))

    def accepts_one(self, value: Any) -> bool:
        return type(value) in self.types and (self.look_at is None or self.look_at(value))

    def accepts(self, values: Sequence[Any]) -> bool:
        return {*map(type, values)} <= self.types and (self.look is None or self.look(values))


def _finite(values: Sequence[float]) -> bool:
    return all(map(isfinite, values))


def _in_utc(values: Sequence[datetime.datetime]) -> bool:
    """Without a time zone, or in UTC: MessagePack keeps the instant only, JSON the offset only."""
    utc = datetime.UTC
    return all((v.tzinfo is None or v.tzinfo is utc) and not v.fold for v in values)


def _without_zone(values: Sequence[datetime.time]) -> bool:
    return all(v.tzinfo is None and not v.fold for v in values)


_LEAVES: Final[dict[Any, Shape]] = {
    **{
        kind: Shape(frozenset({kind}))
        for kind in (
            types.NoneType, bool, int, str, bytes, bytearray,
            decimal.Decimal, uuid.UUID, datetime.date, datetime.timedelta, ActorRef,
        )
    },
    float: Shape(frozenset({float}), _finite, isfinite),
    datetime.datetime: Shape(frozenset({datetime.datetime}), _in_utc),
    datetime.time: Shape(frozenset({datetime.time}), _without_zone),
}  # fmt: skip


def shape_of(annotation: Any) -> Shape | None:
    """That of values of a declared type; None if no value of it can be told from others that look alike."""
    shape = _shape(annotation, frozenset())
    if shape is not None:
        try:
            msgspec.msgpack.Decoder(annotation, dec_hook=_any)
        except TypeError:  # two types that msgspec cannot tell apart
            return None
    return shape


def _any(_: type, value: object) -> object:
    return value


def _shape(annotation: Any, within: frozenset[Any]) -> Shape | None:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None:
        return _LEAVES[types.NoneType]
    if isinstance(annotation, typing.NewType):
        return _shape(annotation.__supertype__, within)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, within)
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is ActorRef:
        return _LEAVES[ActorRef]
    if origin in (list, set, frozenset):
        return _container(origin, arguments[0], within)
    if origin is tuple:
        return _tuple(arguments, within)
    if origin is dict:
        return _dict(arguments, within)
    if not isinstance(annotation, type) or annotation in within or origin is not None:
        return None  # a struct that contains itself: checked by the writer of tagged values, to a depth
    if annotation in _LEAVES:
        return _LEAVES[annotation]
    if issubclass(annotation, enum.Enum):
        return _enum(annotation)
    if issubclass(annotation, msgspec.Struct):
        return _struct(annotation, within)
    return None


def _enum(cls: type[enum.Enum]) -> Shape | None:
    kinds = {type(member.value) for member in cls}
    plain = kinds in ({int}, {str}) and not issubclass(cls, enum.Flag)
    return Shape(frozenset({cls})) if plain else None


def _literal(values: tuple[Any, ...]) -> Shape:
    allowed = {(type(value), value) for value in values}

    def look(column: Sequence[Any]) -> bool:
        return {*zip(map(type, column), column, strict=True)} <= allowed

    return Shape(frozenset(type(value) for value in values), look)


def _union(members: tuple[Any, ...], within: frozenset[Any]) -> Shape | None:
    shapes = [shape for each in members if (shape := _shape(each, within)) is not None]
    if len(shapes) < len(members):
        return None
    kinds = frozenset(chain.from_iterable(shape.types for shape in shapes))
    others = [each for each in members if each not in _PRIMITIVES]
    tagged = all(_has_tag(each) for each in others)
    if len(others) > 1 and not tagged:
        return None
    if len(others) == 1 and not tagged and not {*members} <= {*others, types.NoneType}:
        return None
    looks = [(shape.types, shape.look) for shape in shapes if shape.look is not None]

    def look(column: Sequence[Any]) -> bool:
        return all(
            of(chosen)
            for kinds, of in looks
            if (chosen := [value for value in column if type(value) in kinds])
        )

    return Shape(kinds, look if looks else None)


def _has_tag(cls: Any) -> bool:
    return (
        isinstance(cls, type)
        and issubclass(cls, msgspec.Struct)
        and cls.__struct_config__.tag is not None
    )


def _container(kind: type, element: Any, within: frozenset[Any]) -> Shape | None:
    shape = _shape(element, within)
    if shape is None:
        return None
    accepts = shape.accepts

    def look(column: Sequence[Any]) -> bool:
        return accepts(column[0] if len(column) == 1 else [*chain.from_iterable(column)])

    def look_at_sets(column: Sequence[Any]) -> bool:
        return accepts([*chain.from_iterable(column)])

    if kind is not list:
        return Shape(frozenset({kind}), look_at_sets)
    return Shape(frozenset({kind}), look, accepts)


def _tuple(arguments: tuple[Any, ...], within: frozenset[Any]) -> Shape | None:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        shape = _container(list, arguments[0], within)
        return None if shape is None else Shape(frozenset({tuple}), shape.look, shape.look_at)
    shapes = [shape for each in arguments if (shape := _shape(each, within)) is not None]
    if not shapes or len(shapes) < len(arguments):
        return None
    length = len(shapes)

    def look(column: Sequence[Any]) -> bool:
        return all(len(value) == length for value in column) and all(
            shape.accepts([value[at] for value in column]) for at, shape in enumerate(shapes)
        )

    return Shape(frozenset({tuple}), look)


def _dict(arguments: tuple[Any, ...], within: frozenset[Any]) -> Shape | None:
    keys, values = (_shape(each, within) for each in arguments)
    # Of other keys, JSON has only the text.
    if keys is None or values is None or not keys.types <= _KEYS or len(keys.types) > 1:
        return None
    key_shape, value_shape = keys, values

    def look(column: Sequence[Any]) -> bool:
        return key_shape.accepts([*chain.from_iterable(column)]) and value_shape.accepts(
            [*chain.from_iterable(each.values() for each in column)]
        )

    return Shape(frozenset({dict}), look)


def _struct(cls: type[msgspec.Struct], within: frozenset[Any]) -> Shape | None:
    try:
        fields = fields_of(cls)
    except CannotSerialise:
        return None
    shapes = [_shape(field.annotation, within | {cls}) for field in fields]
    if not all(shape is not None for shape in shapes):
        return None
    columns = [
        (attrgetter(field.name), shape)
        for field, shape in zip(fields, shapes, strict=True)
        if shape is not None
    ]
    post_init = hasattr(cls, "__post_init__")

    def look(column: Sequence[Any]) -> bool:
        return all(shape.accepts([*map(of, column)]) for of, shape in columns) and (
            not post_init or all(map(stays, column))
        )

    return Shape(frozenset({cls}), look, _compiled(cls, fields, shapes))


def _compiled(
    cls: type[msgspec.Struct], fields: Sequence[Field], shapes: Sequence[Shape | None]
) -> Check:
    """A function for one struct of this class: 0.2 µs for three fields, where a loop over them takes 1.2.

    type(v.order) is t0 and type(v.price) is t1 and look1(v.price)
    """
    known: dict[str, Any] = {"stays": stays}
    parts = ["True"]
    for at, (field, shape) in enumerate(zip(fields, shapes, strict=True)):
        assert shape is not None
        kinds = tuple(shape.types)
        known[f"t{at}"] = kinds[0] if len(kinds) == 1 else shape.types
        parts.append(f"type(v.{field.name}) {'is' if len(kinds) == 1 else 'in'} t{at}")
        if shape.look_at is not None:
            known[f"look{at}"] = shape.look_at
            parts.append(f"look{at}(v.{field.name})")
    if hasattr(cls, "__post_init__"):
        parts.append("stays(v)")
    check: Check = eval(f"lambda v: {' and '.join(parts)}", known)
    return check


def stays(value: Any) -> bool:
    """Whether an instance that is made of the fields of this one has the same: its `__post_init__` may raise,
    or change them."""
    cls = type(value)
    try:
        again = cls(**{field.name: getattr(value, field.name) for field in fields_of(cls)})
        return all(
            same(getattr(again, field.name), getattr(value, field.name)) for field in fields_of(cls)
        )
    except Exception:  # noqa: BLE001  its constructor is anybody's, and so is what it is compared by
        return False


def same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))
