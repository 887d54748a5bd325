"""Coroutines that wait for the broker: a counter of them, a notifier, and waits for publisher confirms."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from .confirms import ConfirmTracker
from .errors import PublishNackedError

OnConfirm: TypeAlias = Callable[[range, bool], object]

NACK_HISTORY_COUNT = 1_000  # nacked ranges that are remembered for later waits


class WaitCounter:
    """Counts the coroutines that wait for the broker: `with wait_counter: await …`.

    `ConnectionProtocol` pauses reading only while the count is zero. `on_change` is called when the count
    becomes one and when it returns to zero.
    """

    __slots__ = ("count", "on_change")

    def __init__(self) -> None:
        self.count = 0
        self.on_change: Callable[[], None] | None = None

    def __enter__(self) -> None:
        self.count += 1
        if self.count == 1 and self.on_change is not None:
            self.on_change()

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        if not self.count and self.on_change is not None:
            self.on_change()


class Notifier:
    """Wakes all waiting coroutines when something changes; each one then checks its own condition."""

    __slots__ = ("_futures",)

    def __init__(self) -> None:
        self._futures: dict[asyncio.Future[None], None] = {}

    @property
    def has_waiters(self) -> bool:
        return bool(self._futures)

    async def wait(self) -> None:
        """Wait for the next `notify_all`. Cancellation, for example by a timeout, leaves nothing behind."""
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
    """The coroutines that wait for confirms of one channel, and the messages that the broker nacked."""

    def __init__(self, tracker: ConfirmTracker, wait_counter: WaitCounter) -> None:
        self.tracker = tracker
        self._wait_counter = wait_counter
        self._nacked_ranges: deque[range] = deque(maxlen=NACK_HISTORY_COUNT)
        self._nacked_count = 0
        self._raised_count = 0  # nacked ranges that `wait_for_confirms` has raised
        self._single_waiters: dict[int, asyncio.Future[None]] = {}
        self._flush_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._error: Exception | None = None

    async def wait_for_confirm(self, sequence_number: int) -> None:
        """Wait until one message is confirmed; raises `PublishNackedError` if it was nacked."""
        if not 0 < sequence_number <= self.tracker.published_count:
            raise ValueError(f"no message with the sequence number {sequence_number} was published")
        if not self.tracker.is_settled(sequence_number):
            self._raise_error()
            waiter = self._single_waiters.get(sequence_number)
            if waiter is None:
                waiter = asyncio.get_running_loop().create_future()
                self._single_waiters[sequence_number] = waiter
            with self._wait_counter:
                await asyncio.shield(waiter)
        if any(sequence_number in each for each in self._nacked_ranges):
            raise PublishNackedError([range(sequence_number, sequence_number + 1)])

    async def wait_for_confirms(self) -> None:
        """Wait until all messages published so far are confirmed.

        Raises `PublishNackedError` with the nacked ranges that no earlier call has raised.
        """
        # Read before waiting: concurrent calls raise the same nacks.
        raised_before = self._raised_count
        if self.tracker.settled_up_to < self.tracker.published_count:
            self._raise_error()
            waiter = asyncio.get_running_loop().create_future()
            self._flush_waiters.append((self.tracker.published_count, waiter))
            with self._wait_counter:
                await waiter
        new_count, self._raised_count = self._nacked_count - raised_before, self._nacked_count
        if new_count:
            raise PublishNackedError(list(self._nacked_ranges)[-new_count:])

    def handle_confirms(self, sequence_numbers: range, *, acked: bool) -> None:
        """Record that the broker acked or nacked these messages, and wake the coroutines that wait for them."""
        if not acked:
            self._nacked_ranges.append(sequence_numbers)
            self._nacked_count += 1
        if self._single_waiters:
            for number in sorted(self._single_waiters.keys() & sequence_numbers):
                _resolve(self._single_waiters.pop(number))
        while self._flush_waiters and self._flush_waiters[0][0] <= self.tracker.settled_up_to:
            _resolve(self._flush_waiters.popleft()[1])

    def fail(self, error: Exception) -> None:
        """Raise the error in all present waits, and in future waits for messages that are not settled."""
        self._error = error
        flush_waiters = (waiter for _, waiter in self._flush_waiters)
        fail_futures([*self._single_waiters.values(), *flush_waiters], error)
        self._single_waiters.clear()
        self._flush_waiters.clear()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)


def _resolve(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def fail_futures(futures: Iterable[object], error: Exception) -> None:
    """Set the error on all of these futures that are still pending."""
    for future in futures:
        if isinstance(future, asyncio.Future) and not future.done():
            future.set_exception(error)
            future.exception()  # retrieved, so asyncio does not log it if nothing awaits the future
