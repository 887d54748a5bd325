"""The time as a node has lived it: stalls of its loop and jumps of its clock do not count.

A node whose loop stalls for seconds finds all its deadlines past when it continues, although the answers are waiting in
its sockets. So no deadline of the failure detector is in clock time. Own time advances by the time between two events,
but by `STEP_MAX_S` at most, and never goes back. All that waits in the sockets is handled before a deadline passes.
"""

from __future__ import annotations

from typing import Final

STEP_MAX_S: Final = 0.15
"""Three ticks: ordinary delays of a busy loop count in full."""
STALL_S: Final = 0.5
"""A longer time between two events is reported as a stall."""


class OwnTime:
    def __init__(self, now: float) -> None:
        self.time = 0.0
        self._last = now

    def advance(self, now: float) -> bool:
        """Advance to the time of an event; return whether the node had stalled or its clock has jumped."""
        step, self._last = now - self._last, now
        self.time += min(max(step, 0.0), STEP_MAX_S)
        return not 0.0 <= step <= STALL_S
