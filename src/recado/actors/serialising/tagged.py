"""Values as plain trees that say of each part what it is, for what MessagePack and JSON have no types for.

    None, True, 7, 2.5, "text"                      as they are: integers of 64 bits, finite floats
    ["list", …]  ["tuple", …]  ["set", …]  ["frozenset", …]          the elements
    ["dict", key, value, key, value, …]
    ["object", manifest, field, value, …]           a struct, a dataclass or a named tuple of the catalogue
    ["enum", manifest, name]  ["flag", manifest, value]
    ["error", kind, args, attributes]               an exception that is known (exceptions.py)
    ["protobuf", manifest, bytes]
    ["ref", address]
    ["bytes", …]  ["bytearray", …]                  in JSON as base64
    ["int", hexadecimal]  ["float", "nan"]  ["complex", real, imaginary]  ["fraction", n, d]  ["range", …]
    ["decimal", text]  ["uuid", text]
    ["datetime", text, fold, zone]  ["time", text, fold, zone]  ["date", text]  ["timedelta", days, s, µs]
    ["offset", seconds, name]  ["zone", key]        time zones: of datetimes, and by themselves
    ["unset"]                                       msgspec.UNSET

Every list begins with its tag, so nothing has to be escaped. Fields have names: a field that a class has got
since, with a default, may be missing.

TG1  `lift(lower(value))` is equal to `value`, and so are the types of all its parts; or `lower` raises
     CannotSerialise, which names the part and the reason.
TG2  `lift` makes only instances of the classes in the catalogue, whose fields it checks against their
     declarations, and of the types above. It imports nothing.
TG3  Neither goes deeper than DEPTH_MOST, integers have at most INTEGER_BITS_MOST bits, and of the elements of a
     set or the keys of a dict at most COLLISIONS_MOST have the hash of another one: with many, as can be
     made of integers, each look-up takes as long as a search.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import fractions
import inspect
import math
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
from google.protobuf.message import Message as ProtobufMessage

from recado.actors.ref import ActorRef

from .catalogue import class_of, manifest_of
from .declarations import can_be_named, describe, fields_of, is_named_tuple
from .exceptions import exception_class, name_of
from .faults import BadEnvelope, CannotSerialise, Unacceptable
from .lossless import same, stays

DEPTH_MOST: Final = 100  # reading takes four calls for each, of the thousand that Python allows
INTEGER_BITS_MOST: Final = 65_536  # arithmetic with longer ones takes long
COLLISIONS_MOST: Final = 100
FLAGS_MOST: Final = 10_000  # combinations of one Flag class: Python keeps each for ever

Tree: TypeAlias = Any
Hook: TypeAlias = Callable[[object], object]
TypedHook: TypeAlias = Callable[[type, object], object]

_PLAIN: Final = frozenset({types.NoneType, bool})
_AS_THEY_ARE: Final = _PLAIN | {int, float, str}
_SEQUENCES: Final[dict[type, str]] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
}
_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}")


class _Unwritable(Exception):
    """What cannot be written, and where it is: the innermost part first."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.path: list[str] = []


class Tagged:
    """Writes and reads trees. `write_ref` and `read_ref` are for references to actors, which a node knows."""

    def __init__(self, write_ref: Hook, read_ref: TypedHook) -> None:
        self._write_ref = write_ref
        self._read_ref = read_ref

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def lower(self, value: object) -> Tree:
        """Raises CannotSerialise (TG1)."""
        try:
            return self._lower(value, 0)
        except _Unwritable as error:
            place = "".join((type(value).__qualname__, *reversed(error.path)))
            whole = not error.path and error.reason.startswith(place)  # it names the class itself
            said = error.reason if whole else f"{place}: {error.reason}"
            raise CannotSerialise(said, error.hint) from None
        except RecursionError:
            raise CannotSerialise(f"{type(value).__qualname__}: nested too deeply") from None

    def _lower(self, value: Any, depth: int) -> Tree:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else _text(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else _integer(value)
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if depth >= DEPTH_MOST:
            raise _Unwritable(f"nested deeper than {DEPTH_MOST}, or contains itself")
        if (tag := _SEQUENCES.get(kind)) is not None:
            return self._sequence(tag, value, depth + 1)
        if kind is dict:
            return self._dict(value, depth + 1)
        if (writer := _LEAVES.get(kind)) is not None:
            return writer(value)
        return self._instance(kind, value, depth + 1)

    def _sequence(self, tag: str, value: Collection[Any], depth: int) -> Tree:
        if tag in ("set", "frozenset") and _collide(value):
            raise _Unwritable(f"more than {COLLISIONS_MOST} elements with equal hashes")
        if _are_plain(value):
            return [tag, *value]
        tree: list[Tree] = [tag]
        try:
            for each in value:
                tree.append(self._lower(each, depth))
        except _Unwritable as error:
            error.path.append(f"[{len(tree) - 1}]")
            raise
        return tree

    def _dict(self, value: dict[Any, Any], depth: int) -> Tree:
        if _collide(value):
            raise _Unwritable(f"more than {COLLISIONS_MOST} keys with equal hashes")
        tree: list[Tree] = ["dict"]
        key = None
        try:
            for key, each in value.items():
                tree.append(self._lower(key, depth))
                tree.append(self._lower(each, depth))
        except _Unwritable as error:
            error.path.append(f"[{repr(key)[:50]}]")
            raise
        return tree

    def _instance(self, kind: type, value: Any, depth: int) -> Tree:
        if issubclass(kind, ActorRef):
            return ["ref", self._write_ref(value)]
        if issubclass(kind, enum.Enum):
            return _enum(kind, value)
        if issubclass(kind, ProtobufMessage):
            return ["protobuf", _manifest(kind), value.SerializeToString()]
        if issubclass(kind, BaseException):
            return self._error(kind, value, depth)
        if kind is zoneinfo.ZoneInfo or kind is datetime.timezone:
            return _zone(value)
        if can_be_named(kind):
            return self._object(kind, value, depth)
        raise _Unwritable(
            f"{kind.__qualname__} has no serialiser",
            "Make it a Message, or register it: recado.actors.remote.register",
        )

    def _object(self, kind: type, value: Any, depth: int) -> Tree:
        tree: list[Tree] = ["object", _manifest(kind)]
        for name, annotation, accepts in _fields(kind):
            try:
                part = getattr(value, name)
            except AttributeError:
                raise _Unwritable(f"the field {name} is not set") from None
            try:
                if not accepts(part):
                    raise _Unwritable(_misfit(part, annotation))
                tree.append(name)
                tree.append(self._lower(part, depth))
            except _Unwritable as error:
                error.path.append(f".{name}")
                raise
        _check_instance(kind, value)
        return tree

    def _error(self, kind: type[BaseException], value: BaseException, depth: int) -> Tree:
        name = name_of(kind)
        if name is None:
            raise _Unwritable(
                f"the exception {kind.__qualname__} is not registered",
                "Register it: recado.actors.remote.register_exception",
            )
        args, attributes = _parts_of_error(kind, value)
        return [
            "error",
            name,
            self._sequence("tuple", args, depth),
            self._dict(attributes, depth),
        ]

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def lift(self, tree: Tree, depth: int = 0) -> Any:
        """Raises BadEnvelope, Unacceptable, and whatever a class raises for wrong values."""
        kind = type(tree)
        if kind is str or kind is int or kind is float or kind in _PLAIN:
            return tree
        if kind is not list or not tree or type(tree[0]) is not str:
            raise BadEnvelope("a part without a tag")
        if depth >= DEPTH_MOST:
            raise BadEnvelope(f"nested deeper than {DEPTH_MOST}")
        tag = tree[0]
        if (leaf := _READERS.get(tag)) is not None:
            return leaf(*tree[1:])
        depth += 1
        match tag:
            case "list":
                return self._elements(tree, depth)
            case "tuple":
                return tuple(self._elements(tree, depth))
            case "set":
                return set(_distinct(self._elements(tree, depth)))
            case "frozenset":
                return frozenset(_distinct(self._elements(tree, depth)))
            case "dict":
                pairs = self._pairs(tree[1:], depth)
                _distinct([key for key, _ in pairs])
                return dict(pairs)
            case "object":
                return self._make(tree, depth)
            case "ref":
                _, address = tree
                return self._read_ref(ActorRef, address)
            case "error":
                return self._make_error(tree, depth)
            case "datetime" | "time":
                return self._moment(tree, depth)
            case "complex" | "fraction" | "range":
                return _NUMBERS[tag](*(self.lift(each, depth) for each in tree[1:]))
            case _:
                raise BadEnvelope(f"an unknown tag {tag[:50]!r}")

    def _elements(self, tree: list[Tree], depth: int) -> list[Any]:
        elements = tree[1:]
        if {*map(type, elements)} <= _AS_THEY_ARE:
            return elements
        return [self.lift(each, depth) for each in elements]

    def _pairs(self, parts: list[Tree], depth: int) -> list[tuple[Any, Any]]:
        if len(parts) % 2:
            raise BadEnvelope("a key without a value")
        return [
            (self.lift(parts[at], depth), self.lift(parts[at + 1], depth))
            for at in range(0, len(parts), 2)
        ]

    def _make(self, tree: list[Tree], depth: int) -> Any:
        cls = _known(tree[1])
        if not can_be_named(cls) or issubclass(cls, enum.Enum):
            raise BadEnvelope(f"{cls.__qualname__} has no fields")
        given = {name: part for name, part in self._pairs(tree[2:], depth) if type(name) is str}
        fields = fields_of(cls)
        _check_names(cls, given, {field.name for field in fields})
        values: dict[str, Any] = {}
        for name, annotation, accepts in fields:
            if name in given:
                values[name] = part = given[name]
                if not accepts(part):
                    raise BadEnvelope(f"{cls.__qualname__}.{name}: {_misfit(part, annotation)}")
        if not dataclasses.is_dataclass(cls):
            return cls(**values)
        return _make_dataclass(cls, values)

    def _make_error(self, tree: list[Tree], depth: int) -> Exception:
        _, kind, args, attributes = tree
        cls = exception_class(kind) if isinstance(kind, str) else None
        if cls is None:
            raise Unacceptable(f"no exception is registered as {kind!r}"[:200])
        error = cls(*self.lift(args, depth))
        for name, value in self.lift(attributes, depth).items():
            if type(name) is str and (not name.startswith("__") or name == "__notes__"):
                setattr(error, name, value)
        return error

    def _moment(self, tree: list[Tree], depth: int) -> datetime.datetime | datetime.time:
        tag, text, fold, zone = tree
        cls = datetime.datetime if tag == "datetime" else datetime.time
        return cls.fromisoformat(text).replace(
            fold=fold, tzinfo=None if zone is None else self.lift(zone, depth)
        )


# ── containers ────────────────────────────────────────────────────────────────────────────────────────────────


def _are_plain(values: Collection[Any]) -> bool:
    """Whether all of them are written as they are; True only if that is seen without a look at each: 20 ns
    instead of 200."""
    kinds = {*map(type, values)}
    if kinds == {int}:
        return bool(min(values) >= -(2**63) and max(values) < 2**64)
    if kinds == {float}:
        return all(map(math.isfinite, values))
    if kinds == {str}:
        return all(map(str.isascii, values))
    return kinds <= _PLAIN


def _collide(keys: Collection[Any]) -> bool:
    return len(keys) - len({*map(hash, keys)}) > COLLISIONS_MOST


def _distinct(keys: list[Any]) -> list[Any]:
    if _collide(keys):
        raise BadEnvelope(f"more than {COLLISIONS_MOST} keys or elements with equal hashes")
    return keys


# ── the types without parts ───────────────────────────────────────────────────────────────────────────────────


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Unwritable(f"a text that is not Unicode: {error.reason}") from None
    return value


def _integer(value: int) -> Tree:
    if value.bit_length() > INTEGER_BITS_MOST:
        raise _Unwritable(f"an integer of more than {INTEGER_BITS_MOST} bits")
    return ["int", format(value, "x")]


def _read_integer(text: str) -> int:
    if len(text) > INTEGER_BITS_MOST // 4 + 1:
        raise BadEnvelope(f"an integer of more than {INTEGER_BITS_MOST} bits")
    return int(text, 16)


def _number(value: float) -> Tree:
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else _integer(value)
    return value if math.isfinite(value) else ["float", repr(value)]


def _read_decimal(text: str) -> decimal.Decimal:
    if not isinstance(text, str):
        raise BadEnvelope("a decimal that is no text")
    return decimal.Decimal(text)


def _bytes(data: bytes | str) -> bytes:
    """JSON has them as base64."""
    return base64.b64decode(data, validate=True) if isinstance(data, str) else data


def _zone(zone: datetime.tzinfo | None) -> Tree:
    match zone:
        case None:
            return None
        case datetime.timezone():
            offset = zone.utcoffset(None)
            name = zone.tzname(None)
            unnamed = datetime.timezone(offset).tzname(None) == name
            seconds = offset.total_seconds()
            return ["offset", seconds, None if unnamed else _text(name)]
        case zoneinfo.ZoneInfo(key=str(key)) if _ZONE_KEY.fullmatch(key):
            return ["zone", key]
    raise _Unwritable(f"the time zone {type(zone).__qualname__} has no serialiser")


def _read_offset(seconds: float, name: str | None) -> datetime.timezone:
    offset = datetime.timedelta(seconds=seconds)
    if name is not None:
        return datetime.timezone(offset, name)
    return datetime.timezone(offset) if offset else datetime.UTC


def _read_zone(key: str) -> zoneinfo.ZoneInfo:
    if not _ZONE_KEY.fullmatch(key):
        raise BadEnvelope(f"no time zone: {key[:50]!r}")
    return zoneinfo.ZoneInfo(key)


def _datetime(value: datetime.datetime) -> Tree:
    plain = value.replace(tzinfo=None, fold=0)
    return ["datetime", plain.isoformat(), value.fold, _zone(value.tzinfo)]


def _time(value: datetime.time) -> Tree:
    plain = value.replace(tzinfo=None, fold=0)
    return ["time", plain.isoformat(), value.fold, _zone(value.tzinfo)]


_LEAVES: Final[dict[type, Callable[[Any], Tree]]] = {
    bytes: lambda value: ["bytes", value],
    bytearray: lambda value: ["bytearray", bytes(value)],
    complex: lambda value: ["complex", _number(value.real), _number(value.imag)],
    fractions.Fraction: lambda value: [
        "fraction",
        _number(value.numerator),
        _number(value.denominator),
    ],
    range: lambda value: ["range", *map(_number, (value.start, value.stop, value.step))],
    decimal.Decimal: lambda value: ["decimal", str(value)],
    uuid.UUID: lambda value: ["uuid", str(value)],
    datetime.date: lambda value: ["date", value.isoformat()],
    datetime.time: _time,
    datetime.datetime: _datetime,
    datetime.timedelta: lambda value: [
        "timedelta",
        value.days,
        value.seconds,
        value.microseconds,
    ],
    msgspec.UnsetType: lambda value: ["unset"],
}

_READERS: Final[dict[str, Callable[..., Any]]] = {
    "int": _read_integer,
    "float": float,
    "bytes": _bytes,
    "bytearray": lambda data: bytearray(_bytes(data)),
    "decimal": lambda text: _read_decimal(text),
    "uuid": uuid.UUID,
    "date": datetime.date.fromisoformat,
    "timedelta": datetime.timedelta,
    "offset": _read_offset,
    "zone": _read_zone,
    "unset": lambda: msgspec.UNSET,
    "enum": lambda manifest, name: _read_enum(manifest, name),
    "flag": lambda manifest, value: _read_flag(manifest, value),
    "protobuf": lambda manifest, data: _read_protobuf(manifest, data),
}


def _read_fraction(numerator: object, denominator: object) -> fractions.Fraction:
    if not isinstance(numerator, int) or not isinstance(denominator, int):
        raise BadEnvelope("a fraction that is not of integers")
    return fractions.Fraction(numerator, denominator)


_NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    "complex": complex,
    "fraction": _read_fraction,
    "range": range,
}


# ── classes of the catalogue ──────────────────────────────────────────────────────────────────────────────────


def _manifest(cls: type) -> str:
    try:
        return manifest_of(cls)
    except CannotSerialise as error:
        raise _Unwritable(error.what, error.hint) from None


def _known(manifest: object) -> type:
    cls = class_of(manifest) if isinstance(manifest, str) else None
    if cls is None:
        raise Unacceptable(f"no class is registered as {manifest!r}"[:300])
    return cls


def _fields(cls: type) -> Iterable[tuple[str, Any, Callable[[Any], bool]]]:
    try:
        return fields_of(cls)
    except CannotSerialise as error:
        raise _Unwritable(error.what, error.hint) from None


def _misfit(value: object, annotation: Any) -> str:
    return f"{_said(value)} does not fit {describe(annotation)}"


def _said(value: object) -> str:
    kind = type(value).__qualname__
    text = repr(value) if isinstance(value, int | float | str | bytes | None) else ""
    return f"the {kind} {text[:50]}" if text else f"a value of type {kind}"


def _check_instance(cls: type, value: Any) -> None:
    """Whether an instance made of the fields would be the same (TG1)."""
    if is_named_tuple(cls):
        if not stays(value):
            raise _Unwritable(f"{cls.__qualname__} cannot be made of its fields")
    elif dataclasses.is_dataclass(cls):
        _check_dataclass(cls, value)
    elif hasattr(cls, "__post_init__") and not stays(value):
        raise _Unwritable("__post_init__ raises for these fields, or changes them")


def _check_dataclass(cls: type, value: Any) -> None:
    names = {field.name for field in dataclasses.fields(cls)}
    for extra in getattr(value, "__dict__", {}).keys() - names:
        if not isinstance(inspect.getattr_static(cls, extra, None), cached_property):
            raise _Unwritable(f"the attribute {extra} is no field of {cls.__qualname__}")
    values = {name: getattr(value, name) for name in names}
    try:
        again = _make_dataclass(cls, values)
        changed = [name for name in names if not same(getattr(again, name), values[name])]
    except Exception as error:  # noqa: BLE001  its constructor is anybody's
        raise _Unwritable(f"{cls.__qualname__} cannot be made of its fields: {error}") from None
    if changed:
        raise _Unwritable(f"__post_init__ of {cls.__qualname__} changes the field {changed[0]}")


def _parts_of_error(
    kind: type[BaseException], value: BaseException
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What it is made of, and its attributes, as `copy` knows them."""
    try:
        reduced: Any = value.__reduce__()
        made_by, args, *rest = reduced
        attributes = rest[0] if rest and rest[0] else {}
        again = made_by(*args)
    except Exception as error:  # noqa: BLE001  as above
        raise _Unwritable(f"{kind.__qualname__} cannot be made of its args: {error}") from None
    if made_by is not kind or again.args != value.args or not isinstance(attributes, dict):
        raise _Unwritable(f"{kind.__qualname__} is another one when it is made of its args")
    return args, attributes


def _check_names(cls: type, given: Iterable[str], known: set[str]) -> None:
    if issubclass(cls, msgspec.Struct) and cls.__struct_config__.forbid_unknown_fields:
        for name in given:
            if name not in known:
                raise BadEnvelope(f"{cls.__qualname__} has no field {name[:50]!r}")


def _make_dataclass(cls: type, values: dict[str, Any]) -> Any:
    """By its constructor, which checks them; fields that it does not take are set behind it."""
    taken = {field.name for field in dataclasses.fields(cls) if field.init}
    made = cls(**{name: value for name, value in values.items() if name in taken})
    for name, value in values.items():
        if name not in taken:
            object.__setattr__(made, name, value)
    return made


def _enum(cls: type[enum.Enum], value: enum.Enum) -> Tree:
    if issubclass(cls, enum.Flag):
        if type(value.value) is not int:
            raise _Unwritable(f"the value of {value!r} is no int")
        return ["flag", _manifest(cls), value.value]
    return ["enum", _manifest(cls), value.name]


def _read_enum(manifest: str, name: str) -> enum.Enum:
    cls = _known(manifest)
    member = cls.__members__.get(name) if issubclass(cls, enum.Enum) else None
    if not isinstance(member, enum.Enum):
        raise BadEnvelope(f"{cls.__qualname__} has no member {str(name)[:50]!r}")
    return member


def _read_flag(manifest: str, value: int) -> enum.Enum:
    cls = _known(manifest)
    if not issubclass(cls, enum.Flag) or type(value) is not int:
        raise BadEnvelope(f"{cls.__qualname__} is no Flag")
    known = cls._value2member_map_
    if value not in known and len(known) >= FLAGS_MOST:
        raise BadEnvelope(f"more than {FLAGS_MOST} combinations of {cls.__qualname__}")
    return cls(value)


def _read_protobuf(manifest: str, data: bytes | str) -> ProtobufMessage:
    cls = _known(manifest)
    if not issubclass(cls, ProtobufMessage):
        raise BadEnvelope(f"{cls.__qualname__} is no message of protobuf")
    return cls.FromString(_bytes(data))
