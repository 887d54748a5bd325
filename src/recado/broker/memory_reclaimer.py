"""Messages that are gone already, and whose memory is still to be freed.

To free millions of messages takes tenths of a second. A queue that is purged or deleted hands its runs over
to the broker's `MemoryReclaimer`, which frees a portion in each tick of the broker, so that other clients have
their turn in between.
"""

from collections import deque
from typing import Any

IMMEDIATE_RUNS_MAX = 64  # are freed at once: nobody notices
PORTION_MESSAGES_MAX = 50_000  # about 1 ms
MESSAGE_COSTS_PER_RUN = 8  # as much as freeing so many messages of a run


class MemoryReclaimer:
    def __init__(self) -> None:
        self.pending: list[deque[Any] | list[Any]] = []

    def add(self, runs: "deque[Any] | list[Any]") -> None:
        """Free these runs, or tuples that end with one, before long. They must not be used any more."""
        if len(runs) <= IMMEDIATE_RUNS_MAX:
            runs.clear()
        else:
            self.pending.append(runs)

    def advance(self) -> None:
        """Free a portion of what waits."""
        left = PORTION_MESSAGES_MAX
        while left > 0 and self.pending:
            runs = self.pending[-1]
            if runs:
                last = runs.pop()
                run = last[-1] if isinstance(last, tuple) else last
                left -= len(run.payloads) + MESSAGE_COSTS_PER_RUN
            else:
                self.pending.pop()
