"""The classes that messages may have, by the names under which they travel: their manifests.

A class is known if it is a Message, if it is what a Message is answered by, or if it was registered. Its
manifest is its module and name, unless it says `manifest: ClassVar[str] = "…"` or was registered under
another: do so where the module has different names on both sides, such as a program that the other side
imports.

CA1  Nothing is imported, or looked for in a module, because of a name from outside.
CA2  A manifest means one class; of two that have the same (made by a function that ran twice) the later.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from typing import Any, TypeVar

import msgspec
from google.protobuf.message import Message as ProtobufMessage

from recado.actors.message import Message

from .faults import CannotSerialise

T = TypeVar("T")

_registered: dict[str, type] = {}
_manifests: dict[type, str] = {}
_found: dict[str, type] = {}  # messages, and what they are answered by


def register(cls: type[T], name: str | None = None) -> type[T]:
    """Let values of this class travel: a struct, a dataclass, or a message of protobuf. Also a decorator."""
    if not _travels(cls):
        raise TypeError(f"{cls.__qualname__} is no struct, dataclass or message of protobuf")
    manifest = name or _own_manifest(cls)
    before = _registered.get(manifest)
    if before is not None and before is not cls and not _same_source(before, cls):
        raise ValueError(f"{before!r} is registered as {manifest} already")
    _registered[manifest] = cls
    _manifests[cls] = manifest
    return cls


def manifest_of(cls: type) -> str:
    """Raises CannotSerialise."""
    manifest = _manifests.get(cls)
    if manifest is None:
        manifest = _own_manifest(cls)
        if not issubclass(cls, Message) and class_of(manifest) is not cls:
            raise CannotSerialise(
                f"{cls.__qualname__} has no serialiser",
                "Make it a Message, or register it: recado.actors.remote.register",
            )
        _manifests[cls] = manifest
    return manifest


def class_of(manifest: str) -> type | None:
    """The class, if one is known."""
    found = _registered.get(manifest) or _found.get(manifest)
    if found is None:
        _look_around()
        found = _found.get(manifest)
    return found


def reply_type(cls: type) -> Any:
    """What a message of this class is answered by, as its bases say; None if they do not."""
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


def _look_around() -> None:
    """All messages that there are now. Asking Python is cheap, and only unknown names make us ask."""
    _found.clear()
    waiting: list[type[Message[Any]]] = [Message]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            waiting.append(cls)
            if cls.by_reference:  # what cannot be copied does not travel: signals, occurrences
                continue
            _found[_own_manifest(cls)] = cls
            for answer in _classes_in(reply_type(cls)):
                _found.setdefault(_own_manifest(answer), answer)


def _classes_in(annotation: Any) -> list[type]:
    if isinstance(annotation, type) and _travels(annotation):
        return [annotation]
    return [cls for part in typing.get_args(annotation) for cls in _classes_in(part)]


def _travels(cls: type) -> bool:
    return issubclass(cls, msgspec.Struct | ProtobufMessage) or dataclasses.is_dataclass(cls)


def _own_manifest(cls: type) -> str:
    if issubclass(cls, ProtobufMessage):
        return str(cls.DESCRIPTOR.full_name)
    said = cls.__dict__.get("manifest")
    return said if isinstance(said, str) else f"{cls.__module__}.{cls.__qualname__}"


def _same_source(one: type, other: type) -> bool:
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
