"""The programs of a simulated feed: each runs one `Member`, as the I/O layer does, in one incarnation from start to
end.

Publisher    publishes, and counts confirmed messages
Subscriber   its application handles deliveries a little later; acknowledgements wait for that, and unhandled
             messages are lost in a crash
Archive      in `archive.py`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from math import inf
from random import Random
from typing import Protocol, TypeAlias
from zlib import crc32

from recado.feeds.block import BODY_INDEX, KEY_INDEX, Block
from recado.feeds.boundary import (
    ARCHIVES,
    Broadcast,
    BroadcastsConfirmed,
    DeliverBatch,
    Effect,
    Event,
    LeaveRequested,
    ListenToCoordinators,
    MessageBatch,
    PacketArrived,
    PacketRoute,
    PublishRequested,
    ReadArchive,
    ReportFailure,
    ReportLoss,
    ReportRecovered,
    ReportView,
    SendAcknowledgement,
    SendAddressed,
    StoreEntries,
    TimerFired,
)
from recado.feeds.clock import MemberClock
from recado.feeds.layers.receive_buffer import ORDER_PREFIX
from recado.feeds.member import FeedMember
from recado.feeds.packet import PacketKind
from recado.feeds.vector import DeliveryProgress, Vector
from recado.feeds.views import Certainty, MemberId, View, ViewId
from recado.simulator.schedule import Schedule

from . import history as h
from .history import Incarnation, Mark
from .media import Address, Medium

MOST_EVENTS = 30_000
"""Of one incarnation. A member that needs more is in an endless loop."""

MARKS = {
    Certainty.LIVE: Mark.LIVE,
    Certainty.MISSED: Mark.MISSED,
    Certainty.UNCERTAIN: Mark.UNCERTAIN,
    Certainty.DELIVERED: Mark.DELIVERED,
}


class RunawayError(RuntimeError):
    """A member handles events without end."""


class Surroundings(Protocol):
    """The interface of the world to a node."""

    schedule: Schedule
    random: Random
    medium: Medium
    is_settled: bool

    def record(self, event: h.AnyEvent) -> None: ...

    def gave_up(self, incarnation: Incarnation, reason: str) -> None:
        """It is of no more use."""

    def overheard(self, packet: bytes) -> None:
        """For the trace."""

    def label(self, publisher: bytes) -> str: ...

    def incarnation(self, member: MemberId) -> Incarnation: ...

    def text(self, member: MemberId) -> str: ...


@lru_cache(maxsize=1024)
def checks(block: Block) -> tuple[int, ...]:
    pairs = zip(block.values(KEY_INDEX), block.values(BODY_INDEX), strict=True)
    return tuple(crc32(body, crc32(key)) for key, body in pairs)


def written(view: ViewId) -> str:
    return f"{view.number}.{view.coordinator.hex()[:6]}"


class Node:
    """A publisher; the other two extend it."""

    def __init__(
        self, world: Surroundings, address: Address, incarnation: Incarnation, member: FeedMember
    ) -> None:
        self.world = world
        self.address = address
        self.incarnation = incarnation
        self.member = member
        self.is_over = False
        self.stalled_until = 0.0
        self._events: deque[Event] = deque()
        self._busy = False
        self._handled = 0
        self._tick_at = inf
        self._clock = MemberClock(member.context.options.heartbeat_interval / 2)
        self._view: View | None = None

    def start(self) -> None:
        self.world.medium.join(self.address)
        self.handle(TimerFired())

    def leave(self) -> None:
        self.handle(LeaveRequested())
        self.end()

    def end(self) -> None:
        """By a crash, or because it has left."""
        self.is_over = True
        self.world.medium.drop(self.address)

    def stall(self, until: float) -> None:
        self.stalled_until = max(self.stalled_until, until)
        now = self.world.schedule.now
        self.world.record(h.Stopped(now, self.incarnation, self.stalled_until))

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: Event) -> None:
        """At once, or when it is no longer stalled."""
        now = self.world.schedule.now
        if self._busy:
            self._events.append(event)
        elif self._events or now < self.stalled_until:
            self._events.append(event)
            self._work()
        elif not self.is_over:
            self._busy = True
            self._do(event, now)
            self._finish(now)

    def _work(self) -> None:
        """Process the waiting items."""
        now = self.world.schedule.now
        if self.is_over or not self._events:
            return
        if now < self.stalled_until:
            self.world.schedule.call_at(self.stalled_until, self._work)
            return
        self._busy = True
        self._finish(now)

    def _finish(self, now: float) -> None:
        while self._events:
            self._do(self._events.popleft(), now)
        self._busy = False
        self._arm()

    def _do(self, event: Event, now: float) -> None:
        self._handled += 1
        if self._handled > MOST_EVENTS:
            raise RunawayError(f"{h.named(self.incarnation)} handles events without end")
        member = self.member
        stalled = self._clock.observe(now)
        if stalled:
            member.adjust_for_stall(stalled)
        effects = member.handle(event, self._clock.member_time(now))
        if member.context.agreed_view is not self._view:
            self._view = member.context.agreed_view
            self._agreed()
        for effect in effects:
            self.perform(effect)

    def _agreed(self) -> None:
        if self._view is not None:
            view = written(self._view.id)
            archives = len(self._view.archive_members())
            self.world.record(h.Agreed(self.world.schedule.now, self.incarnation, view, archives))

    def _arm(self) -> None:
        deadline = self.member.deadline()
        if self._tick_at == inf:
            self._clock.expect(inf)
        if deadline is None or self.is_over:
            return
        if deadline + self._clock.stalled_seconds < self._tick_at:
            due = self._clock.expect(
                max(deadline, self._clock.member_time(self.world.schedule.now))
            )
            self._tick_at = max(due, self.stalled_until)
            self.world.schedule.call_at(self._tick_at, self._ring, self._tick_at)

    def _ring(self, moment: float) -> None:
        if moment != self._tick_at or self.is_over:
            return  # another one was scheduled since
        self._tick_at = inf
        deadline = self.member.deadline()
        if (
            deadline is not None
            and deadline + self._clock.stalled_seconds <= self.world.schedule.now
        ):
            self.handle(TimerFired())
        else:
            self._arm()

    def arrived(self, on_a: bool, sender: MemberId, packet: bytes, tag: int) -> None:
        self.handle(
            PacketArrived(PacketRoute.ADDRESSED if on_a else PacketRoute.BROADCAST, sender, packet)
        )

    def confirmed(self, upto: int) -> None:
        self.handle(BroadcastsConfirmed(upto))

    # ── effects ───────────────────────────────────────────────────────────────────────────────────

    def perform(self, effect: Effect) -> None:
        match effect:
            case Broadcast(packet, _, number):
                self.world.overheard(packet)
                self.world.medium.cast(self.address, packet, number)
            case SendAddressed(to, packet):
                self.world.overheard(packet)
                whom = to if isinstance(to, str) else self.world.text(to)
                self.world.medium.send(self.address, whom, packet)
            case ListenToCoordinators(to_coordinators):
                self.world.medium.listen(self.address, to_coordinators=to_coordinators)
            case ReportFailure(reason):
                self.world.gave_up(self.incarnation, reason)
            case ReportView():
                self.installed(effect)
            case SendAcknowledgement(packet):
                self.world.overheard(packet)
                self.acknowledge(effect)
            case DeliverBatch() | ReportLoss() | ReportRecovered() | StoreEntries() | ReadArchive():
                self.own(effect)

    def acknowledge(self, effect: SendAcknowledgement) -> None:
        self.world.medium.send(self.address, ARCHIVES, effect.packet)

    def installed(self, effect: ReportView) -> None:
        seats = effect.view.entries
        event = h.Installed(
            self.world.schedule.now,
            self.incarnation,
            written(effect.view.id),
            tuple(self.world.incarnation(seat.member) for seat in seats),
            len(effect.view.archive_members()),
            {
                self.world.label(publisher): last
                for publisher, last in effect.cut.items()
                if not publisher.startswith(ORDER_PREFIX)
            },
        )
        self.world.record(event)

    def own(
        self, effect: DeliverBatch | ReportLoss | ReportRecovered | StoreEntries | ReadArchive
    ) -> None:
        """The additional work of a subscriber or an archive."""


class Publisher(Node):
    def __init__(
        self, world: Surroundings, address: Address, incarnation: Incarnation, member: FeedMember
    ) -> None:
        super().__init__(world, address, incarnation, member)
        self.published = 0
        self.promised = False
        """Whether the medium's confirmations are promises: those of a broker are."""

    def publish(self, bodies: list[bytes], keys: list[bytes]) -> None:
        if self.is_over:
            return
        block = Block.build(bodies, keys=keys, timestamps=int(self.world.schedule.now * 1e6))
        first, self.published = self.published + 1, self.published + len(bodies)
        now = self.world.schedule.now
        self.world.record(h.Published(now, h.named(self.incarnation), first, checks(block)))
        self.handle(PublishRequested(block))

    def arrived(self, on_a: bool, sender: MemberId, packet: bytes, tag: int) -> None:
        if packet[2] == PacketKind.NAK:  # the layers of a publisher accept nothing else
            super().arrived(on_a, sender, packet, tag)

    def confirmed(self, upto: int) -> None:
        if self.promised:
            self.world.record(h.Confirmed(self.world.schedule.now, h.named(self.incarnation), upto))
        super().confirmed(upto)


Item: TypeAlias = MessageBatch | ReportLoss | ReportView | SendAcknowledgement
"""Items that wait for the application, and acknowledgements that wait for it."""


class Subscriber(Node):
    def __init__(
        self,
        world: Surroundings,
        address: Address,
        incarnation: Incarnation,
        member: FeedMember,
        pace: Callable[[], float],
    ) -> None:
        """`pace` returns how long the application takes for the next item."""
        super().__init__(world, address, incarnation, member)
        self.taken = DeliveryProgress(Vector())
        """The vector that the application would save."""
        self._pace = pace
        self._waiting: deque[Item] = deque()

    def acknowledge(self, effect: SendAcknowledgement) -> None:
        self._put(effect)

    def installed(self, effect: ReportView) -> None:
        self._put(effect)

    def own(
        self, effect: DeliverBatch | ReportLoss | ReportRecovered | StoreEntries | ReadArchive
    ) -> None:
        match effect:
            case DeliverBatch(batch):
                self._put(batch)
            case ReportLoss():
                self._put(effect)
            case _:
                pass

    def leave(self) -> None:
        self.handle(LeaveRequested(self.taken.snapshot()))
        self.end()

    def _put(self, item: Item) -> None:
        self._waiting.append(item)
        if len(self._waiting) == 1:
            self._wait()

    def _wait(self) -> None:
        seconds = self._pace()
        if seconds:
            self.world.schedule.call_later(seconds, self._take)
        else:
            self._take()

    def _take(self) -> None:
        if self.is_over or not self._waiting:
            return
        now = self.world.schedule.now
        if now < self.stalled_until:
            self.world.schedule.call_at(self.stalled_until, self._take)
            return
        self._take_next()
        if self._waiting:
            self._wait()

    def _take_next(self) -> None:
        now = self.world.schedule.now
        match self._waiting.popleft():
            case MessageBatch() as batch:
                self.taken.deliver(batch.publisher, batch.first, batch.last)
                self.world.record(
                    h.Delivered(
                        now,
                        self.incarnation,
                        self.world.label(batch.publisher),
                        batch.first,
                        checks(batch.block),
                        written(batch.view),
                        MARKS[batch.certainty],
                    )
                )
            case ReportLoss(lost):
                self.taken.skip(lost.publisher, lost.first, lost.last)
                label = self.world.label(lost.publisher)
                self.world.record(h.ToldLost(now, self.incarnation, label, lost.first, lost.last))
            case ReportView() as effect:
                super().installed(effect)
            case SendAcknowledgement() as effect:
                super().acknowledge(effect)
