"""When an actor that was restarted may try again, and when there is nothing more to try.

It outlives the actor's instances. Time and chance are arguments.
"""

from __future__ import annotations

from recado.client.retry import ReconnectSchedule, RetryPolicy


class BridgeRetries:
    def __init__(self, backoff: RetryPolicy) -> None:
        self._schedule = ReconnectSchedule(backoff)
        self._is_first = True
        self._has_succeeded = False

    @property
    def attempt_count(self) -> int:
        """Since the loss."""
        return self._schedule.attempt_count

    def elapsed(self, now: float) -> float:
        """Seconds since the loss."""
        return self._schedule.seconds_since_loss(now)

    def next_delay(self, now: float, random_fraction: float) -> float | None:
        """Seconds to wait; None when it took too long. The first attempt is made at once."""
        if self._is_first or self._has_succeeded:
            self._has_succeeded = False
            self._schedule.record_loss(now)
        if self._is_first:
            self._is_first = False
            return 0.0
        return self._schedule.next_delay(now, random_fraction)

    def mark_succeeded(self, now: float) -> None:
        self._has_succeeded = True
        self._schedule.record_recovery(now)
