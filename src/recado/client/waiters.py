"""Who waits for the broker: how many, until something changes, and for which confirms."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .confirms import ConfirmTracker
from .errors import PublishNackedError

OnConfirm: TypeAlias = Callable[[range, bool], object]

NACK_HISTORY_COUNT = 1_000  # refusals, for those who ask about a message later


class WaitCounter:
    """Counts those who wait for the broker: `with waits: await …`. A wire that does not read looks here."""

    __slots__ = ("count", "on_change")

    def __init__(self) -> None:
        self.count = 0
        self.on_change: Callable[[], None] | None = (
            None  # told when the first comes and the last goes
        )

    def __enter__(self) -> None:
        self.count += 1
        if self.count == 1 and self.on_change is not None:
            self.on_change()

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        if not self.count and self.on_change is not None:
            self.on_change()


class Notifier:
    """Those who wait until something changes, and then see for themselves whether it is enough."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._futures)

    async def wait(self) -> None:
        """Until the next change. Who stops waiting before, as by a time-out, leaves nothing behind."""
        future = asyncio.get_running_loop().create_future()
        self._futures[future] = None
        try:
            await future
        finally:
            self._futures.pop(future, None)

    def notify_all(self) -> None:
        if self._futures:
            futures, self._futures = self._futures, {}
            for future in futures:
                _resolve(future)


class ConfirmWaiters:
    """Those who wait for confirms of one channel, and what the broker refused."""

    def __init__(self, tracker: ConfirmTracker, wait_counter: WaitCounter) -> None:
        self.tracker = tracker
        self._wait_counter = wait_counter
        self._nacked_ranges: deque[range] = deque(maxlen=NACK_HISTORY_COUNT)
        self._nacked_count = 0
        self._raised_count = 0  # of the refusals, how many a flush has raised
        self._single_waiters: dict[int, asyncio.Future[None]] = {}
        self._flush_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    async def wait_for_confirm(self, sequence_number: int) -> None:
        if not 0 < sequence_number <= self.tracker.published_count:
            raise ValueError(f"no message has the number {sequence_number}")
        if not self.tracker.is_settled(sequence_number):
            self._check()
            waiter = self._single_waiters.get(sequence_number)
            if waiter is None:
                waiter = self._single_waiters[sequence_number] = (
                    asyncio.get_running_loop().create_future()
                )
            with self._wait_counter:
                await asyncio.shield(waiter)
        if any(sequence_number in each for each in self._nacked_ranges):
            raise PublishNackedError([range(sequence_number, sequence_number + 1)])

    async def wait_for_confirms(self) -> None:
        raised_before = (
            self._raised_count
        )  # by those before us; who waits beside us is told the same
        if self.tracker.settled_up_to < self.tracker.published_count:
            self._check()
            waiter = asyncio.get_running_loop().create_future()
            self._flush_waiters.append((self.tracker.published_count, waiter))
            with self._wait_counter:
                await waiter
        new_count, self._raised_count = self._nacked_count - raised_before, self._nacked_count
        if new_count:
            raise PublishNackedError(list(self._nacked_ranges)[-new_count:])

    def handle_confirms(self, sequence_numbers: range, *, acked: bool) -> None:
        """The broker took these, or refused them."""
        if not acked:
            self._nacked_ranges.append(sequence_numbers)
            self._nacked_count += 1
        if self._single_waiters:
            for number in sorted(self._single_waiters.keys() & sequence_numbers):
                _resolve(self._single_waiters.pop(number))
        while self._flush_waiters and self._flush_waiters[0][0] <= self.tracker.settled_up_to:
            _resolve(self._flush_waiters.popleft()[1])

    def fail(self, error: Exception) -> None:
        self._error = error
        fail_futures(
            [*self._single_waiters.values(), *(waiter for _, waiter in self._flush_waiters)], error
        )
        self._single_waiters.clear()
        self._flush_waiters.clear()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def fail_futures(futures: Iterable[object], error: Exception) -> None:
    """The error is raised where each of these futures is awaited, if anybody still does."""
    for token in futures:
        if isinstance(token, asyncio.Future) and not token.done():
            token.set_exception(error)
            token.exception()  # or asyncio would complain that nobody awaits it
