"""Checks whether a value matches the declared type of a field or reply.

    order: Bid | Ask        a Bid, an Ask, or an instance of a subclass
    price: float            a float, or an int, as type checkers accept it
    tags: tuple[str, ...]   a tuple of str, not a list

DC1  A field is checked by the same rule when it is sent and when it is received. So a value that the other
     node, or the next incarnation of this one, would reject is rejected when it is sent.
DC2  A type that says nothing about its values (Any, object, an unbound type variable, a protocol that cannot be
     checked) accepts every value.

The fields of an instance are checked when the instance is encoded or created (tagged_codec.py), not by the type
of the field that holds it. Only the type arguments of a generic class, such as Box[int], are checked here.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from .errors import SerializationError

TypeCheck: TypeAlias = Callable[[Any], bool]

# The types that type checkers accept in place of these.
_PROMOTIONS: Final[dict[Any, tuple[type, ...]]] = {
    float: (float, int),
    complex: (complex, float, int),
}
_WRAPPERS: Final = (typing.ClassVar, typing.Final, typing.Required, typing.NotRequired)


class Field(NamedTuple):
    name: str
    annotation: Any
    accepts: TypeCheck


_fields: WeakKeyDictionary[type, tuple[Field, ...]] = WeakKeyDictionary()


def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a struct, a dataclass or a named tuple. Raises SerializationError."""
    found = _fields.get(cls)
    if found is None:
        hints = _hints(cls)
        found = _fields[cls] = tuple(
            Field(name, hint := hints.get(name, Any), type_check(hint)) for name in field_names(cls)
        )
    return found


def field_names(cls: type) -> tuple[str, ...]:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    if is_named_tuple(cls):
        return tuple(cls._fields)  # type: ignore[attr-defined]
    return tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]


def is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception as error:  # noqa: BLE001  resolving a name can raise anything
        raise SerializationError(
            f"the annotations of {cls.__qualname__} cannot be resolved: {error}",
            "Define the classes that they name in the module, not in a function",
        ) from None


def matches_type(value: object, annotation: Any) -> bool:
    """Return whether a value matches a declared type (DC2)."""
    return type_check(annotation)(value)


def type_check(annotation: Any) -> TypeCheck:
    """Return the function that checks values of a declared type."""
    try:
        return _cached_type_check(annotation)
    except TypeError:  # an annotation that cannot be hashed, such as Annotated[int, {}]
        return _build_type_check(annotation)


def _accept_any(value: object) -> bool:
    return True


def _build_type_check(annotation: Any) -> TypeCheck:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None:
        return partial(_is_instance, types.NoneType)
    if annotation is Any or annotation is object or isinstance(annotation, str | typing.ForwardRef):
        return _accept_any
    if isinstance(annotation, typing.TypeVar):
        return _accept_any if annotation.__bound__ is None else type_check(annotation.__bound__)
    if isinstance(annotation, typing.NewType):
        return type_check(annotation.__supertype__)
    if origin is typing.Annotated:
        return _annotated_check(annotation, arguments[0], annotation.__metadata__)
    if origin is typing.Literal:
        allowed = {(type(value), value) for value in arguments}
        return lambda value: _is_among(allowed, value)
    if origin in (typing.Union, types.UnionType):
        checks = [type_check(each) for each in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin in _WRAPPERS:
        return type_check(arguments[0])
    if hasattr(origin or annotation, "__value__"):  # a `type` statement, which may name itself
        alias = origin or annotation
        return lambda value: type_check(alias.__value__)(value)
    kind = origin or annotation
    if typing.is_typeddict(kind):
        return _typed_dict_check(kind)
    if not isinstance(kind, type) or not _supports_isinstance(kind):
        return _accept_any
    return _class_check(kind, arguments)


_cached_type_check = lru_cache(10_000)(_build_type_check)


def _is_instance(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind)


def _is_among(allowed: set[tuple[type, Any]], value: Any) -> bool:
    try:
        return (type(value), value) in allowed
    except TypeError:  # not hashable
        return False


def _supports_isinstance(kind: type) -> bool:
    """Return whether `isinstance` accepts a class; it rejects some protocols."""
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _annotated_check(annotation: Any, inner: Any, metadata: tuple[Any, ...]) -> TypeCheck:
    check = type_check(inner)
    limits = tuple(each for each in metadata if isinstance(each, msgspec.Meta))
    if not limits:
        return check
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        checks = [
            _annotated_check(_with_limits(each, limits), each, limits)
            for each in typing.get_args(inner)
        ]
        return lambda value: any(check(value) for check in checks)
    origin = typing.get_origin(inner)
    if origin is None:
        return lambda value: check(value) and _satisfies_limits(value, annotation)
    # msgspec rejects list[Bid | Ask]; its limits are checked as those of a plain list.
    bare = _with_limits(origin, limits)
    return lambda value: (
        check(value) and _satisfies_limits(value, annotation) and _satisfies_limits(value, bare)
    )


def _with_limits(annotation: Any, limits: tuple[Any, ...]) -> Any:
    annotated: Any = typing.Annotated
    return annotated[(annotation, *limits)]


def _satisfies_limits(value: Any, annotation: Any) -> bool:
    """Return whether msgspec accepts a value, or does not support its type."""
    try:
        msgspec.convert(value, annotation, dec_hook=_return_value)
    except msgspec.ValidationError:
        return False
    except (TypeError, NotImplementedError):
        pass
    return True


def _return_value(_: type, value: object) -> object:
    return value


def _typed_dict_check(kind: Any) -> TypeCheck:
    hints = _hints(kind)
    checks = {key: type_check(hint) for key, hint in hints.items()}
    required: frozenset[str] = kind.__required_keys__

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and value.keys() <= checks.keys()
            and required <= value.keys()
            and all(checks[key](each) for key, each in value.items())
        )

    return check


def _class_check(kind: type, arguments: tuple[Any, ...]) -> TypeCheck:
    is_kind = partial(_is_instance, _PROMOTIONS.get(kind, kind))
    if not arguments:
        return is_kind
    if kind is tuple:
        return _tuple_check(arguments)
    if issubclass(kind, collections.abc.Mapping) and len(arguments) == 2:
        key, value = type_check(arguments[0]), type_check(arguments[1])

        def mapping(of: Any) -> bool:
            return is_kind(of) and all(key(k) and value(v) for k, v in _mapping_items(of))

        return mapping
    if issubclass(kind, collections.abc.Iterable) and len(arguments) == 1:
        element = type_check(arguments[0])
        return lambda value: (
            is_kind(value) and all(element(each) for each in _iterable_elements(value))
        )
    parameters = getattr(kind, "__parameters__", ())
    if is_registrable(kind) and len(parameters) == len(arguments):
        return _generic_check(kind, dict(zip(parameters, arguments, strict=True)))
    return is_kind


def _generic_check(kind: type, type_arguments: Mapping[Any, Any]) -> TypeCheck:
    """Return the check for a type such as Box[int]: a Box whose fields match its type arguments."""

    def check(value: Any) -> bool:
        return isinstance(value, kind) and all(
            matches_type(
                getattr(value, field.name, None), _substitute(field.annotation, type_arguments)
            )
            for field in fields_of(kind)
        )

    return check


def _substitute(annotation: Any, type_arguments: Mapping[Any, Any]) -> Any:
    if isinstance(annotation, typing.TypeVar):
        return type_arguments.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not parameters:
        return annotation
    return annotation[tuple(type_arguments.get(each, each) for each in parameters)]


def _mapping_items(mapping: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return mapping.items()


def _iterable_elements(value: Any) -> Iterable[Any]:
    """Return the elements of a container that can be sent. An iterator must not be consumed."""
    return value if isinstance(value, list | tuple | set | frozenset | dict) else ()


def _tuple_check(arguments: tuple[Any, ...]) -> TypeCheck:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        element = type_check(arguments[0])
        return lambda value: isinstance(value, tuple) and all(element(each) for each in value)
    checks = [type_check(each) for each in arguments]
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(checks)
        and all(check(each) for check, each in zip(checks, value, strict=True))
    )


def describe_type(annotation: Any) -> str:
    """Return the text of a type for error messages."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def is_registrable(cls: Any) -> bool:
    """Return whether a class can be in the class registry."""
    return isinstance(cls, type) and (
        issubclass(cls, msgspec.Struct | enum.Enum)
        or dataclasses.is_dataclass(cls)
        or is_named_tuple(cls)
    )
