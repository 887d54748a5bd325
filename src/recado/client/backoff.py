"""How long to wait before the next attempt, and when to stop trying. Time and chance are arguments.

Delays have full jitter: anything from zero to a bound that doubles with each attempt. So a thousand clients
that a broker lost together do not come back together.

B1  The bound of the delays never exceeds `most`, and no delay goes beyond the time to give up.
B2  Attempts and time count from when the last *steady* connection was lost: one that breaks as soon as it is
    made, perhaps because of what is sent on it, does not begin a new count.
"""

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """`give_up` seconds after the loss it is over; None is never."""

    first: float = 0.1
    most: float = 5.0
    give_up: float | None = 300.0
    steady: float = 10.0

    def bound(self, attempt: int) -> float:
        """Of the delay before an attempt; they count from 1."""
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 60))


class Patience:
    """One loss, or several that are too close together to be told apart."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._lost_at: float | None = None
        self._restored_at: float | None = None
        self.attempts = 0

    def lost(self, now: float) -> None:
        steady = self._restored_at is None or now - self._restored_at >= self._backoff.steady
        if self._lost_at is None or steady:
            self._lost_at = now
            self.attempts = 0
        self._restored_at = None

    def restored(self, now: float) -> None:
        self._restored_at = now

    def since(self, now: float) -> float:
        """Seconds since the loss."""
        return 0.0 if self._lost_at is None else now - self._lost_at

    def delay(self, now: float, chance: float) -> float | None:
        """Before the next attempt, given a number from 0 to 1; None: it is time to give up."""
        self.attempts += 1
        delay = chance * self._backoff.bound(self.attempts)
        if self._backoff.give_up is None:
            return delay
        left = self._backoff.give_up - self.since(now)
        return None if left <= 0 else min(delay, left)
