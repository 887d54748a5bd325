"""A node in its process: it can crash, be paused, and have a clock that drifts."""

from __future__ import annotations

from collections.abc import Callable

from recado.overlay.effects import SetTimer, TimerExpired
from recado.overlay.membership import TIMER as MEMBERSHIP_TIMER
from recado.overlay.membership import Membership, MembershipEffect, MembershipEvent
from recado.overlay.messages import Answers, RangeMessage
from recado.overlay.node import NodeEffect, NodeEvent, OverlayNode
from recado.overlay.peer_address import PeerAddress
from recado.simulator.schedule import Schedule

Effect = NodeEffect | MembershipEffect
Perform = Callable[["Station", Effect], None]


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
        schedule: Schedule,
        perform: Perform,
        clock_rate: float,
    ) -> None:
        self.name = name
        self.address = address
        self.node: ObservedNode | None = None
        """None until it has joined."""
        self.membership: Membership | None = None
        """None if the world tells the node who is alive."""
        self.is_running = True
        self.is_leaving = False
        self.has_ended = False
        """It has crashed, or stores nothing any more."""
        self.paused_until = 0.0
        self.subscribed: dict[int, str] = {}
        """The topic of each subscription."""
        self.clock_rate = clock_rate
        self._schedule = schedule
        self._perform = perform
        self._timers: dict[str, int] = {}

    @property
    def own(self) -> PeerAddress:
        """What the node says of itself: the network is unknown while it joins."""
        return self.address if self.membership is None else self.membership.own

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

    def postpone(self, action: Callable[..., None], *arguments: object) -> bool:
        """If the node is paused, do something when the pause is over; return whether it is."""
        if self.is_paused:
            self._schedule.call_at(self.paused_until, action, *arguments)
            return True
        return False

    def handle(self, event: NodeEvent) -> None:
        """Hand an event to the node now, or when the pause is over."""
        if self.is_running and self.node is not None and not self.postpone(self.handle, event):
            self._perform_all(self.node.handle(event, self.now))

    def handle_membership(self, event: MembershipEvent) -> None:
        if (
            self.is_running
            and self.membership is not None
            and not self.postpone(self.handle_membership, event)
        ):
            self._perform_all(self.membership.handle(event, self.now))

    def _perform_all(self, effects: list[NodeEffect] | list[MembershipEffect]) -> None:
        for effect in effects:
            if self.has_stopped():
                return  # it has crashed while it was sending
            if isinstance(effect, SetTimer):
                self._set_timer(effect)
            else:
                self._perform(self, effect)

    def _set_timer(self, effect: SetTimer) -> None:
        generation = self._timers.get(effect.name, 0) + 1
        self._timers[effect.name] = generation
        delay = effect.delay / self.clock_rate
        self._schedule.call_later(delay, self._expire, effect.name, generation)

    def _expire(self, name: str, generation: int) -> None:
        if self._timers.get(name) != generation:
            return
        if name == MEMBERSHIP_TIMER:
            self.handle_membership(TimerExpired(name))
        else:
            self.handle(TimerExpired(name))


def kind(message: object) -> str:
    return type(message).__name__
