"""Values as trees of lists whose first element is a type tag, for values that MessagePack and JSON have no
types for.

    None, True, 7, 2.5, "text"                      without a tag: integers of 64 bits, finite floats
    ["list", …]  ["tuple", …]  ["set", …]  ["frozenset", …]          the elements
    ["dict", key, value, key, value, …]
    ["object", manifest, field, value, …]           a struct, a dataclass or a named tuple that is registered
    ["enum", manifest, name]  ["flag", manifest, value]
    ["error", kind, args, attributes]               a known exception (exception_registry.py)
    ["protobuf", manifest, bytes]
    ["ref", address]
    ["bytes", …]  ["bytearray", …]                  in JSON as base64
    ["int", hexadecimal]  ["float", "nan"]  ["complex", real, imaginary]  ["fraction", n, d]  ["range", …]
    ["decimal", text]  ["uuid", text]
    ["datetime", text, fold, zone]  ["time", text, fold, zone]  ["date", text]  ["timedelta", days, s, µs]
    ["offset", seconds, name]  ["zone", key]        time zones: of datetimes, and by themselves
    ["unset"]                                       msgspec.UNSET

Every list begins with its tag, so nothing has to be escaped. Fields have names: a field that was added to a
class later, with a default, may be missing.

TG1  `decode(encode(value))` is equal to `value`, and so are the types of all its parts; or `encode` raises
     SerializationError, which names the part and the reason.
TG2  `decode` creates only instances of registered classes, whose fields it checks against their declarations,
     and of the types above. It imports nothing.
TG3  `encode` and `decode` reject values that are nested deeper than DEPTH_LEVELS_MAX, integers of more than
     INTEGER_BITS_MAX bits, and sets and dicts in which more than COLLISIONS_MAX elements or keys have the hash
     of another one: crafted keys with equal hashes would make every lookup a linear search.
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
from .declared_types import is_registrable
from .errors import InvalidEnvelopeError, SerializationError, UnacceptableMessageError
from .exception_registry import exception_class, registered_name
from .instances import (
    check_instance,
    class_for,
    create_instance,
    describe_mismatch,
    encode_enum,
    exception_parts,
    fields_for,
    manifest_for,
)
from .scalars import (
    ENCODERS,
    NUMBER_CONSTRUCTORS,
    TaggedTree,
    UnserializableError,
    check_unicode,
    encode_integer,
    encode_zone,
)

# Decoding takes four calls per level, of the thousand that Python allows.
DEPTH_LEVELS_MAX: Final = 100
COLLISIONS_MAX: Final = 100

RefEncoder: TypeAlias = Callable[[object], object]
RefDecoder: TypeAlias = Callable[[type, object], object]

_PLAIN_TYPES: Final = frozenset({types.NoneType, bool})
_UNTAGGED_TYPES: Final = _PLAIN_TYPES | {int, float, str}
_SEQUENCE_TAGS: Final[dict[type, str]] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
}
_LEAF_DECODERS: Final[dict[str, Callable[..., Any]]] = {**scalars.DECODERS, **instances.DECODERS}


class TaggedCodec:
    """Encodes and decodes trees. `encode_ref` and `decode_ref` convert references to actors, which need the
    system."""

    def __init__(self, encode_ref: RefEncoder, decode_ref: RefDecoder) -> None:
        self._encode_ref = encode_ref
        self._decode_ref = decode_ref

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def encode(self, value: object) -> TaggedTree:
        """Return the tree of a value. Raises SerializationError (TG1)."""
        try:
            return self._encode(value, 0)
        except UnserializableError as error:
            path = "".join((type(value).__qualname__, *reversed(error.path)))
            names_class = not error.path and error.reason.startswith(path)
            problem = error.reason if names_class else f"{path}: {error.reason}"
            raise SerializationError(problem, error.hint) from None
        except RecursionError:
            raise SerializationError(f"{type(value).__qualname__}: nested too deeply") from None

    def _encode(self, value: Any, depth: int) -> TaggedTree:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else check_unicode(value)
        if kind in _PLAIN_TYPES:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else encode_integer(value)
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if depth >= DEPTH_LEVELS_MAX:
            raise UnserializableError(
                f"nested deeper than {DEPTH_LEVELS_MAX} levels, or contains itself"
            )
        if (tag := _SEQUENCE_TAGS.get(kind)) is not None:
            return self._encode_sequence(tag, value, depth + 1)
        if kind is dict:
            return self._encode_dict(value, depth + 1)
        if (writer := ENCODERS.get(kind)) is not None:
            return writer(value)
        return self._encode_instance(kind, value, depth + 1)

    def _encode_sequence(self, tag: str, value: Collection[Any], depth: int) -> TaggedTree:
        if tag in ("set", "frozenset") and _have_hash_collisions(value):
            raise UnserializableError(f"more than {COLLISIONS_MAX} elements with equal hashes")
        if _are_plain_values(value):
            return [tag, *value]
        tree: list[TaggedTree] = [tag]
        try:
            for each in value:
                tree.append(self._encode(each, depth))
        except UnserializableError as error:
            error.path.append(f"[{len(tree) - 1}]")
            raise
        return tree

    def _encode_dict(self, value: dict[Any, Any], depth: int) -> TaggedTree:
        if _have_hash_collisions(value):
            raise UnserializableError(f"more than {COLLISIONS_MAX} keys with equal hashes")
        tree: list[TaggedTree] = ["dict"]
        key = None
        try:
            for key, each in value.items():
                tree.append(self._encode(key, depth))
                tree.append(self._encode(each, depth))
        except UnserializableError as error:
            error.path.append(f"[{repr(key)[:50]}]")
            raise
        return tree

    def _encode_instance(self, kind: type, value: Any, depth: int) -> TaggedTree:
        if issubclass(kind, ActorRef):
            return ["ref", self._encode_ref(value)]
        if issubclass(kind, enum.Enum):
            return encode_enum(kind, value)
        if issubclass(kind, ProtobufMessage):
            return ["protobuf", manifest_for(kind), value.SerializeToString()]
        if issubclass(kind, BaseException):
            return self._encode_exception(kind, value, depth)
        if kind is zoneinfo.ZoneInfo or kind is datetime.timezone:
            return encode_zone(value)
        if is_registrable(kind):
            return self._encode_object(kind, value, depth)
        raise UnserializableError(
            f"{kind.__qualname__} has no serializer",
            "Send its content as a serializable type, such as a Message or a registered dataclass",
        )

    def _encode_object(self, kind: type, value: Any, depth: int) -> TaggedTree:
        tree: list[TaggedTree] = ["object", manifest_for(kind)]
        for name, annotation, accepts in fields_for(kind):
            try:
                part = getattr(value, name)
            except AttributeError:
                raise UnserializableError(f"the field {name} is not set") from None
            try:
                if not accepts(part):
                    raise UnserializableError(describe_mismatch(part, annotation))
                tree.append(name)
                tree.append(self._encode(part, depth))
            except UnserializableError as error:
                error.path.append(f".{name}")
                raise
        check_instance(kind, value)
        return tree

    def _encode_exception(
        self, kind: type[BaseException], value: BaseException, depth: int
    ) -> TaggedTree:
        name = registered_name(kind)
        if name is None:
            raise UnserializableError(
                f"the exception {kind.__qualname__} is not registered",
                "Register it: recado.actors.register_exception",
            )
        args, attributes = exception_parts(kind, value)
        return [
            "error",
            name,
            self._encode_sequence("tuple", args, depth),
            self._encode_dict(attributes, depth),
        ]

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def decode(self, tree: TaggedTree, depth: int = 0) -> Any:
        """Return the value of a tree. Raises InvalidEnvelopeError, UnacceptableMessageError, and the exceptions
        that classes raise for invalid values."""
        kind = type(tree)
        if kind is str or kind is int or kind is float or kind in _PLAIN_TYPES:
            return tree
        if kind is not list or not tree or type(tree[0]) is not str:
            raise InvalidEnvelopeError("a list without a type tag")
        if depth >= DEPTH_LEVELS_MAX:
            raise InvalidEnvelopeError(f"nested deeper than {DEPTH_LEVELS_MAX}")
        tag = tree[0]
        if (leaf := _LEAF_DECODERS.get(tag)) is not None:
            return leaf(*tree[1:])
        depth += 1
        match tag:
            case "list":
                return self._decode_elements(tree, depth)
            case "tuple":
                return tuple(self._decode_elements(tree, depth))
            case "set":
                return set(_require_few_collisions(self._decode_elements(tree, depth)))
            case "frozenset":
                return frozenset(_require_few_collisions(self._decode_elements(tree, depth)))
            case "dict":
                pairs = self._decode_pairs(tree[1:], depth)
                _require_few_collisions([key for key, _ in pairs])
                return dict(pairs)
            case "object":
                return self._decode_object(tree, depth)
            case "ref":
                _, address = tree
                return self._decode_ref(ActorRef, address)
            case "error":
                return self._decode_exception(tree, depth)
            case "datetime" | "time":
                return self._decode_moment(tree, depth)
            case "complex" | "fraction" | "range":
                return NUMBER_CONSTRUCTORS[tag](*(self.decode(each, depth) for each in tree[1:]))
            case _:
                raise InvalidEnvelopeError(f"an unknown tag {tag[:50]!r}")

    def _decode_elements(self, tree: list[TaggedTree], depth: int) -> list[Any]:
        elements = tree[1:]
        if {*map(type, elements)} <= _UNTAGGED_TYPES:
            return elements
        return [self.decode(each, depth) for each in elements]

    def _decode_pairs(self, parts: list[TaggedTree], depth: int) -> list[tuple[Any, Any]]:
        if len(parts) % 2:
            raise InvalidEnvelopeError("a key without a value")
        return [
            (self.decode(parts[at], depth), self.decode(parts[at + 1], depth))
            for at in range(0, len(parts), 2)
        ]

    def _decode_object(self, tree: list[TaggedTree], depth: int) -> Any:
        field_values = {
            name: part for name, part in self._decode_pairs(tree[2:], depth) if type(name) is str
        }
        return create_instance(class_for(tree[1]), field_values)

    def _decode_exception(self, tree: list[TaggedTree], depth: int) -> Exception:
        _, kind, args, attributes = tree
        cls = exception_class(kind) if isinstance(kind, str) else None
        if cls is None:
            raise UnacceptableMessageError(f"no exception is registered as {kind!r}"[:200])
        error = cls(*self.decode(args, depth))
        for name, value in self.decode(attributes, depth).items():
            if type(name) is str and (not name.startswith("__") or name == "__notes__"):
                setattr(error, name, value)
        return error

    def _decode_moment(
        self, tree: list[TaggedTree], depth: int
    ) -> datetime.datetime | datetime.time:
        tag, text, fold, zone = tree
        cls = datetime.datetime if tag == "datetime" else datetime.time
        return cls.fromisoformat(text).replace(
            fold=fold, tzinfo=None if zone is None else self.decode(zone, depth)
        )


# ── containers ────────────────────────────────────────────────────────────────────────────────────────────────


def _are_plain_values(values: Collection[Any]) -> bool:
    """Return whether it is known that no value needs a tag. Only values of one type are checked, in C: 20 ns
    instead of 200. For mixed types other than None and bool the result is False."""
    kinds = {*map(type, values)}
    if kinds == {int}:
        return bool(min(values) >= -(2**63) and max(values) < 2**64)
    if kinds == {float}:
        return all(map(math.isfinite, values))
    if kinds == {str}:
        return all(map(str.isascii, values))
    return kinds <= _PLAIN_TYPES


def _have_hash_collisions(keys: Collection[Any]) -> bool:
    return len(keys) - len({*map(hash, keys)}) > COLLISIONS_MAX


def _require_few_collisions(keys: list[Any]) -> list[Any]:
    if _have_hash_collisions(keys):
        raise InvalidEnvelopeError(f"more than {COLLISIONS_MAX} keys or elements with equal hashes")
    return keys
