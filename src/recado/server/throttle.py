"""Throttling of logins over AMQP and HTTP: wrong passwords make the next attempts wait.

There are two limits. A refused attempt is not checked, and does not count as a failure.

- A pair of address and user has a bucket of failures, of which one is forgiven every `LEAK_INTERVAL_S`. With
  `FREE_FAILURES_COUNT` failures or more, the wait after the last one doubles with each further failure.
- An address has a bucket for all users together. It forgives `ADDRESS_FAILURES_PER_S`; while it is full, the
  next attempt waits until one failure is forgiven. This limits the rate of guesses that are spread over many
  users, and no wait is longer than `1 / ADDRESS_FAILURES_PER_S`.

Honest users behind the address of an attacker must not be locked out. A pair that logged in during the last
`KNOWN_PAIR_S` is exempt from the limit of the address, and its own wait is at most `KNOWN_WAIT_MAX_S`.
Failures elsewhere do not count for a pair, so that a user cannot be locked out from another address.

An IPv6 address stands for its /64 network, because a client can choose any address in it. Memory is bounded:
the entries that were used longest ago are evicted.
"""

from __future__ import annotations

import socket
from collections import OrderedDict
from math import ceil
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

FREE_FAILURES_COUNT: Final = 10
WAIT_FIRST_S: Final = 0.5
WAIT_MAX_S: Final = 60.0
KNOWN_WAIT_MAX_S: Final = 5.0
LEAK_INTERVAL_S: Final = 30.0  # one failure of a pair is forgiven per interval
# Failures beyond the free ones that are counted: the wait is the longest by then.
EXCESS_MAX_COUNT: Final = 8
# An address stands for many users, behind a NAT for instance.
ADDRESS_FREE_FAILURES_COUNT: Final = 100
ADDRESS_FAILURES_PER_S: Final = 2.0
KNOWN_PAIR_S: Final = 24 * 3600.0
ENTRIES_MAX_COUNT: Final = 10_000  # of each kind

_Pair = tuple[str, str]
_Bucket = tuple[float, float]  # failures, and the time of the last one


class LoginThrottledError(Exception):
    """A login attempt has to wait; its password was not checked."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many failed logins from this address; try again in {wait_s:.1f} s")
        self.wait_s = wait_s


class LoginThrottle:
    """Decides how long a login attempt has to wait. Time is an argument, in seconds."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[_Pair, _Bucket] = OrderedDict()
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()
        self._successes: OrderedDict[_Pair, float] = OrderedDict()

    @property
    def size(self) -> int:
        """The number of remembered addresses and pairs."""
        return len(self._pairs) + len(self._addresses) + len(self._successes)

    def check(self, address: str, user: str, now: float) -> None:
        """Raise `LoginThrottledError` if an attempt of this user from this address has to wait."""
        wait_s = self.delay(address, user, now)
        if wait_s > 0:
            raise LoginThrottledError(wait_s)

    def delay(self, address: str, user: str, now: float) -> float:
        """Return the seconds that an attempt of this user from this address has to wait, 0 if none."""
        network = network_of(address)
        pair = network, user
        success = self._successes.get(pair)
        if success is not None and now - success < KNOWN_PAIR_S:
            return self._pair_delay(pair, KNOWN_WAIT_MAX_S, now)
        return max(self._pair_delay(pair, WAIT_MAX_S, now), self._address_delay(network, now))

    def record_failure(self, address: str, user: str, now: float) -> None:
        network = network_of(address)
        pair = network, user
        failures = _level(self._pairs.get(pair), 1 / LEAK_INTERVAL_S, now) + 1
        counted = min(failures, float(FREE_FAILURES_COUNT + EXCESS_MAX_COUNT))
        _put(self._pairs, pair, (counted, now))
        failures = _level(self._addresses.get(network), ADDRESS_FAILURES_PER_S, now) + 1
        counted = min(failures, float(ADDRESS_FREE_FAILURES_COUNT))
        _put(self._addresses, network, (counted, now))

    def record_success(self, address: str, user: str, now: float) -> None:
        """Remember that the user logs in from this address.

        The failures stay: otherwise each login of a user would give free guesses to an attacker behind the same
        address. They do not delay the user's next login: a wait is counted from the last failure, so the wait
        that preceded this login is over.
        """
        _put(self._successes, (network_of(address), user), now)

    def _pair_delay(self, pair: _Pair, wait_max_s: float, now: float) -> float:
        failures, last = self._pairs.get(pair, (0.0, now))
        excess = ceil(failures) - FREE_FAILURES_COUNT
        if excess < 0:
            return 0.0
        return max(0.0, last + min(WAIT_FIRST_S * 2.0**excess, wait_max_s) - now)

    def _address_delay(self, network: str, now: float) -> float:
        level = _level(self._addresses.get(network), ADDRESS_FAILURES_PER_S, now)
        return max(0.0, (level - ADDRESS_FREE_FAILURES_COUNT + 1) / ADDRESS_FAILURES_PER_S)


def _level(bucket: _Bucket | None, leak_per_s: float, now: float) -> float:
    if bucket is None:
        return 0.0
    failures, last = bucket
    return max(0.0, failures - (now - last) * leak_per_s)


def _put(entries: OrderedDict[K, V], key: K, value: V) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > ENTRIES_MAX_COUNT:
        entries.popitem(last=False)


def network_of(address: str) -> str:
    """Return the IPv4 address, or the /64 network of an IPv6 address; other texts as they are."""
    if ":" not in address:
        return address
    try:
        octets = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    if octets.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, octets[12:])
    return socket.inet_ntop(socket.AF_INET6, octets[:8] + bytes(8)) + "/64"
