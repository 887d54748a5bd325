"""What came before those that it is for: a node that returns finds its messages before it has its actors.

A program opens its system, and then spawns. A broker gives what it kept as soon as the system is open. So for a
short while a message for a name that nobody has is not a dead letter yet.

EA1  What came for one name is delivered in the order in which it came.
EA2  Nothing waits here longer than until the end of the warm-up, and all of it is unsettled: who sent it, or
     keeps it, still has it. How much that is, is bounded by them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from recado.actors.runtime.clock import Clock

POLL_INTERVAL_S: Final = 0.02

log = logging.getLogger("recado.actors")


class WarmupBuffer:
    def __init__(self, clock: Clock, has_actor: Callable[[str], bool]) -> None:
        self._clock = clock
        self._has_actor = has_actor
        self._ends_at = 0.0
        self._held: dict[str, list[Callable[[], None]]] = {}
        self.is_open = False

    def open(self, seconds: float) -> None:
        self._ends_at = self._clock.time() + seconds
        self.is_open = seconds > 0
        if self.is_open:
            self._clock.call_later(seconds, self._finish)

    def must_hold(self, name: str) -> bool:
        """Whether what comes for it is to be held: somebody may come for it, or others wait before it."""
        return name in self._held or not self._has_actor(name)

    def hold(self, name: str, deliver: Callable[[], None]) -> None:
        """Deliver it later."""
        if name not in self._held:
            self._held[name] = []
            self._clock.call_later(POLL_INTERVAL_S, self._poll, name)
        self._held[name].append(deliver)

    def _poll(self, name: str) -> None:
        if name not in self._held:
            return
        if self._has_actor(name):
            self._release(name)
        else:
            self._clock.call_later(POLL_INTERVAL_S, self._poll, name)

    def _release(self, name: str) -> None:
        for deliver in self._held.pop(name):
            deliver()

    def _finish(self) -> None:
        self.is_open = False
        if self._held:
            count = sum(map(len, self._held.values()))
            log.warning("%d messages came for actors that were not spawned in time", count)
        for name in list(self._held):
            self._release(name)

    def close(self) -> None:
        """The node is closed: what is held comes to its next life."""
        self.is_open = False
        self._held.clear()
