"""When an actor that was restarted may try again, and when there is nothing more to try.

It outlives the actor's instances. Time and chance are arguments.
"""

from __future__ import annotations

from recado.client.backoff import Backoff, Patience


class Attempts:
    def __init__(self, backoff: Backoff) -> None:
        self._patience = Patience(backoff)
        self._first = True
        self._succeeded = False

    @property
    def count(self) -> int:
        """Since the loss."""
        return self._patience.attempts

    def since(self, now: float) -> float:
        """Seconds since the loss."""
        return self._patience.since(now)

    def delay(self, now: float, chance: float) -> float | None:
        """Seconds to wait; None when it took too long. The first attempt is made at once."""
        if self._first or self._succeeded:
            self._succeeded = False
            self._patience.lost(now)
        if self._first:
            self._first = False
            return 0.0
        return self._patience.delay(now, chance)

    def succeeded(self, now: float) -> None:
        self._succeeded = True
        self._patience.restored(now)
