"""Exceptions on the wire: known classes are recreated by the receiver, others arrive as name and text.

EXW1  A class name from the wire is only looked up among known classes (exception_registry.py).
EXW2  An exception that cannot be recreated arrives as a RemoteActorError; no exception makes decoding fail.
EXW3  The arguments of an exception arrive unchanged or not at all; then it is recreated from its text.
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

MAX_TEXT_CHARACTERS: Final = 8192
ARGUMENTS_MAX_BYTES: Final = 8192


def _reject_ref(*_: object) -> object:
    raise errors.SerializationError("an actor reference cannot be the argument of an exception")


_codec = TaggedCodec(_reject_ref, _reject_ref)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list)


def encode_exception(error: BaseException) -> Failure:
    """Return the wire form of an exception."""
    if isinstance(error, errors.RemoteActorError):  # relayed as it was received
        return Failure(kind=error.kind[:MAX_TEXT_CHARACTERS], text=error.text[:MAX_TEXT_CHARACTERS])
    kind = registered_name(type(error)) or wire_name(type(error))
    if isinstance(error, errors.MessageRefusedError):
        return Failure(kind=kind, arguments=_encoder.encode([int(error.reason), error.detail]))
    return Failure(kind=kind, text=_exception_text(error), arguments=_encode_arguments(error))


def decode_exception(failure: Failure) -> Exception:
    """Recreate an exception, as a RemoteActorError if its class is unknown here (EXW2)."""
    kind, text = failure.kind[:MAX_TEXT_CHARACTERS], failure.text[:MAX_TEXT_CHARACTERS]
    cls = exception_class(kind)
    if cls is None or len(failure.arguments) > ARGUMENTS_MAX_BYTES:
        return errors.RemoteActorError(kind, text)
    try:
        if not failure.arguments:
            return cls(text)
        arguments: list[Any] = [_codec.decode(each) for each in _decoder.decode(failure.arguments)]
        if cls is errors.MessageRefusedError:
            return errors.MessageRefusedError(errors.RefusalReason(arguments[0]), *arguments[1:])
        return cls(*arguments)
    except Exception:  # noqa: BLE001  constructors with arguments from the network may raise anything
        return errors.RemoteActorError(kind, text)


def _encode_arguments(error: BaseException) -> bytes:
    """Return nothing if the arguments cannot be encoded or are too large; the text is sent in any case."""
    try:
        arguments = _encoder.encode([_codec.encode(each) for each in error.args])
    except (errors.SerializationError, TypeError, ValueError):
        return b""
    return arguments if len(arguments) <= ARGUMENTS_MAX_BYTES else b""


def _exception_text(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()[:MAX_TEXT_CHARACTERS]
    except Exception:  # noqa: BLE001  a failing `__str__` must not hide the exception itself
        return ""
