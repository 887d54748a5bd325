"""Simulated time: a heap of actions, run one after the other.

SC1  Time never goes back. An action sees in `now` the time it was scheduled for. If that had passed already
     when it was scheduled, it sees the time of scheduling.
SC2  Of two actions for the same time, the one that was scheduled first runs first. So the order depends neither
     on hashes nor on the speed of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf


class Schedule:
    """A deterministic replacement for the timers of an event loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.executed_count = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._sequence = 0

    def call_at(self, when: float, action: Callable[..., object], *arguments: object) -> None:
        """Schedule an action for a time; for now if that is past."""
        self._sequence += 1
        if when < self.now:
            when = self.now
        heappush(self._heap, (when, self._sequence, action, arguments))

    def call_later(self, delay: float, action: Callable[..., object], *arguments: object) -> None:
        self.call_at(self.now + delay, action, *arguments)

    def run(self, until: float = inf) -> None:
        """Run all actions that are due by `until`, also newly scheduled ones; by default until none is left."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action, arguments = heappop(heap)
            self.executed_count += 1
            action(*arguments)
        if until < inf:
            self.now = max(self.now, until)
