"""The exceptions that are made again where they arrive, by the names under which they travel.

Known are those of Python, those derived from ActorError, and those that were registered.

EX1  No class is looked for by a name from outside, other than among these.
"""

from __future__ import annotations

import builtins
from typing import Final, TypeVar

from recado.actors.errors import ActorError

E = TypeVar("E", bound=Exception)

# No future takes a StopIteration: it would look like the end of a coroutine.
_EXCLUDED_NAMES: Final = ("StopIteration", "StopAsyncIteration")

_registered: dict[str, type[Exception]] = {}


def wire_name(cls: type[BaseException]) -> str:
    """The name of an exception's class."""
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def register_exception(cls: type[E], name: str | None = None) -> type[E]:
    """From now on exceptions of this class arrive as such. It is made of its `args`. Also a decorator."""
    kind = name or wire_name(cls)
    if _registered.setdefault(kind, cls) is not cls:
        raise ValueError(f"another exception is registered as {kind}")
    return cls


def exception_class(kind: str) -> type[Exception] | None:
    """The class of this name, if it is known (EX1)."""
    found = _registered.get(kind)
    if found is None:
        waiting: list[type[Exception]] = [ActorError]
        while waiting:
            cls = waiting.pop()
            if wire_name(cls) == kind:
                return cls
            waiting += cls.__subclasses__()
    return found


def registered_name(cls: type[BaseException]) -> str | None:
    """The name by which `exception_class` finds this class; None if there is none."""
    kind = wire_name(cls)
    if exception_class(kind) is cls:
        return kind
    return next((name for name, known in _registered.items() if known is cls), None)


def _register_builtins() -> None:
    for name in dir(builtins):
        cls = getattr(builtins, name)
        if isinstance(cls, type) and issubclass(cls, Exception) and name not in _EXCLUDED_NAMES:
            _registered[cls.__name__] = cls


_register_builtins()
