"""Exceptions on their way to another node: those registered are rebuilt there, others keep name and text.

X1  No class is looked for by a name from outside, other than among those that were registered.
X2  An exception that cannot be rebuilt arrives as a RemoteFailure; none makes the reader fail.
"""

from __future__ import annotations

import builtins
from typing import Final

import msgspec

from recado.actors.errors import ActorError
from recado.actors.remote import faults

from .envelope_pb2 import Failure

TEXT_MOST: Final = 8192  # characters
ARGUMENTS_MOST: Final = 8192  # bytes

_ENDINGS: Final = ("StopIteration", "StopAsyncIteration")
_by_kind: dict[str, type[Exception]] = {}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list)


def kind_of(cls: type[BaseException]) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def register_exception(cls: type[Exception], name: str | None = None) -> type[Exception]:
    """From now on exceptions of this class arrive as such. It is made of its `args`. Also a decorator."""
    kind = name or kind_of(cls)
    if _by_kind.setdefault(kind, cls) is not cls:
        raise ValueError(f"another exception is registered as {kind}")
    return cls


def write_failure(error: BaseException) -> Failure:
    if isinstance(error, faults.RemoteFailure):  # it goes on as it came
        return Failure(kind=error.kind[:TEXT_MOST], text=error.text[:TEXT_MOST])
    if isinstance(error, faults.Refused):
        return Failure(kind=kind_of(type(error)), arguments=_encoder.encode([int(error.reason)]))
    return Failure(kind=kind_of(type(error)), text=_text_of(error), arguments=_arguments_of(error))


def read_failure(failure: Failure) -> Exception:
    kind, text = failure.kind[:TEXT_MOST], failure.text[:TEXT_MOST]
    cls = _by_kind.get(kind)
    if cls is None or len(failure.arguments) > ARGUMENTS_MOST:
        return faults.RemoteFailure(kind, text)
    try:
        if cls is faults.Refused:
            return faults.Refused(faults.Refusal(_decoder.decode(failure.arguments)[0]))
        return cls(*_decoder.decode(failure.arguments)) if failure.arguments else cls(text)
    except Exception:  # noqa: BLE001  its constructor is anybody's, and its arguments came from outside
        return faults.RemoteFailure(kind, text)


def _arguments_of(error: BaseException) -> bytes:
    try:
        arguments = _encoder.encode(list(error.args))
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError):
        return b""  # not plain values: its text has to do
    return arguments if len(arguments) <= ARGUMENTS_MOST else b""


def _text_of(error: BaseException) -> str:
    try:
        return str(error).encode(errors="replace").decode()[:TEXT_MOST]
    except Exception:  # noqa: BLE001  a `__str__` that fails must not hide what it should have told
        return ""


def _register_known() -> None:
    for name in dir(builtins):
        cls = getattr(builtins, name)
        # No future takes a StopIteration: it would look like the end of a coroutine.
        if isinstance(cls, type) and issubclass(cls, Exception) and name not in _ENDINGS:
            _by_kind[cls.__name__] = cls
    waiting: list[type[Exception]] = [ActorError]
    while waiting:
        cls = waiting.pop()
        register_exception(cls)
        waiting += cls.__subclasses__()


_register_known()
