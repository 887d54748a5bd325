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

import datetime
import enum
import math
import types
import zoneinfo
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message as ProtobufMessage

from recado.actors.ref import ActorRef

from . import instances, scalars
from .declarations import can_be_named
from .exceptions import exception_class, name_of
from .faults import BadEnvelope, CannotSerialise, Unacceptable
from .instances import (
    check_instance,
    describe_mismatch,
    fields_for,
    known_class,
    make_instance,
    manifest_for,
    parts_of_error,
    write_enum,
)
from .scalars import NUMBERS, WRITERS, Tree, Unwritable, as_text, write_integer, write_zone

DEPTH_MOST: Final = 100  # reading takes four calls for each, of the thousand that Python allows
COLLISIONS_MOST: Final = 100

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
_READERS: Final[dict[str, Callable[..., Any]]] = {**scalars.READERS, **instances.READERS}


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
        except Unwritable as error:
            place = "".join((type(value).__qualname__, *reversed(error.path)))
            whole = not error.path and error.reason.startswith(place)  # it names the class itself
            said = error.reason if whole else f"{place}: {error.reason}"
            raise CannotSerialise(said, error.hint) from None
        except RecursionError:
            raise CannotSerialise(f"{type(value).__qualname__}: nested too deeply") from None

    def _lower(self, value: Any, depth: int) -> Tree:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else as_text(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else write_integer(value)
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if depth >= DEPTH_MOST:
            raise Unwritable(f"nested deeper than {DEPTH_MOST}, or contains itself")
        if (tag := _SEQUENCES.get(kind)) is not None:
            return self._sequence(tag, value, depth + 1)
        if kind is dict:
            return self._dict(value, depth + 1)
        if (writer := WRITERS.get(kind)) is not None:
            return writer(value)
        return self._instance(kind, value, depth + 1)

    def _sequence(self, tag: str, value: Collection[Any], depth: int) -> Tree:
        if tag in ("set", "frozenset") and _collide(value):
            raise Unwritable(f"more than {COLLISIONS_MOST} elements with equal hashes")
        if _are_plain(value):
            return [tag, *value]
        tree: list[Tree] = [tag]
        try:
            for each in value:
                tree.append(self._lower(each, depth))
        except Unwritable as error:
            error.path.append(f"[{len(tree) - 1}]")
            raise
        return tree

    def _dict(self, value: dict[Any, Any], depth: int) -> Tree:
        if _collide(value):
            raise Unwritable(f"more than {COLLISIONS_MOST} keys with equal hashes")
        tree: list[Tree] = ["dict"]
        key = None
        try:
            for key, each in value.items():
                tree.append(self._lower(key, depth))
                tree.append(self._lower(each, depth))
        except Unwritable as error:
            error.path.append(f"[{repr(key)[:50]}]")
            raise
        return tree

    def _instance(self, kind: type, value: Any, depth: int) -> Tree:
        if issubclass(kind, ActorRef):
            return ["ref", self._write_ref(value)]
        if issubclass(kind, enum.Enum):
            return write_enum(kind, value)
        if issubclass(kind, ProtobufMessage):
            return ["protobuf", manifest_for(kind), value.SerializeToString()]
        if issubclass(kind, BaseException):
            return self._error(kind, value, depth)
        if kind is zoneinfo.ZoneInfo or kind is datetime.timezone:
            return write_zone(value)
        if can_be_named(kind):
            return self._object(kind, value, depth)
        raise Unwritable(
            f"{kind.__qualname__} has no serialiser",
            "Send its content as a type that travels, such as a Message or a registered dataclass",
        )

    def _object(self, kind: type, value: Any, depth: int) -> Tree:
        tree: list[Tree] = ["object", manifest_for(kind)]
        for name, annotation, accepts in fields_for(kind):
            try:
                part = getattr(value, name)
            except AttributeError:
                raise Unwritable(f"the field {name} is not set") from None
            try:
                if not accepts(part):
                    raise Unwritable(describe_mismatch(part, annotation))
                tree.append(name)
                tree.append(self._lower(part, depth))
            except Unwritable as error:
                error.path.append(f".{name}")
                raise
        check_instance(kind, value)
        return tree

    def _error(self, kind: type[BaseException], value: BaseException, depth: int) -> Tree:
        name = name_of(kind)
        if name is None:
            raise Unwritable(
                f"the exception {kind.__qualname__} is not registered",
                "Register it: recado.actors.remote.register_exception",
            )
        args, attributes = parts_of_error(kind, value)
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
                return NUMBERS[tag](*(self.lift(each, depth) for each in tree[1:]))
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
        given = {name: part for name, part in self._pairs(tree[2:], depth) if type(name) is str}
        return make_instance(known_class(tree[1]), given)

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
