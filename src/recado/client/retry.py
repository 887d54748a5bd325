"""Delays between reconnect attempts, and when to stop. Time and random numbers are arguments.

Delays have full jitter: a random value between zero and a limit that grows by `retry_factor` with each attempt.
So a thousand clients that lost the same broker do not reconnect at the same moment.

CRS1  The limit of the delays never exceeds `retry_max`, and no delay extends beyond `reconnect_timeout`.
CRS2  Attempts and elapsed time are counted from the loss of the last *stable* connection. A connection that
      breaks soon after its recovery does not start a new count: perhaps the broker closes it because of a
      message that is published again on each connection.
"""

import msgspec


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how long to retry; all durations in seconds.

    `reconnect_timeout` is the time to keep retrying; None retries forever. A connection that lasted `stable_after`
    seconds counts as stable.
    """

    retry_initial: float = 0.1
    retry_max: float = 5.0
    reconnect_timeout: float | None = 300.0
    stable_after: float = 10.0
    retry_factor: float = 2.0

    def delay_limit(self, attempt: int) -> float:
        """Return the maximum delay before an attempt; attempts count from 1."""
        try:
            return min(self.retry_max, self.retry_initial * self.retry_factor ** (attempt - 1))
        except OverflowError:
            return self.retry_max


class ReconnectSchedule:
    """The reconnect attempts after one loss, or after several in close succession."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._lost_at: float | None = None
        self._recovered_at: float | None = None
        self.attempt_count = 0

    def record_loss(self, now: float) -> None:
        """The connection was lost; start a new count of attempts if it was stable."""
        recovered_at = self._recovered_at
        was_stable = recovered_at is None or now - recovered_at >= self._policy.stable_after
        if self._lost_at is None or was_stable:
            self._lost_at = now
            self.attempt_count = 0
        self._recovered_at = None

    def record_recovery(self, now: float) -> None:
        """A new connection was made and everything on it was recovered."""
        self._recovered_at = now

    def seconds_since_loss(self, now: float) -> float:
        return 0.0 if self._lost_at is None else now - self._lost_at

    def next_delay(self, now: float, random_fraction: float) -> float | None:
        """Return the delay before the next attempt, or None if the time to reconnect is over.

        `random_fraction` is a random number from 0 to 1.
        """
        self.attempt_count += 1
        delay = random_fraction * self._policy.delay_limit(self.attempt_count)
        if self._policy.reconnect_timeout is None:
            return delay
        remaining = self._policy.reconnect_timeout - self.seconds_since_loss(now)
        return None if remaining <= 0 else min(delay, remaining)
