"""The classes that can be serialized, by their manifests: the names under which they are sent.

A class is known if it is a Message, if a field or the reply of a Message is declared with it, or if it was
registered: a struct, a dataclass, an Enum, a named tuple or a protobuf message. Its manifest is its module and
name, unless it has a `manifest: ClassVar[str] = "…"` or was registered under another name. An explicit name is
needed if the module has different names on both nodes, such as a program that is `__main__` on one of them.

CA1  No name that was received leads to an import or to a lookup in a module.
CA2  A manifest means one class. Of two classes with the same manifest (created by a function that ran twice) it
     is the later one.
"""

from __future__ import annotations

import enum
import sys
import typing
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from google.protobuf.message import Message as ProtobufMessage

from recado.actors.message import Message

from .declared_types import fields_of, is_registrable
from .errors import SerializationError

T = TypeVar("T")

_registered: dict[str, type] = {}
_manifests: dict[type, str] = {}
_discovered: dict[str, type] = {}  # messages, and the classes in their declarations
# Cache of the classes in the declarations of one class: resolving them takes 20 µs, and any peer can cause that
# by sending unknown names.
_declared_classes: WeakKeyDictionary[type, list[type]] = WeakKeyDictionary()


def register(cls: type[T], name: str | None = None) -> type[T]:
    """Register a class, so that its values can be sent and stored. Also a decorator.

    Args:
        cls: a struct, a dataclass, an Enum, a named tuple, or a protobuf message.
        name: its manifest; by default its module and name.

    Raises TypeError for another kind of class, and ValueError if another class has the manifest.
    """
    if not _is_serializable(cls):
        raise TypeError(
            f"{cls.__qualname__} is not a struct, dataclass, Enum, named tuple or protobuf message"
        )
    manifest = name or _default_manifest(cls)
    before = _registered.get(manifest)
    if before is not None and before is not cls and not _same_source(before, cls):
        raise ValueError(f"{before!r} is already registered as {manifest}")
    _registered[manifest] = cls
    _manifests[cls] = manifest
    return cls


def manifest_of(cls: type) -> str:
    """Return the manifest of a class. Raises SerializationError if the class is not known."""
    manifest = _manifests.get(cls)
    if manifest is None:
        if getattr(cls, "by_reference", False) is True:
            raise SerializationError(
                f"{cls.__qualname__} is sent by reference, which works only within a process",
                "Leave out by_reference, or register it: recado.actors.register",
            )
        manifest = _default_manifest(cls)
        if not issubclass(cls, Message) and find_class(manifest) is not cls:
            raise SerializationError(
                f"{cls.__qualname__} has no serializer",
                "Make it a Message, or register it: recado.actors.register",
            )
        _manifests[cls] = manifest
    return manifest


def find_class(manifest: str) -> type | None:
    """Return the class with a manifest; None if there is none."""
    found = _registered.get(manifest) or _discovered.get(manifest)
    if found is None:
        _discover_messages()
        found = _discovered.get(manifest)
    return found


def reply_type_of(cls: type) -> Any:
    """Return the reply type that a message class declares; None if it declares none."""
    for ancestor in cls.__mro__:
        for base in getattr(ancestor, "__orig_bases__", ()):
            if typing.get_origin(base) is Message:
                return _resolve(typing.get_args(base)[0], ancestor)
    return None


def _resolve(annotation: Any, cls: type) -> Any:
    if isinstance(annotation, typing.ForwardRef):
        module = sys.modules.get(cls.__module__)
        return getattr(module, annotation.__forward_arg__, None)
    return None if isinstance(annotation, TypeVar) else annotation


def _discover_messages() -> None:
    """Collect all subclasses of Message that exist now. Called only for unknown manifests."""
    global _discovered
    discovered: dict[str, type] = {}
    remaining: list[type[Message[Any]]] = [Message]
    while remaining:
        for cls in remaining.pop().__subclasses__():
            remaining.append(cls)
            if cls.by_reference:  # such as signals and events
                continue
            discovered[_default_manifest(cls)] = cls
            for declared in _classes_declared_by(cls):
                discovered.setdefault(_default_manifest(declared), declared)
    _discovered = discovered  # in one step: other threads read it


def _classes_declared_by(cls: type) -> list[type]:
    """Return the classes in the declarations of a message, in the fields of those classes, and so on."""
    found = _declared_classes.get(cls)
    if found is not None:
        return found
    seen: dict[type, None] = {}
    resolved = True
    remaining = [cls, *_classes_in(reply_type_of(cls))]
    while remaining:
        each = remaining.pop()
        if each in seen:
            continue
        seen[each] = None
        try:
            remaining += _classes_in_fields(each)
        except SerializationError:  # a name that may be defined later
            resolved = False
    del seen[cls]
    if resolved:
        _declared_classes[cls] = list(seen)
    return list(seen)


def _classes_in_fields(cls: type) -> list[type]:
    """Return the classes in the fields of a class. Raises SerializationError."""
    if issubclass(cls, ProtobufMessage | enum.Enum):
        return []
    return [found for field in fields_of(cls) for found in _classes_in(field.annotation)]


def _classes_in(annotation: Any) -> list[type]:
    if isinstance(annotation, typing.NewType):
        return _classes_in(annotation.__supertype__)
    within = [cls for part in typing.get_args(annotation) for cls in _classes_in(part)]
    kind = typing.get_origin(annotation) or annotation
    return [kind, *within] if isinstance(kind, type) and _is_serializable(kind) else within


def _is_serializable(cls: type) -> bool:
    by_reference = getattr(cls, "by_reference", False) is True
    return issubclass(cls, ProtobufMessage) or (is_registrable(cls) and not by_reference)


def _default_manifest(cls: type) -> str:
    if issubclass(cls, ProtobufMessage):
        return str(cls.DESCRIPTOR.full_name)
    manifest = cls.__dict__.get("manifest")
    # A dataclass field with the name `manifest` has its default value in the class.
    is_field = "manifest" in getattr(cls, "__dataclass_fields__", ())
    if type(manifest) is str and not is_field:
        return manifest
    return f"{cls.__module__}.{cls.__qualname__}"


def _same_source(one: type, other: type) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
