"""Refused logins in the log: one line at once, then a count per address every `INTERVAL_S`.

A client in a loop can be refused thousands of times a second, because most refusals check no password. The first
refusal of a kind from an address is logged with its details. Further ones are counted, and the count is logged
by `flush`, until there were none for an interval.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

import msgspec

from .throttle import network_of

log = logging.getLogger("recado.server")

INTERVAL_S: Final = 10.0
ENTRIES_MAX_COUNT: Final = 10_000


class _Entry(msgspec.Struct):
    since: float
    further_count: int = 0


class RefusalLog:
    """Decides which refusals are logged, and logs the counts of the others. Time is an argument, in seconds."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()  # the oldest first

    def admit(self, kind: str, address: str, now: float) -> bool:
        """Return whether to log a refusal; if not, it is counted. The kind is a constant phrase."""
        key = kind, network_of(address)
        entry = self._entries.get(key)
        if entry is not None:
            entry.further_count += 1
            return False
        if len(self._entries) >= ENTRIES_MAX_COUNT:
            self._log_count(*self._entries.popitem(last=False))
        self._entries[key] = _Entry(now)
        return True

    def flush(self, now: float) -> None:
        """Log the counts of the intervals that are over; call this at least once per interval."""
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if now - entry.since < INTERVAL_S:
                return
            del self._entries[key]
            self._log_count(key, entry)
            if entry.further_count:
                self._entries[key] = _Entry(now)

    def _log_count(self, key: tuple[str, str], entry: _Entry) -> None:
        kind, address = key
        if entry.further_count:
            log.warning(
                "%s: further attempts (count=%d peer=%s)", kind, entry.further_count, address
            )
