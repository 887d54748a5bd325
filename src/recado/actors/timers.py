"""Timers of an actor: messages that it sends to itself later.

    class Session(Actor[Ping | TimedOut]):
        def pre_start(self) -> None:
            self.timers = Timers(self)
            self.timers.every(1.0, Ping())
            self.timers.once(30.0, TimedOut(), key="idle")

TI1  No timer of an instance fires after the instance has ended, by a stop or by a restart.
TI2  `every` does not drift: its n-th message is due n intervals after the start. Messages that were missed
     because the loop was busy are skipped.
TI3  A timer with a key replaces the timer with the same key.

A message that a timer has sent stays in the mailbox, even if the timer is cancelled afterwards. Time is the
clock of the system, which tests can replace. All methods may be called from any thread.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime.clock import Timer


class Timers:
    def __init__(self, actor: Actor[Any]) -> None:
        """Call this in `pre_start` of the actor, or later: in its constructor, an actor has no system yet."""
        self._ref = actor.ref
        self._system = actor.system
        self._clock = actor.system._clock
        self._timers: dict[Hashable, Timer] = {}
        self._is_ended = False
        self._system._call_on_loop(actor._cell.on_instance_end, self._end)

    def once(self, delay: float, message: Any, *, key: Hashable = None) -> Hashable:
        """Send a message after `delay` seconds, and return the key by which the timer can be cancelled."""
        key = object() if key is None else key
        self._system._call_on_loop(self._start, key, delay, None, message)
        return key

    def every(self, interval: float, message: Any, *, key: Hashable = None) -> Hashable:
        """Send a message every `interval` seconds, first after one interval, and return the key of the timer.

        Raises ValueError if the interval is not positive.
        """
        if interval <= 0:
            raise ValueError(f"the interval of a timer must be positive: {interval}")
        key = object() if key is None else key
        self._system._call_on_loop(self._start, key, interval, interval, message)
        return key

    def cancel(self, key: Hashable) -> None:
        """Cancel a timer; no error if it has fired, or never existed."""
        self._system._call_on_loop(self._cancel, key)

    def cancel_all(self) -> None:
        self._system._call_on_loop(self._cancel_all)

    # ── on the loop ───────────────────────────────────────────────────────────────────────────────────────

    def _start(self, key: Hashable, delay: float, interval: float | None, message: Any) -> None:
        self._cancel(key)
        if not self._is_ended:
            due = self._clock.time() + delay
            self._timers[key] = self._clock.call_later(
                delay, self._fire, key, due, interval, message
            )

    def _fire(self, key: Hashable, due: float, interval: float | None, message: Any) -> None:
        if interval is None:
            del self._timers[key]
        else:
            now = self._clock.time()
            due += interval * max(1, math.floor((now - due) / interval) + 1)
            self._timers[key] = self._clock.call_later(
                due - now, self._fire, key, due, interval, message
            )
        self._ref.tell(message)

    def _cancel(self, key: Hashable) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def _cancel_all(self) -> None:
        for key in list(self._timers):
            self._cancel(key)

    def _end(self) -> None:
        self._is_ended = True
        self._cancel_all()
