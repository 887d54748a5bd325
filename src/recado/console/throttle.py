"""Throttling of logins: wrong passwords make the next attempts wait, per address and per user.

Each address, and each pair of address and user, has a leaky bucket of failures: one failure is forgiven every
`LEAK_INTERVAL_S`. While the bucket has fewer than `FREE_FAILURES_COUNT` failures (ten times as many for an
address), attempts do not wait. From then on the wait after a failure doubles with each further failure, up
to `WAIT_MAX_S`. A user's bucket counts only failures from the same address, so that an attacker cannot lock
a user out from elsewhere. A successful login empties the bucket of the pair. Memory is bounded: the buckets
without a failure for longest are evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

FREE_FAILURES_COUNT: Final = 10
WAIT_FIRST_S: Final = 0.5
WAIT_MAX_S: Final = 60.0
LEAK_INTERVAL_S: Final = 30.0  # one failure is forgiven per interval
BUCKETS_MAX_COUNT: Final = 10_000
ADDRESS_FACTOR: Final = 10  # an address stands for many users, behind a NAT for instance


class LoginThrottle:
    """Decides how long a login attempt has to wait. Time is an argument, in seconds."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str | None], tuple[float, float]] = OrderedDict()

    @property
    def size(self) -> int:
        """The number of remembered addresses and pairs."""
        return len(self._failures)

    def delay(self, address: str, user: str, now: float) -> float:
        """Return the seconds that an attempt of this user from this address has to wait, 0 if none."""
        return max(
            self._delay((address, user), FREE_FAILURES_COUNT, now),
            self._delay((address, None), FREE_FAILURES_COUNT * ADDRESS_FACTOR, now),
        )

    def record_failure(self, address: str, user: str, now: float) -> None:
        for key in ((address, user), (address, None)):
            self._failures[key] = (self._level(key, now) + 1, now)
            self._failures.move_to_end(key)
        while len(self._failures) > BUCKETS_MAX_COUNT:
            self._failures.popitem(last=False)

    def record_success(self, address: str, user: str) -> None:
        self._failures.pop((address, user), None)

    def _level(self, key: tuple[str, str | None], now: float) -> float:
        level, at = self._failures.get(key, (0.0, now))
        return max(0.0, level - (now - at) / LEAK_INTERVAL_S)

    def _delay(self, key: tuple[str, str | None], free: int, now: float) -> float:
        entry = self._failures.get(key)
        if entry is None:
            return 0.0
        excess = self._level(key, now) - free
        if excess < 0:
            return 0.0
        wait = min(WAIT_FIRST_S * 2 ** min(excess, 16), WAIT_MAX_S)
        return max(0.0, entry[1] + wait - now)
