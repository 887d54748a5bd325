"""What happens when, in a world whose time is a number: a heap of actions, done one after the other.

S1  Time never goes back; an action finds in `now` the moment that it was put down for, or a later one if that
    was past already.
S2  Of two actions for the same moment the one that was put down first is done first. So the order depends
    on nothing but what was asked for: neither on hashes nor on the speed of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf


class Schedule:
    def __init__(self) -> None:
        self.now = 0.0
        self.executed_count = 0
        """How many actions."""
        self._heap: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._sequence = 0

    def call_at(self, when: float, action: Callable[..., object], *arguments: object) -> None:
        self._sequence += 1
        if when < self.now:
            when = self.now
        heappush(self._heap, (when, self._sequence, action, arguments))

    def call_later(self, delay: float, action: Callable[..., object], *arguments: object) -> None:
        self.call_at(self.now + delay, action, *arguments)

    def run(self, until: float = inf) -> None:
        """Do all that is due by then, also what is put down meanwhile; with no limit, until nothing is left."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, action, arguments = heappop(heap)
            self.executed_count += 1
            action(*arguments)
        if until < inf:
            self.now = max(self.now, until)
