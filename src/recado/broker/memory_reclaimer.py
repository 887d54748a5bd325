"""Frees the memory of deleted messages in portions.

Freeing millions of messages takes tenths of a second. A queue that is purged or deleted passes its runs to
the broker's `MemoryReclaimer`, which frees a portion in each tick, so that other clients are served in
between.
"""

from collections import deque
from typing import Any

IMMEDIATE_RUNS_MAX = 64  # up to this number, `add` frees them itself
PORTION_MESSAGES_MAX = 50_000  # per tick; takes about 1 ms
MESSAGE_COSTS_PER_RUN = 8  # freeing the run object itself costs as much as freeing 8 messages


class MemoryReclaimer:
    def __init__(self) -> None:
        self.pending: list[deque[Any] | list[Any]] = []

    def add(self, runs: "deque[Any] | list[Any]") -> None:
        """Free these runs (or tuples that end with a run) soon. The caller must not use them any more."""
        if len(runs) <= IMMEDIATE_RUNS_MAX:
            runs.clear()
        else:
            self.pending.append(runs)

    def advance(self) -> None:
        """Free a portion of the pending runs."""
        left = PORTION_MESSAGES_MAX
        while left > 0 and self.pending:
            runs = self.pending[-1]
            if runs:
                last = runs.pop()
                run = last[-1] if isinstance(last, tuple) else last
                left -= len(run.payloads) + MESSAGE_COSTS_PER_RUN
            else:
                self.pending.pop()
