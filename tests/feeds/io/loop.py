"""Tests in an event loop, with time as it is, or with time that passes when nothing else is to be done."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from workshop.time_limit import scale

P = ParamSpec("P")
Test = Callable[P, Coroutine[Any, Any, None]]

PATIENCE = 30.0


class JumpingSelector(selectors.DefaultSelector):
    """Does not wait for a timer: the clock jumps to it."""

    jumped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(None)
        self.jumped += timeout
        return []


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.jumped

    def stop_for(self, seconds: float) -> None:
        """As if the process were stopped for so long now: timers that are due meanwhile are served late."""
        self._jumping.jumped += seconds


def in_the_loop(test: Test[P]) -> Callable[P, None]:
    """Within some loss_timeout, so that what never happens is a failure with a place."""

    async def within(*args: P.args, **kwargs: P.kwargs) -> None:
        async with asyncio.timeout(scale(PATIENCE)):
            await test(*args, **kwargs)

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(within(*args, **kwargs))

    return run


def without_waiting(test: Test[P]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def until(met: Callable[[], object]) -> None:
    """Turns of the loop until it is so; the test's loss_timeout ends it."""
    while not met():  # noqa: ASYNC110 (what is waited for tells nobody)
        await asyncio.sleep(0.001)
