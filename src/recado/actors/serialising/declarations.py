"""The declared types of fields and replies: whether a value is of one.

    order: Bid | Ask        a Bid, an Ask, or an instance of a class derived from them
    price: float            a float, or an int, as type checkers accept it
    tags: tuple[str, ...]   a tuple of str, and no list

DC1  A field is checked by the same rule when it is sent and when it arrives, so a value that the other node, or
     the next life of this one, would not accept is refused when it is sent.
DC2  A type that says nothing about its values (Any, object, a type variable without a bound, a protocol that
     cannot be checked) accepts every value.

The fields of an instance are checked when that instance is written or made (tagged.py), not by the type of the
field that holds it.
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

from .faults import CannotSerialise

Check: TypeAlias = Callable[[Any], bool]

# What type checkers accept in place of these.
_PROMOTED: Final[dict[Any, tuple[type, ...]]] = {
    float: (float, int),
    complex: (complex, float, int),
}
_WRAPPERS: Final = (typing.ClassVar, typing.Final, typing.Required, typing.NotRequired)


class Field(NamedTuple):
    name: str
    annotation: Any
    accepts: Check


_fields: WeakKeyDictionary[type, tuple[Field, ...]] = WeakKeyDictionary()


def fields_of(cls: type) -> tuple[Field, ...]:
    """The fields of a struct, a dataclass or a named tuple. Raises CannotSerialise."""
    found = _fields.get(cls)
    if found is None:
        hints = _hints(cls)
        found = _fields[cls] = tuple(
            Field(name, hint := hints.get(name, Any), conformance(hint))
            for name in field_names(cls)
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
    except Exception as error:  # noqa: BLE001  names that are not to be found can fail in any way
        raise CannotSerialise(
            f"the annotations of {cls.__qualname__} cannot be resolved: {error}",
            "Define the classes that they name in the module, not in a function",
        ) from None


def fits(value: object, annotation: Any) -> bool:
    """Whether this value is of a declared type (DC2)."""
    return conformance(annotation)(value)


def conformance(annotation: Any) -> Check:
    """The check for values of a declared type."""
    try:
        return _cached(annotation)
    except TypeError:  # an annotation that cannot be hashed, such as Annotated[int, {}]
        return _conformance(annotation)


def _anything(value: object) -> bool:
    return True


def _conformance(annotation: Any) -> Check:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None:
        return partial(_is_a, types.NoneType)
    if annotation is Any or annotation is object or isinstance(annotation, str | typing.ForwardRef):
        return _anything
    if isinstance(annotation, typing.TypeVar):
        return _anything if annotation.__bound__ is None else conformance(annotation.__bound__)
    if isinstance(annotation, typing.NewType):
        return conformance(annotation.__supertype__)
    if origin is typing.Annotated:
        return _annotated(annotation, arguments[0], annotation.__metadata__)
    if origin is typing.Literal:
        allowed = {(type(value), value) for value in arguments}
        return lambda value: _is_among(allowed, value)
    if origin in (typing.Union, types.UnionType):
        checks = [conformance(each) for each in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin in _WRAPPERS:
        return conformance(arguments[0])
    if hasattr(origin or annotation, "__value__"):  # a `type` statement, which may name itself
        alias = origin or annotation
        return lambda value: conformance(alias.__value__)(value)
    kind = origin or annotation
    if typing.is_typeddict(kind):
        return _typed_dict(kind)
    if not isinstance(kind, type) or not _can_be_asked(kind):
        return _anything
    return _of_class(kind, arguments)


_cached = lru_cache(10_000)(_conformance)


def _is_a(kind: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, kind)


def _is_among(allowed: set[tuple[type, Any]], value: Any) -> bool:
    try:
        return (type(value), value) in allowed
    except TypeError:  # not hashable
        return False


def _can_be_asked(kind: type) -> bool:
    """Whether `isinstance` has an answer: for some protocols it has none."""
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _annotated(annotation: Any, inner: Any, metadata: tuple[Any, ...]) -> Check:
    check = conformance(inner)
    limits = tuple(each for each in metadata if isinstance(each, msgspec.Meta))
    if not limits:
        return check
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        checks = [
            _annotated(_limited(each, limits), each, limits) for each in typing.get_args(inner)
        ]
        return lambda value: any(check(value) for check in checks)
    origin = typing.get_origin(inner)
    if origin is None:
        return lambda value: check(value) and _is_within(value, annotation)
    # Of a list[Bid | Ask], which msgspec does not know, the limits are those of a list.
    bare = _limited(origin, limits)
    return lambda value: check(value) and _is_within(value, annotation) and _is_within(value, bare)


def _limited(annotation: Any, limits: tuple[Any, ...]) -> Any:
    annotated: Any = typing.Annotated
    return annotated[(annotation, *limits)]


def _is_within(value: Any, annotation: Any) -> bool:
    """Whether msgspec accepts a value, or does not know its type."""
    try:
        msgspec.convert(value, annotation, dec_hook=_as_it_is)
    except msgspec.ValidationError:
        return False
    except (TypeError, NotImplementedError):
        pass
    return True


def _as_it_is(_: type, value: object) -> object:
    return value


def _typed_dict(kind: Any) -> Check:
    hints = _hints(kind)
    checks = {key: conformance(hint) for key, hint in hints.items()}
    required: frozenset[str] = kind.__required_keys__

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and value.keys() <= checks.keys()
            and required <= value.keys()
            and all(checks[key](each) for key, each in value.items())
        )

    return check


def _of_class(kind: type, arguments: tuple[Any, ...]) -> Check:
    is_kind = partial(_is_a, _PROMOTED.get(kind, kind))
    if not arguments:
        return is_kind
    if kind is tuple:
        return _tuple(arguments)
    if issubclass(kind, collections.abc.Mapping) and len(arguments) == 2:
        key, value = conformance(arguments[0]), conformance(arguments[1])

        def mapping(of: Any) -> bool:
            return is_kind(of) and all(key(k) and value(v) for k, v in _items(of))

        return mapping
    if issubclass(kind, collections.abc.Iterable) and len(arguments) == 1:
        element = conformance(arguments[0])
        return lambda value: is_kind(value) and all(element(each) for each in _elements(value))
    parameters = getattr(kind, "__parameters__", ())
    if can_be_named(kind) and len(parameters) == len(arguments):
        return _generic(kind, dict(zip(parameters, arguments, strict=True)))
    return is_kind


def _generic(kind: type, meant: Mapping[Any, Any]) -> Check:
    """For Box[int]: a Box whose fields fit what its type variables mean."""

    def check(value: Any) -> bool:
        return isinstance(value, kind) and all(
            fits(getattr(value, field.name, None), _substituted(field.annotation, meant))
            for field in fields_of(kind)
        )

    return check


def _substituted(annotation: Any, meant: Mapping[Any, Any]) -> Any:
    if isinstance(annotation, typing.TypeVar):
        return meant.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    if isinstance(annotation, type) or not parameters:
        return annotation
    return annotation[tuple(meant.get(each, each) for each in parameters)]


def _items(mapping: Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return mapping.items()


def _elements(value: Any) -> Iterable[Any]:
    """Of the containers that travel; an iterator must not be used up."""
    return value if isinstance(value, list | tuple | set | frozenset | dict) else ()


def _tuple(arguments: tuple[Any, ...]) -> Check:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        element = conformance(arguments[0])
        return lambda value: isinstance(value, tuple) and all(element(each) for each in value)
    checks = [conformance(each) for each in arguments]
    return lambda value: (
        isinstance(value, tuple)
        and len(value) == len(checks)
        and all(check(each) for check, each in zip(checks, value, strict=True))
    )


def describe(annotation: Any) -> str:
    """A type, as an error names it."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__
    return str(annotation).replace("typing.", "")


def can_be_named(cls: Any) -> bool:
    """Whether values of this class can travel under its name: the classes that a catalogue may hold."""
    return isinstance(cls, type) and (
        issubclass(cls, msgspec.Struct | enum.Enum)
        or dataclasses.is_dataclass(cls)
        or is_named_tuple(cls)
    )
