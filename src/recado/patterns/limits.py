"""Limits of an endpoint: how fast it handles messages, and when it stops trying."""

import asyncio

import msgspec

from .errors import CompositionError


class CircuitBreaker(msgspec.Struct, frozen=True):
    """Suspend an endpoint after `failures` failed attempts in a row, for `reset` seconds.

    While it is suspended it has no consumer, so its messages wait in the queue and other programs may take them.
    After that, one failure suspends it again, until a message was handled.
    """

    failures: int = 5
    reset: float = 30.0

    def __post_init__(self) -> None:
        if self.failures < 1 or self.reset <= 0:
            raise CompositionError(
                f"CircuitBreaker: failures={self.failures} must be at least 1, reset={self.reset} more than 0 seconds"
            )


class FailureCount:
    """Counts failures in a row, and tells when the breaker opens."""

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._count = 0

    def record_success(self) -> None:
        self._count = 0

    def record_failure(self) -> bool:
        """Count a failure; return whether the breaker opens."""
        self._count += 1
        if self._count < self._breaker.failures:
            return False
        self._count = self._breaker.failures - 1  # one more failure opens it again
        return True


class Pacer:
    """Lets at most `rate` messages per second pass, evenly spread."""

    def __init__(self, rate: float) -> None:
        self._interval = 1 / rate
        self._next_at = 0.0

    async def wait(self) -> None:
        """Wait for the turn of the next message."""
        now = asyncio.get_running_loop().time()
        turn = max(now, self._next_at)
        self._next_at = turn + self._interval
        if turn > now:
            await asyncio.sleep(turn - now)
