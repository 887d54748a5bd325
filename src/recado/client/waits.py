"""Who waits for the broker: how many, and for which confirms."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from .confirms import Confirms
from .errors import NotConfirmed

OnConfirm: TypeAlias = Callable[[range, bool], object]


class Waits:
    """Counts those who wait for the broker: `with waits: await …`. A wire that does not read looks here."""

    __slots__ = ("count", "look")

    def __init__(self) -> None:
        self.count = 0
        self.look: Callable[[], None] | None = None  # told when the first comes and the last goes

    def __enter__(self) -> None:
        self.count += 1
        if self.count == 1 and self.look is not None:
            self.look()

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        if not self.count and self.look is not None:
            self.look()


class ConfirmWaits:
    """Those who wait for confirms of one channel, and what the broker refused."""

    def __init__(self, confirms: Confirms, waits: Waits) -> None:
        self.confirms = confirms
        self._waits = waits
        self._refused: list[range] = []
        self._singles: dict[int, asyncio.Future[None]] = {}
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    async def confirmed(self, number: int) -> None:
        if not 0 < number <= self.confirms.published:
            raise ValueError(f"no message has the number {number}")
        if not self.confirms.is_settled(number):
            self._check()
            waiter = self._singles.get(number)
            if waiter is None:
                waiter = self._singles[number] = asyncio.get_running_loop().create_future()
            with self._waits:
                await asyncio.shield(waiter)
        if any(number in each for each in self._refused):
            raise NotConfirmed([range(number, number + 1)])

    async def flush(self) -> None:
        if self.confirms.upto < self.confirms.published:
            self._check()
            waiter = asyncio.get_running_loop().create_future()
            self._flushes.append((self.confirms.published, waiter))
            with self._waits:
                await waiter
        if self._refused:
            refused, self._refused = self._refused, []
            raise NotConfirmed(refused)

    def settled(self, numbers: range, *, ok: bool) -> None:
        """The broker took these, or refused them."""
        if not ok:
            self._refused.append(numbers)
        for number in [each for each in self._singles if each in numbers]:
            _let_go(self._singles.pop(number))
        while self._flushes and self._flushes[0][0] <= self.confirms.upto:
            _let_go(self._flushes.popleft()[1])

    def fail(self, error: Exception) -> None:
        self._error = error
        waiting = [*self._singles.values(), *(waiter for _, waiter in self._flushes)]
        self._singles.clear()
        self._flushes.clear()
        for waiter in waiting:
            refuse(waiter, error)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)


def _let_go(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def refuse(waiter: "asyncio.Future[None]", error: Exception) -> None:
    """It is raised where the future is awaited, if anybody still does."""
    if not waiter.done():
        waiter.set_exception(error)
        waiter.exception()
