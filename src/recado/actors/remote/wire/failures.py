"""Exceptions on their way to another node: those that it knows are made again there, others keep name and text.

X1  No class is looked for by a name from outside, other than among those that are known (exceptions.py).
X2  An exception that cannot be made again arrives as a RemoteFailure; none makes the reader fail.
X3  The arguments of an exception arrive as they were, or not at all: then it is made of its text.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from recado.actors.remote import errors
from recado.actors.serialization.exception_registry import (
    exception_class,
    registered_name,
    wire_name,
)
from recado.actors.serialization.exception_registry import register_exception as register_exception
from recado.actors.serialization.tagged_codec import TaggedCodec

from .envelope_pb2 import Failure

MAX_TEXT_CHARACTERS: Final = 8192  # characters
ARGUMENTS_MAX_BYTES: Final = 8192  # bytes


def _reject_ref(*_: object) -> object:
    raise errors.SerializationError("a reference to an actor is no argument of an exception")


_tagged = TaggedCodec(_reject_ref, _reject_ref)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list)


def encode_exception(error: BaseException) -> Failure:
    if isinstance(error, errors.RemoteActorError):  # it goes on as it came
        return Failure(kind=error.kind[:MAX_TEXT_CHARACTERS], text=error.text[:MAX_TEXT_CHARACTERS])
    kind = registered_name(type(error)) or wire_name(type(error))
    if isinstance(error, errors.MessageRefusedError):
        return Failure(kind=kind, arguments=_encoder.encode([int(error.reason), error.detail]))
    return Failure(kind=kind, text=_exception_text(error), arguments=_encode_arguments(error))


def decode_exception(failure: Failure) -> Exception:
    kind, text = failure.kind[:MAX_TEXT_CHARACTERS], failure.text[:MAX_TEXT_CHARACTERS]
    cls = exception_class(kind)
    if cls is None or len(failure.arguments) > ARGUMENTS_MAX_BYTES:
        return errors.RemoteActorError(kind, text)
    try:
        if not failure.arguments:
            return cls(text)
        arguments: list[Any] = [_tagged.decode(each) for each in _decoder.decode(failure.arguments)]
        if cls is errors.MessageRefusedError:
            return errors.MessageRefusedError(errors.RefusalReason(arguments[0]), *arguments[1:])
        return cls(*arguments)
    except Exception:  # noqa: BLE001  its constructor is anybody's, and its arguments came from outside
        return errors.RemoteActorError(kind, text)


def _encode_arguments(error: BaseException) -> bytes:
    try:
        arguments = _encoder.encode([_tagged.encode(each) for each in error.args])
    except (errors.SerializationError, TypeError, ValueError):
        return b""  # its text has to do
    return arguments if len(arguments) <= ARGUMENTS_MAX_BYTES else b""


def _exception_text(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()[:MAX_TEXT_CHARACTERS]
    except Exception:  # noqa: BLE001  a `__str__` that fails must not hide what it should have told
        return ""
