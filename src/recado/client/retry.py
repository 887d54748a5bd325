"""How long to wait before the next attempt, and when to stop trying. Time and chance are arguments.

Delays have full jitter: anything from zero to a bound that doubles with each attempt. So a thousand clients
that a broker lost together do not come back together.

B1  The bound of the delays never exceeds `most`, and no delay goes beyond the time to give up.
B2  Attempts and time count from when the last *steady* connection was lost: one that breaks as soon as it is
    made, perhaps because of what is sent on it, does not begin a new count.
"""

import msgspec


class RetryPolicy(msgspec.Struct, frozen=True):
    """`give_up` seconds after the loss it is over; None is never."""

    retry_initial: float = 0.1
    retry_max: float = 5.0
    reconnect_timeout: float | None = 300.0
    stable_after: float = 10.0

    def delay_limit(self, attempt: int) -> float:
        """Of the delay before an attempt; they count from 1."""
        return min(self.retry_max, self.retry_initial * 2.0 ** min(attempt - 1, 60))


class ReconnectSchedule:
    """One loss, or several that are too close together to be told apart."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._lost_at: float | None = None
        self._recovered_at: float | None = None
        self.attempt_count = 0

    def record_loss(self, now: float) -> None:
        was_stable = (
            self._recovered_at is None or now - self._recovered_at >= self._policy.stable_after
        )
        if self._lost_at is None or was_stable:
            self._lost_at = now
            self.attempt_count = 0
        self._recovered_at = None

    def record_recovery(self, now: float) -> None:
        self._recovered_at = now

    def seconds_since_loss(self, now: float) -> float:
        """Seconds since the loss."""
        return 0.0 if self._lost_at is None else now - self._lost_at

    def next_delay(self, now: float, random_fraction: float) -> float | None:
        """Before the next attempt, given a number from 0 to 1; None: it is time to give up."""
        self.attempt_count += 1
        delay = random_fraction * self._policy.delay_limit(self.attempt_count)
        if self._policy.reconnect_timeout is None:
            return delay
        remaining = self._policy.reconnect_timeout - self.seconds_since_loss(now)
        return None if remaining <= 0 else min(delay, remaining)
