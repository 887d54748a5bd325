"""Exceptions on their way to another node: those that it knows are made again there, others keep name and text.

X1  No class is looked for by a name from outside, other than among those that are known (exceptions.py).
X2  An exception that cannot be made again arrives as a RemoteFailure; none makes the reader fail.
X3  The arguments of an exception arrive as they were, or not at all: then it is made of its text.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from recado.actors.remote import faults
from recado.actors.serialising.exceptions import exception_class, kind_of, name_of
from recado.actors.serialising.exceptions import register_exception as register_exception
from recado.actors.serialising.tagged import Tagged

from .envelope_pb2 import Failure

TEXT_MOST: Final = 8192  # characters
ARGUMENTS_MOST: Final = 8192  # bytes


def _no_ref(*_: object) -> object:
    raise faults.CannotSerialise("a reference to an actor is no argument of an exception")


_tagged = Tagged(_no_ref, _no_ref)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list)


def write_failure(error: BaseException) -> Failure:
    if isinstance(error, faults.RemoteFailure):  # it goes on as it came
        return Failure(kind=error.kind[:TEXT_MOST], text=error.text[:TEXT_MOST])
    kind = name_of(type(error)) or kind_of(type(error))
    if isinstance(error, faults.Refused):
        return Failure(kind=kind, arguments=_encoder.encode([int(error.reason), error.why]))
    return Failure(kind=kind, text=_text_of(error), arguments=_arguments_of(error))


def read_failure(failure: Failure) -> Exception:
    kind, text = failure.kind[:TEXT_MOST], failure.text[:TEXT_MOST]
    cls = exception_class(kind)
    if cls is None or len(failure.arguments) > ARGUMENTS_MOST:
        return faults.RemoteFailure(kind, text)
    try:
        if not failure.arguments:
            return cls(text)
        arguments: list[Any] = [_tagged.lift(each) for each in _decoder.decode(failure.arguments)]
        if cls is faults.Refused:
            return faults.Refused(faults.Refusal(arguments[0]), *arguments[1:])
        return cls(*arguments)
    except Exception:  # noqa: BLE001  its constructor is anybody's, and its arguments came from outside
        return faults.RemoteFailure(kind, text)


def _arguments_of(error: BaseException) -> bytes:
    try:
        arguments = _encoder.encode([_tagged.lower(each) for each in error.args])
    except (faults.CannotSerialise, TypeError, ValueError):
        return b""  # its text has to do
    return arguments if len(arguments) <= ARGUMENTS_MOST else b""


def _text_of(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()[:TEXT_MOST]
    except Exception:  # noqa: BLE001  a `__str__` that fails must not hide what it should have told
        return ""
