"""Which values msgspec encodes and decodes without loss, given their declared type.

msgspec encodes a struct in C and decodes it by the types of its fields: 0.2 µs each. But it encodes a Decimal,
a date, an Enum or a set as the nearest type of MessagePack or JSON. So a value is decoded as it was only if its
type is exactly the declared one, and the declaration is unambiguous. That is checked here before a value is
encoded; all other values are encoded with their types (tagged_codec.py), which takes about ten times as long.

    order: int            an int, not a bool           price: float   a finite float, not an int
    side: Side            a member of this Enum        order: Bid | Ask, Any, Sequence[int]   never

LO1  A value that the check of its declared type accepts is decoded as it was, by msgspec's decoder for that
     type, in MessagePack and in JSON.

The check of a declared type is compiled to Python functions, one for each loop. The check of list[Tick] is

    lambda v: type(v) is k2 and k1(v)               k2 is list
    def k1(values):
        for v in values:
            if not (type(v) is k0 and type(v.at) is …):
                return False
        return True

which takes 35 ns for a struct of three fields. Iterating over the fields at run time takes 120 ns.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import keyword
import types
import typing
import uuid
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec

from recado.actors.ref import ActorRef

from .declared_types import fields_of, type_check
from .errors import SerializationError

LosslessCheck: TypeAlias = Callable[[Any], bool]

_PRIMITIVES: Final = (types.NoneType, bool, int, float, str)


def _is_naive_or_utc(value: datetime.datetime) -> bool:
    """Return whether a datetime survives: MessagePack keeps only the instant, JSON only the offset."""
    return (value.tzinfo is None or value.tzinfo is datetime.UTC) and not value.fold


def _is_naive(value: datetime.time) -> bool:
    return value.tzinfo is None and not value.fold


# The types without parts, and an additional check of their values.
_LEAF_CHECKS: Final[dict[type, LosslessCheck | None]] = {
    types.NoneType: None,
    bool: None,
    int: None,  # more than 64 bits raise when they are encoded
    float: isfinite,
    str: None,
    bytes: None,
    bytearray: None,
    decimal.Decimal: None,
    uuid.UUID: None,
    datetime.date: None,
    datetime.datetime: _is_naive_or_utc,
    datetime.time: _is_naive,
    datetime.timedelta: None,
    ActorRef: None,
}


def lossless_check(annotation: Any) -> LosslessCheck | None:
    """Return the check for values of a declared type (LO1); None if it would accept no value."""
    compiler = _CheckCompiler()
    condition = compiler.condition(annotation, "v")
    if condition is None:
        return None
    try:
        msgspec.msgpack.Decoder(annotation, dec_hook=_return_value)
    except TypeError:  # a union that msgspec cannot distinguish
        return None
    return compiler.function(condition)


def _return_value(_: type, value: object) -> object:
    return value


class _CheckCompiler:
    """Compiles conditions: Python source that is true if the value of another source expression is accepted."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {}  # the globals of the generated code
        # For each struct class, the condition for the fields of a struct in the variable `v`, and the name of a
        # function with that condition, for structs in other expressions such as `v.order`.
        self._structs: dict[type, str | None] = {}
        self._functions: dict[type, str] = {}

    def function(self, condition: str) -> LosslessCheck:
        function: LosslessCheck = eval(f"lambda v: {condition}", self._names)
        return function

    def condition(self, annotation: Any, value: str) -> str | None:
        """Return the condition for a type; None if its values cannot be distinguished from those of other
        types."""
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if annotation is None:
            return self._type_condition(types.NoneType, value)
        if isinstance(annotation, typing.NewType):
            return self.condition(annotation.__supertype__, value)
        if origin is typing.Annotated:
            limits = self._call(type_check(annotation), value)
            return _conjunction(self.condition(arguments[0], value), limits)
        if origin in (typing.Union, types.UnionType):
            return self._union_condition(arguments, value)
        if origin is typing.Literal:
            return self._literal_condition(arguments, value)
        if origin is ActorRef:
            return self._type_condition(ActorRef, value)
        if origin in (list, set, frozenset):
            return self._type_condition(
                origin, value, self._elements_condition(arguments[0], value)
            )
        if origin is tuple:
            return self._tuple_condition(arguments, value)
        if origin is dict:
            return self._dict_condition(arguments, value)
        if not isinstance(annotation, type) or origin is not None:
            return None
        if annotation in _LEAF_CHECKS:
            required = _LEAF_CHECKS[annotation]
            more = () if required is None else (self._call(required, value),)
            return self._type_condition(annotation, value, *more)
        if issubclass(annotation, enum.Enum):
            return self._type_condition(annotation, value) if _is_plain_enum(annotation) else None
        if issubclass(annotation, msgspec.Struct):
            return self._struct_condition(annotation, value)
        return None

    def _bind(self, thing: Any) -> str:
        name = f"k{len(self._names)}"
        self._names[name] = thing
        return name

    def _call(self, check: LosslessCheck, value: str) -> str:
        return f"{self._bind(check)}({value})"

    def _type_condition(self, kind: type, value: str, *more: str | None) -> str | None:
        return _conjunction(f"type({value}) is {self._bind(kind)}", *more)

    def _union_condition(self, members: tuple[Any, ...], value: str) -> str | None:
        conditions = [self.condition(each, value) for each in members]
        known = [condition for condition in conditions if condition is not None]
        if len(known) < len(conditions):
            return None
        # msgspec distinguishes primitive types and tagged structs; of other types it allows one, besides None.
        others = [each for each in members if each not in _PRIMITIVES]
        tagged = all(_has_tag(each) for each in others)
        if not tagged and any(each not in (others[0], types.NoneType) for each in members):
            return None
        return f"({' or '.join(known)})"

    def _literal_condition(self, values: tuple[Any, ...], value: str) -> str:
        kinds = self._bind(frozenset(type(each) for each in values))
        allowed = self._bind(frozenset((type(each), each) for each in values))
        return f"type({value}) in {kinds} and (type({value}), {value}) in {allowed}"

    def _elements_condition(self, element: Any, values: str) -> str | None:
        """Return the condition for all elements of a container."""
        condition = self.condition(element, "v")
        if condition is None:
            return None
        name = self._bind(None)
        lines = (
            f"def {name}(values):",
            "    for v in values:",
            f"        if not ({condition}):",
            "            return False",
            "    return True",
        )
        exec("\n".join(lines), self._names)
        return f"{name}({values})"

    def _tuple_condition(self, arguments: tuple[Any, ...], value: str) -> str | None:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return self._type_condition(tuple, value, self._elements_condition(arguments[0], value))
        if not arguments:
            return None
        elements = [self.condition(each, f"{value}[{at}]") for at, each in enumerate(arguments)]
        return self._type_condition(tuple, value, f"len({value}) == {len(arguments)}", *elements)

    def _dict_condition(self, arguments: tuple[Any, ...], value: str) -> str | None:
        key, element = arguments
        if not _is_json_key(key):
            return None
        return self._type_condition(
            dict,
            value,
            self._elements_condition(key, value),
            self._elements_condition(element, f"{value}.values()"),
        )

    def _struct_condition(self, cls: type[msgspec.Struct], value: str) -> str | None:
        fields = self._fields_condition(cls)
        if fields is None:
            return None
        if value != "v":
            if cls not in self._functions:
                self._functions[cls] = self._bind(self.function(fields))
            fields = f"{self._functions[cls]}({value})"
        return self._type_condition(cls, value, fields)

    def _fields_condition(self, cls: type[msgspec.Struct]) -> str | None:
        if cls not in self._structs:
            # None for a struct that contains itself: the tagged codec encodes it, to a limited depth.
            self._structs[cls] = None
            self._structs[cls] = self._compile_fields(cls)
        return self._structs[cls]

    def _compile_fields(self, cls: type[msgspec.Struct]) -> str | None:
        try:
            fields = fields_of(cls)
        except SerializationError:
            return None
        conditions = [
            self.condition(each.annotation, _attribute_source(each.name)) for each in fields
        ]
        if cls.__dictoffset__:
            conditions.append("not v.__dict__")  # attributes that are not fields
        if hasattr(cls, "__post_init__"):
            conditions.append(self._call(survives_rebuild, "v"))
        return _conjunction("True", *conditions)


def _conjunction(*conditions: str | None) -> str | None:
    known = [condition for condition in conditions if condition is not None]
    return " and ".join(known) if len(known) == len(conditions) else None


def _attribute_source(name: str) -> str:
    return f"getattr(v, {name!r})" if keyword.iskeyword(name) else f"v.{name}"


def _is_plain_enum(cls: type[enum.Enum]) -> bool:
    kinds = {type(member.value) for member in cls}
    return kinds in ({int}, {str}) and not issubclass(cls, enum.Flag)


def _has_tag(cls: Any) -> bool:
    return (
        isinstance(cls, type)
        and issubclass(cls, msgspec.Struct)
        and cls.__struct_config__.tag is not None
    )


def _is_json_key(annotation: Any) -> bool:
    """Return whether JSON objects, whose keys are text, can have keys of this type."""
    if isinstance(annotation, typing.NewType):
        return _is_json_key(annotation.__supertype__)
    if typing.get_origin(annotation) is typing.Literal:
        kinds = {type(value) for value in typing.get_args(annotation)}
        return kinds in ({int}, {str})
    return annotation in (int, str)


def survives_rebuild(value: Any) -> bool:
    """Return whether an instance created from the fields of this one has equal fields. Its `__post_init__` may
    raise or change them."""
    cls = type(value)
    try:
        recreated = cls(**{field.name: getattr(value, field.name) for field in fields_of(cls)})
        return all(
            is_identical(getattr(recreated, field.name), getattr(value, field.name))
            for field in fields_of(cls)
        )
    except Exception:  # noqa: BLE001  the constructor and __eq__ are those of the application
        return False


def is_identical(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))
