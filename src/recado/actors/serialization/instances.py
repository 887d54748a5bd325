"""Instances of registered classes, in the tagged codec: which parts they are encoded as, and how they are
recreated.

SI1  A decoded instance equals the encoded one. If its constructor or `__post_init__` could raise or change
     fields, the sender recreates the instance once before it is sent, and rejects it if it differs.
SI2  Only registered classes are instantiated, and only a bounded number of combinations of a Flag.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

import msgspec
from google.protobuf.message import Message as ProtobufMessage

from .class_registry import find_class, manifest_of
from .declared_types import describe_type, field_names, fields_of, is_named_tuple, is_registrable
from .errors import InvalidEnvelopeError, SerializationError, UnacceptableMessageError
from .lossless_encoding import is_identical, survives_rebuild
from .scalars import TaggedTree, UnserializableError, decode_bytes

# Combinations of one Flag class; Python caches each of them forever.
FLAG_VALUES_MAX: Final = 10_000


def manifest_for(cls: type) -> str:
    """Return the manifest of a class. Raises UnserializableError."""
    try:
        return manifest_of(cls)
    except SerializationError as error:
        raise UnserializableError(error.what, error.hint) from None


def class_for(manifest: object) -> type:
    """Return the registered class. Raises UnacceptableMessageError."""
    cls = find_class(manifest) if isinstance(manifest, str) else None
    if cls is None:
        raise UnacceptableMessageError(f"no class is registered as {manifest!r}"[:300])
    return cls


def fields_for(cls: type) -> Iterable[tuple[str, Any, Callable[[Any], bool]]]:
    """Return name, annotation and check of each field. Raises UnserializableError."""
    try:
        return fields_of(cls)
    except SerializationError as error:
        raise UnserializableError(error.what, error.hint) from None


def describe_mismatch(value: object, annotation: Any) -> str:
    return f"{_describe_value(value)} does not match {describe_type(annotation)}"


def _describe_value(value: object) -> str:
    kind = type(value).__qualname__
    text = repr(value) if isinstance(value, int | float | str | bytes | None) else ""
    return f"the {kind} {text[:50]}" if text else f"a value of type {kind}"


def check_instance(cls: type, value: Any) -> None:
    """Raise UnserializableError if an instance created from the fields would not be equal (SI1)."""
    _check_attributes(cls, value)
    if is_named_tuple(cls):
        if not survives_rebuild(value):
            raise UnserializableError(f"{cls.__qualname__} cannot be recreated from its fields")
    elif dataclasses.is_dataclass(cls):
        _check_dataclass(cls, value)
    elif hasattr(cls, "__post_init__") and not survives_rebuild(value):
        raise UnserializableError("__post_init__ raises for these fields or changes them")


def _check_attributes(cls: type, value: Any) -> None:
    """Raise UnserializableError if an attribute is neither a field nor a cached property."""
    if not cls.__dictoffset__:
        return
    for extra in value.__dict__.keys() - {*field_names(cls)}:
        if not isinstance(inspect.getattr_static(cls, extra, None), cached_property):
            raise UnserializableError(f"the attribute {extra} is not a field of {cls.__qualname__}")


def _check_dataclass(cls: type, value: Any) -> None:
    names = field_names(cls)
    values = {name: getattr(value, name) for name in names}
    try:
        recreated = _create_dataclass(cls, values)
        changed = [
            name for name in names if not is_identical(getattr(recreated, name), values[name])
        ]
    except Exception as error:  # noqa: BLE001  a constructor of the application
        raise UnserializableError(
            f"{cls.__qualname__} cannot be recreated from its fields: {error}"
        ) from None
    if changed:
        raise UnserializableError(
            f"__post_init__ of {cls.__qualname__} changes the field {changed[0]}"
        )


def exception_parts(
    kind: type[BaseException], value: BaseException
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the args and the attributes from which `copy` would recreate an exception.

    Raises UnserializableError if the recreated exception would not be equal.
    """
    try:
        reduced: Any = value.__reduce__()
        constructor, args, *rest = reduced
        attributes = rest[0] if rest and rest[0] else {}
        recreated = constructor(*args)
    except Exception as error:  # noqa: BLE001  a constructor of the application
        raise UnserializableError(
            f"{kind.__qualname__} cannot be recreated from its args: {error}"
        ) from None
    if constructor is not kind or recreated.args != value.args or not isinstance(attributes, dict):
        raise UnserializableError(
            f"{kind.__qualname__} is not equal when it is recreated from its args"
        )
    return args, attributes


def _check_field_names(cls: type, field_names: Iterable[str], known: set[str]) -> None:
    if issubclass(cls, msgspec.Struct) and cls.__struct_config__.forbid_unknown_fields:
        for name in field_names:
            if name not in known:
                raise InvalidEnvelopeError(f"{cls.__qualname__} has no field {name[:50]!r}")


def create_instance(cls: type, field_values: dict[str, Any]) -> Any:
    """Create an instance from the values of its fields, which are checked. Raises InvalidEnvelopeError, and the
    exceptions of its constructor."""
    if not is_registrable(cls) or issubclass(cls, enum.Enum):
        raise InvalidEnvelopeError(f"{cls.__qualname__} has no fields")
    fields = fields_of(cls)
    _check_field_names(cls, field_values, {field.name for field in fields})
    values: dict[str, Any] = {}
    for name, annotation, accepts in fields:
        if name in field_values:
            values[name] = part = field_values[name]
            if not accepts(part):
                raise InvalidEnvelopeError(
                    f"{cls.__qualname__}.{name}: {describe_mismatch(part, annotation)}"
                )
    if dataclasses.is_dataclass(cls):
        return _create_dataclass(cls, values)
    return cls(**values)


def _create_dataclass(cls: type, values: dict[str, Any]) -> Any:
    """Call the constructor, which may check the values; fields that are not its arguments are set
    afterwards."""
    arguments = {field.name for field in dataclasses.fields(cls) if field.init}
    instance = cls(**{name: value for name, value in values.items() if name in arguments})
    for name, value in values.items():
        if name not in arguments:
            object.__setattr__(instance, name, value)
    return instance


def encode_enum(cls: type[enum.Enum], value: enum.Enum) -> TaggedTree:
    if issubclass(cls, enum.Flag):
        if type(value.value) is not int:
            raise UnserializableError(f"the value of {value!r} is not an int")
        return ["flag", manifest_for(cls), value.value]
    return ["enum", manifest_for(cls), value.name]


def _decode_enum(manifest: str, name: str) -> enum.Enum:
    cls = class_for(manifest)
    member = cls.__members__.get(name) if issubclass(cls, enum.Enum) else None
    if not isinstance(member, enum.Enum):
        raise InvalidEnvelopeError(f"{cls.__qualname__} has no member {str(name)[:50]!r}")
    return member


def _decode_flag(manifest: str, value: int) -> enum.Enum:
    cls = class_for(manifest)
    if not issubclass(cls, enum.Flag) or type(value) is not int:
        raise InvalidEnvelopeError(f"{cls.__qualname__} is not a Flag")
    known = cls._value2member_map_
    if value not in known and len(known) >= FLAG_VALUES_MAX:
        raise InvalidEnvelopeError(
            f"more than {FLAG_VALUES_MAX} combinations of {cls.__qualname__}"
        )
    return cls(value)


def _decode_protobuf(manifest: str, data: bytes | str) -> ProtobufMessage:
    cls = class_for(manifest)
    if not issubclass(cls, ProtobufMessage):
        raise InvalidEnvelopeError(f"{cls.__qualname__} is not a protobuf message")
    return cls.FromString(decode_bytes(data))


DECODERS: Final[dict[str, Callable[..., Any]]] = {
    "enum": _decode_enum,
    "flag": _decode_flag,
    "protobuf": _decode_protobuf,
}
