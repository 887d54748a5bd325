"""The rules of the judge for timeouts: a member gives up nothing before it has run for as long as the timeout.

The judge does not know when a member learns of a gap, but that is not before the message was published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import inf
from typing import Final

from . import history as h
from .history import Incarnation, named, titled
from .script import PATIENCE
from .verdict import Rule

RECOVERY_TIMEOUT_S: Final = 10.0
TOLERANCE_S: Final = 1.6
"""Of one stop a member may count so much: a heartbeat until its next timer, half of one until that is late."""

Violated = Callable[[Rule, str], None]


class Patience:
    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._published: dict[str, list[float]] = defaultdict(list)
        """When each message of a publisher was."""
        self._stops: dict[Incarnation, list[h.Stopped]] = defaultdict(list)
        self._settled = inf

    def publish(self, event: h.Published) -> None:
        self._published[event.publisher] += [event.at] * len(event.checks)

    def stop(self, event: h.Stopped) -> None:
        self._stops[event.incarnation].append(event)

    def settle(self, at: float) -> None:
        self._settled = at

    def lose(self, event: h.RecordedLost) -> None:
        """By an archive. The messages after the first one of a gap are given up together with it."""
        message = (event.publisher, event.first)
        published = self._published[event.publisher][event.first - 1]
        has_run = self._has_run(event.incarnation, published, event.at)
        if has_run < PATIENCE:
            told = f"recorded {titled(message)} as lost when it had run for {has_run:.1f} s since"
            self._violated(Rule.EARLY, f"{named(event.incarnation)} {told}")

    def give_up(self, event: h.GaveUp, began: float) -> None:
        """By a subscriber."""
        has_run = self._has_run(event.incarnation, began, event.at)
        if has_run < RECOVERY_TIMEOUT_S:
            told = f"gave up when it had run for {has_run:.1f} s"
            self._violated(Rule.EARLY, f"{named(event.incarnation)} {told}")

    def _has_run(self, incarnation: Incarnation, since: float, now: float) -> float:
        """At the most, in seconds."""
        seconds, end = 0.0, since
        for stop in self._stops[incarnation]:
            begin = max(stop.at, end)
            seconds += max(0.0, begin - end)
            until = min(stop.until, self._settled)
            if until > begin:
                seconds += min(TOLERANCE_S, until - begin)
                end = until
        return seconds + max(0.0, now - end)
