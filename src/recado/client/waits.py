"""Who waits for the broker: how many, until something changes, and for which confirms."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .confirms import Confirms
from .errors import NotConfirmed

OnConfirm: TypeAlias = Callable[[range, bool], object]

REMEMBERED = 1_000  # refusals, for those who ask about a message later


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


class Waiters:
    """Those who wait until something changes, and then see for themselves whether it is enough."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}

    @property
    def are_any(self) -> bool:
        return bool(self._futures)

    async def wait(self) -> None:
        """Until the next change. Who stops waiting before, as by a time-out, leaves nothing behind."""
        future = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        try:
            await future
        finally:
            self._futures.pop(future, None)

    def wake(self) -> None:
        if self._futures:
            futures, self._futures = self._futures, {}
            for future in futures:
                _let_go(future)


class ConfirmWaits:
    """Those who wait for confirms of one channel, and what the broker refused."""

    def __init__(self, confirms: Confirms, waits: Waits) -> None:
        self.confirms = confirms
        self._waits = waits
        self._refused: deque[range] = deque(maxlen=REMEMBERED)
        self._refusals = 0
        self._told = 0  # of the refusals, how many a flush has raised
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
        told = self._told  # by those before us; who waits beside us is told the same
        if self.confirms.upto < self.confirms.published:
            self._check()
            waiter = asyncio.get_running_loop().create_future()
            self._flushes.append((self.confirms.published, waiter))
            with self._waits:
                await waiter
        new, self._told = self._refusals - told, self._refusals
        if new:
            raise NotConfirmed(list(self._refused)[-new:])

    def settled(self, numbers: range, *, ok: bool) -> None:
        """The broker took these, or refused them."""
        if not ok:
            self._refused.append(numbers)
            self._refusals += 1
        if self._singles:
            for number in sorted(self._singles.keys() & numbers):
                _let_go(self._singles.pop(number))
        while self._flushes and self._flushes[0][0] <= self.confirms.upto:
            _let_go(self._flushes.popleft()[1])

    def fail(self, error: Exception) -> None:
        self._error = error
        refuse([*self._singles.values(), *(waiter for _, waiter in self._flushes)], error)
        self._singles.clear()
        self._flushes.clear()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)


def _let_go(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def refuse(tokens: Iterable[object], error: Exception) -> None:
    """The error is raised where each of these futures is awaited, if anybody still does."""
    for token in tokens:
        if isinstance(token, asyncio.Future) and not token.done():
            token.set_exception(error)
            token.exception()  # or asyncio would complain that nobody awaits it
