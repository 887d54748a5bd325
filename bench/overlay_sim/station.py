"""A node in its process: it can crash, be paused, and have a clock that drifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recado.overlay.effects import SetTimer, TimerExpired
from recado.overlay.messages import Answers, RangeMessage
from recado.overlay.node import NodeEffect, NodeEvent, OverlayNode
from recado.overlay.peer_address import PeerAddress
from recado.simulator.schedule import Schedule

Perform = Callable[["Station", NodeEffect], None]
OnAnswers = Callable[["Station", PeerAddress, Answers], None]


class ObservedNode(OverlayNode):
    """Tells the world of the answers that it gives as an owner, also to itself."""

    on_answers: Callable[[PeerAddress, Answers], None]

    def _send(self, peer: PeerAddress, message: RangeMessage) -> None:
        if isinstance(message, Answers) and message.configuration is not None:
            self.on_answers(peer, message)
        super()._send(peer, message)


class Station:
    def __init__(
        self,
        name: str,
        address: PeerAddress,
        node: ObservedNode,
        schedule: Schedule,
        perform: Perform,
        clock_rate: float,
    ) -> None:
        self.name = name
        self.address = address
        self.node = node
        self.is_running = True
        self.is_leaving = False
        self.paused_until = 0.0
        self.subscribed: dict[int, str] = {}
        """The topic of each subscription."""
        self.clock_rate = clock_rate
        self._schedule = schedule
        self._perform = perform
        self._timers: dict[str, int] = {}

    @property
    def full_name(self) -> str:
        return f"{self.name}.{self.address.incarnation}"

    @property
    def now(self) -> float:
        """The time of this node's own clock."""
        return self._schedule.now * self.clock_rate + 100.0 * (self.clock_rate - 1.0)

    @property
    def is_paused(self) -> bool:
        return self._schedule.now < self.paused_until

    def has_stopped(self) -> bool:
        return not self.is_running

    def handle(self, event: NodeEvent) -> None:
        """Handle an event now, or when the pause is over."""
        if not self.is_running:
            return
        if self.is_paused:
            self._schedule.call_at(self.paused_until, self.handle, event)
            return
        for effect in self.node.handle(event, self.now):
            if self.has_stopped():
                return  # it has crashed while it was sending
            if isinstance(effect, SetTimer):
                self._set_timer(effect)
            else:
                self._perform(self, effect)

    def _set_timer(self, effect: SetTimer) -> None:
        generation = self._timers.get(effect.name, 0) + 1
        self._timers[effect.name] = generation
        self._schedule.call_later(
            effect.delay / self.clock_rate, self._expire, effect.name, generation
        )

    def _expire(self, name: str, generation: int) -> None:
        if self._timers.get(name) == generation:
            self.handle(TimerExpired(name))


def kind(message: Any) -> str:
    return type(message).__name__
