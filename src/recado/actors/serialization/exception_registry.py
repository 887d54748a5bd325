"""The exceptions that are recreated at the receiver, by the names under which they are sent.

The registry contains Python's built-in exceptions, all subclasses of ActorError, and the exceptions that the
program has registered.

XR1  A received name is looked up only in this registry, never in a module.
"""

from __future__ import annotations

import builtins
from typing import Final, TypeVar

from recado.actors.errors import ActorError

E = TypeVar("E", bound=Exception)

# A future cannot hold a StopIteration, which would end a coroutine.
_EXCLUDED_NAMES: Final = ("StopIteration", "StopAsyncIteration")

_registered: dict[str, type[Exception]] = {}


def wire_name(cls: type[BaseException]) -> str:
    """Return the name under which an exception is sent."""
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def register_exception(cls: type[E], name: str | None = None) -> type[E]:
    """Register an exception class, so that it is recreated from its `args` at the receiver. Also a decorator.

    Raises ValueError if another class has the name.
    """
    kind = name or wire_name(cls)
    if _registered.setdefault(kind, cls) is not cls:
        raise ValueError(f"another exception is registered as {kind}")
    return cls


def exception_class(kind: str) -> type[Exception] | None:
    """Return the class with this wire name; None if it is not in the registry (XR1)."""
    found = _registered.get(kind)
    if found is None:
        remaining: list[type[Exception]] = [ActorError]
        while remaining:
            cls = remaining.pop()
            if wire_name(cls) == kind:
                return cls
            remaining += cls.__subclasses__()
    return found


def registered_name(cls: type[BaseException]) -> str | None:
    """Return the name by which `exception_class` finds a class; None if it is not in the registry."""
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
