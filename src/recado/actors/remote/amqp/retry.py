"""Delays between the attempts of a bridge actor. Time and random numbers are arguments.

The state survives the restarts of the actor.
"""

from __future__ import annotations

from recado.client.retry import ReconnectSchedule, RetryPolicy


class BridgeRetries:
    def __init__(self, policy: RetryPolicy) -> None:
        self._schedule = ReconnectSchedule(policy)
        self._is_first = True
        self._has_succeeded = False

    @property
    def attempt_count(self) -> int:
        """Attempts since the loss."""
        return self._schedule.attempt_count

    def elapsed(self, now: float) -> float:
        """Return the seconds since the loss."""
        return self._schedule.seconds_since_loss(now)

    def next_delay(self, now: float, random_fraction: float) -> float | None:
        """Return the seconds to wait before the next attempt; None at the reconnect timeout.

        The very first attempt is made at once.
        """
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
