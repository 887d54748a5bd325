"""Warm-up: messages for actors that are not spawned yet are held for a short time after the start.

A program opens its system, and then spawns actors. A broker redelivers messages as soon as the system is open.
So during the warm-up a message for a name without an actor is not a dead letter yet.

WU1  Held messages for one name are delivered in the order of arrival.
WU2  No message is held beyond the end of the warm-up, and all held messages are unsettled: the broker, which
     still has them, bounds their number by its prefetch limit.
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
        self._held: dict[str, list[Callable[[], None]]] = {}
        self.is_open = False

    def open(self, seconds: float) -> None:
        """Start the warm-up."""
        self.is_open = seconds > 0
        if self.is_open:
            self._clock.call_later(seconds, self._finish)

    def must_hold(self, name: str) -> bool:
        """Whether to hold a message for this name while the warm-up is open: there is no such actor yet, or earlier
        messages for it are held (WU1)."""
        return name in self._held or not self._has_actor(name)

    def hold(self, name: str, deliver: Callable[[], None]) -> None:
        """Call `deliver` when the actor exists, or at the end of the warm-up."""
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
            log.warning(
                "warm-up ended: messages for actors that were not spawned (messages=%d names=%d "
                "setting=warm_up)",
                sum(map(len, self._held.values())),
                len(self._held),
            )
        for name in list(self._held):
            self._release(name)

    def close(self) -> None:
        """Drop the held messages: the broker redelivers them to the next incarnation of the node."""
        self.is_open = False
        self._held.clear()
