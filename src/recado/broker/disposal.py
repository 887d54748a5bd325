"""Messages that are gone already, and whose memory is still to be freed.

To free millions of messages takes tenths of a second. A queue that is purged or deleted hands its runs over
to the broker's `Disposal`, which frees a portion in each tick of the broker, so that other clients have
their turn in between.
"""

from collections import deque
from typing import Any

FEW_RUNS = 64  # are freed at once: nobody notices
PORTION_COST = 50_000  # about 1 ms
RUN_COST = 8  # as much as freeing so many messages of a run


class Disposal:
    def __init__(self) -> None:
        self.waiting: list[deque[Any] | list[Any]] = []

    def add(self, runs: "deque[Any] | list[Any]") -> None:
        """Free these runs, or tuples that end with one, before long. They must not be used any more."""
        if len(runs) <= FEW_RUNS:
            runs.clear()
        else:
            self.waiting.append(runs)

    def go_on(self) -> None:
        """Free a portion of what waits."""
        left = PORTION_COST
        while left > 0 and self.waiting:
            runs = self.waiting[-1]
            if runs:
                last = runs.pop()
                run = last[-1] if isinstance(last, tuple) else last
                left -= len(run.tails) + RUN_COST
            else:
                self.waiting.pop()
