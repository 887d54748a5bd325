"""The driver: it runs one pure `Member` in an event loop. Events go in, effects come out and are done.

D1  Events are handled one after the other; one that comes about while effects are done waits for them.
D2  Effects are done in their order, except that an acknowledgement of a view waits until the application has
    taken everything that was delivered before it: what lies in our memory is lost with us.
D3  There is one timer, never later than the member's deadline. Time in which the loop did not run counts
    towards no timeout: the member is given the time of its `MemberClock`.
D4  After `stop`, and after a fault of its own, nothing reaches the member any more.
D5  A fault in this program is never told as one of what carries packets.
D6  While the application lags behind, nobody is asked for more, and messages that no carrier keeps for us are
    dropped as they come. They are missing then, and asked for when there is room again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

from msgspec.structs import replace

from .boundary import (
    Acknowledge,
    ArchiveState,
    Arrived,
    Batch,
    Cast,
    Channel,
    Confirmed,
    Deliver,
    Effect,
    Entry,
    Event,
    Failed,
    Gap,
    Installed,
    Left,
    Listen,
    Options,
    Query,
    Recall,
    Recovered,
    Send,
    Store,
    Ticked,
)
from .clock import MemberClock
from .errors import CannotJoin
from .layers.reception import room_for
from .member import Member
from .packet import HEAD, Kind
from .stack import ARCHIVE, PUBLISHER, SUBSCRIBER, Stack, StackError
from .transport.port import UNTAGGED, Carrier, Port
from .vector import Vector
from .views import Lost, MemberId, Role, View

log = logging.getLogger("recado.feeds")

USUAL: Final = {
    Role.PUBLISHER: PUBLISHER,
    Role.SUBSCRIBER: SUBSCRIBER,
    Role.ARCHIVE: ARCHIVE,
}

QUESTIONS: Final = (Kind.NAK, Kind.PULL)
GIFTS: Final = (Kind.DATA, Kind.FRAGMENT, Kind.PULLED)


class Station:
    """What the member serves: a feed's publisher, a subscription, an archive. Each minds what matters to it."""

    _driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        assert self._driver is not None, "it is attached before the first effect"
        return self._driver

    def attach(self, driver: Driver) -> None:
        self._driver = driver

    def deliver(self, batch: Batch) -> None:
        pass

    def acknowledge(self, packet: bytes) -> None:
        """Send it to the archives when everything delivered before was taken."""

    def installed(self, view: View, cut: Vector) -> None:
        pass

    def recovered(self, vector: Vector) -> None:
        pass

    def lost_some(self, lost: Lost) -> None:
        pass

    def store_entries(self, entries: Sequence[Entry]) -> None:
        pass

    def recall(self, number: int, query: Query) -> None:
        pass

    def confirmed_upto(self, number: int) -> None:
        pass

    def handled(self, packet: bytes, tag: int, *, refused: bool) -> None:
        """A packet that came with a tag was given to the member, and all effects are done; or it was of no
        use."""

    def failed(self, reason: str, *, recovery: bool) -> None:
        """`recovery`: because messages that were missed cannot be had."""

    def broken(self, error: Exception) -> None:
        """By what carries packets."""

    def faulted(self, fault: Exception) -> None:
        """By a mistake in this program."""


class Driver:
    """A `Listener` of its port."""

    def __init__(self, member: Member, station: Station) -> None:
        self.member = member
        self.port: Port
        self._station = station
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._busy = True  # until it has a port to act by
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # by the loop's clock
        self._clock = MemberClock(member.site.options.beat / 2)
        self._turned_away = 0

    def start(self, port: Port) -> None:
        self.port = port
        self._busy = False
        self.handle(Ticked())

    def handle(self, event: Event) -> None:
        self._events.append(event)
        if self._busy or self._stopped:
            return
        self._busy = True
        try:
            while self._events:
                now = self._now()
                for effect in self.member.handle(self._events.popleft(), now):
                    self._perform(effect)
            self._arm()
        except Exception as fault:  # noqa: BLE001 (whatever it is, whoever waits for us must know)
            self._give_up(fault)
        finally:
            self._busy = False

    def _give_up(self, fault: Exception) -> None:
        """What carries packets has no use for it, and would go on as if nothing were (D5)."""
        log.error("a member of a feed fails", exc_info=fault)
        self._stopped = True
        self._station.faulted(fault)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Cast(packet) | Send(_, packet) if self._is_too_much(packet, QUESTIONS):
                pass
            case Cast(packet, key, number):
                self.port.cast(packet, key, number)
            case Send(to, packet):
                self.port.send(to, packet)
            case Listen(to_coordinators):
                self.port.listen(to_coordinators=to_coordinators)
            case Acknowledge(packet):
                self._station.acknowledge(packet)
            case Deliver(batch):
                self._station.deliver(batch)
            case Gap(lost):
                self._station.lost_some(lost)
            case Installed(view, cut):
                self._station.installed(view, cut)
            case Recovered(vector):
                self._station.recovered(vector)
            case Store(entries):
                self._station.store_entries(entries)
            case Recall(number, query):
                self._station.recall(number, query)
            case Failed(reason, recovery):
                self._station.failed(reason, recovery=recovery)

    # --- time

    def _arm(self) -> None:
        """A timer that is too early costs one look at the deadline; to move it each time would cost more."""
        deadline = self.member.deadline()
        if deadline is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_at <= deadline + self._clock.stalled:
                return
            self._timer.cancel()
        # A deadline in the past means "at once": it does not show that the loop was stalled since.
        now = self._clock.time(self._loop.time())
        self._timer_at = self._clock.expect(max(deadline, now))
        self._timer = self._loop.call_at(self._timer_at, self._ring)

    def _ring(self) -> None:
        now = self._now()
        self._timer = None
        self._clock.expect(inf)
        self._tell_turned_away()
        deadline = self.member.deadline()
        if deadline is not None and deadline <= now:
            self.handle(Ticked())
        else:
            self._arm()

    def _now(self) -> float:
        monotonic = self._loop.time()
        stalled = self._clock.observe(monotonic)
        if stalled:
            log.info(
                "event loop stalled (member=%s stalled_s=%.1f): feed timeouts do not count this time",
                *(self.member.site.me.name, stalled),
            )
            self.member.stall(stalled)
        return self._clock.time(monotonic)

    def _tell_turned_away(self) -> None:
        """Once: whoever fills a feed must not fill a log."""
        if self._turned_away or not self.member.turned_away:
            return
        self._turned_away = self.member.turned_away
        log.error(
            "%s follows as many publishers as it can, %d: messages of new ones are dropped here. Each start of "
            "a program that publishes is one; keep it running, let it go on as `Earlier`, or begin a new feed",
            *(self.member.site.me.name, self.member.publishers[1]),
        )

    # --- what comes

    def arrived(self, channel: Channel, sender: MemberId, packet: bytes, tag: int) -> None:
        if tag == UNTAGGED and self._is_too_much(packet, GIFTS):
            return
        before = self.member.refused
        self.handle(Arrived(channel, sender, packet))
        if tag != UNTAGGED and not self._stopped:
            try:
                self._station.handled(packet, tag, refused=self.member.refused != before)
            except Exception as fault:  # noqa: BLE001 (as above)
                self._give_up(fault)

    def _is_too_much(self, packet: bytes, kinds: tuple[Kind, ...]) -> bool:
        """D6."""
        return self.member.site.crowded and len(packet) >= HEAD and packet[HEAD - 1] in kinds

    def confirmed(self, upto: int) -> None:
        self.handle(Confirmed(upto))
        self._station.confirmed_upto(upto)

    def broken(self, error: Exception) -> None:
        self._station.broken(error)

    # --- the end

    async def leave(self, vector: Vector | None = None) -> None:
        """In order: the others are told, and need not find out. `vector` is what the application has taken, if
        that is not all."""
        self.handle(Left(vector))
        await self.stop()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.port.close()


def stack_for(text: str | None, role: Role, transport: str) -> Stack:
    """As the text says, or the usual one for a role; a `StackError` if it does not end on our carrier."""
    if text is None:
        text = USUAL[role].replace("AMQP", transport)
    stack = Stack.parse(text)
    if stack.transport != transport:
        raise StackError(
            f'the stack "{text}" ends with {stack.transport}, and the URL is one for {transport}'
        )
    return stack


async def join(
    carrier: Carrier,
    feed: str,
    me: MemberId,
    role: Role,
    text: str | None,
    options: Options,
    station: Station,
    stored: ArchiveState | None = None,
) -> Driver:
    """A member of a feed, or a publisher, running."""
    stack = stack_for(text, role, carrier.transport)
    fitting = replace(options, ordered=carrier.transport == "AMQP", packet=carrier.largest)
    known = max(len(fitting.vector), len(stored.vector) if stored is not None else 0)
    if known > room_for(fitting):
        raise CannotJoin(
            f"{me.name} knows {known:,} publishers of the feed {feed}, and on {carrier.transport} a member "
            f"follows at most {room_for(fitting):,}",
            "Begin a new feed, with a new archive, whose publishers keep running or go on as `Earlier`.",
        )
    driver = Driver(Member(me, role, stack, fitting, stored), station)
    port = await carrier.join(feed, me, role, driver)
    station.attach(driver)  # before the first effect, which may need it
    driver.start(port)
    return driver
