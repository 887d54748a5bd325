"""Run tests as coroutines, each in its own event loop and with a timeout."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from workshop.time_limit import scale

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 30.0


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def soon(awaitable: Awaitable[T], seconds: float = PATIENCE) -> T:
    """It must not take for ever: nothing hangs."""
    return await asyncio.wait_for(awaitable, scale(seconds))
