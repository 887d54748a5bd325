"""The driver runs one `FeedMember` in an event loop: it passes events in and performs the effects.

DR1  Events are handled one after the other; an event that arises while effects are performed is queued.
DR2  Effects are performed in order. Only acknowledgements wait until the application has processed everything
     delivered before: messages in memory are lost if this process dies.
DR3  There is one timer, never later than the member's deadline. Time in which the loop was stalled counts
     towards no timeout: the member sees the time of its `MemberClock`.
DR4  After `stop`, and after an internal error, no event reaches the member.
DR5  Internal errors are never reported as transport errors.
DR6  Backpressure: while the inbox of the application is full, requests for messages are not sent, and messages
     without a delivery tag are dropped. They are missing then, and requested when there is room again.
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
    ArchiveEntry,
    ArchiveQuery,
    ArchiveState,
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
from .clock import MemberClock
from .errors import JoinError
from .layers.receive_buffer import max_publishers
from .member import FeedMember
from .options import FeedOptions
from .packet import HEADER_BYTES, PacketKind
from .stack import ARCHIVE_STACK, PUBLISHER_STACK, SUBSCRIBER_STACK, Stack, StackError
from .transport.endpoint import NO_TAG, FeedEndpoint, FeedTransport
from .vector import Vector
from .views import LostRange, MemberId, Role, View

log = logging.getLogger("recado.feeds")

DEFAULT_STACKS: Final = {
    Role.PUBLISHER: PUBLISHER_STACK,
    Role.SUBSCRIBER: SUBSCRIBER_STACK,
    Role.ARCHIVE: ARCHIVE_STACK,
}

REQUEST_KINDS: Final = (PacketKind.NAK, PacketKind.PULL_REQUEST)
MESSAGE_KINDS: Final = (PacketKind.DATA, PacketKind.FRAGMENT, PacketKind.PULL_REPLY)


class MemberListener:
    """Callbacks of a member, for a publisher, a subscription or an archiver. The defaults do nothing."""

    attached: Driver | None = None
    """The driver of the member, once it has joined."""

    @property
    def driver(self) -> Driver:
        assert self.attached is not None, "the driver is attached before the first effect"
        return self.attached

    def attach(self, driver: Driver) -> None:
        self.attached = driver

    def deliver(self, batch: MessageBatch) -> None:
        pass

    def acknowledge(self, packet: bytes) -> None:
        """Send the packet to the archives once everything delivered before has been processed."""

    def view_installed(self, view: View, cut: Vector) -> None:
        pass

    def recovery_finished(self, vector: Vector) -> None:
        pass

    def messages_lost(self, lost: LostRange) -> None:
        pass

    def store_entries(self, entries: Sequence[ArchiveEntry]) -> None:
        pass

    def read_archive(self, query_number: int, query: ArchiveQuery) -> None:
        pass

    def publish_confirmed(self, last_sequence: int) -> None:
        pass

    def packet_handled(self, packet: bytes, tag: int, *, is_malformed: bool) -> None:
        """A packet with a delivery tag was handled and all effects performed, or it was malformed."""

    def feed_failed(self, reason: str, *, is_recovery: bool) -> None:
        """The member cannot continue; `is_recovery` if missed messages cannot be recovered."""

    def transport_lost(self, error: Exception) -> None:
        """The transport failed for good."""

    def internal_error(self, error: Exception) -> None:
        """An exception in this program stopped the member."""


class Driver:
    """Connects a member with its transport endpoint and its listener; implements `PacketListener`."""

    def __init__(self, member: FeedMember, listener: MemberListener) -> None:
        self.member = member
        self.endpoint: FeedEndpoint
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._busy = True  # until it has an endpoint
        self._stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0  # in loop time
        self._clock = MemberClock(member.context.options.heartbeat_interval / 2)
        self._logged_rejections = 0

    def start(self, endpoint: FeedEndpoint) -> None:
        self.endpoint = endpoint
        self._busy = False
        self.handle(TimerFired())

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
            self._arm_timer()
        except Exception as fault:  # noqa: BLE001 (report any error to the waiting callers)
            self._fail(fault)
        finally:
            self._busy = False

    def _fail(self, error: Exception) -> None:
        """Stop and report an internal error; raised to the transport, it would be ignored (DR5)."""
        log.error(
            "feed member stopped: internal error (member=%s)",
            self.member.context.member_id.name,
            exc_info=error,
        )
        self._stopped = True
        self._listener.internal_error(error)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Broadcast(packet) | SendAddressed(_, packet) if self._is_dropped(
                packet, REQUEST_KINDS
            ):
                pass
            case Broadcast(packet, key, number):
                self.endpoint.broadcast(packet, key, number)
            case SendAddressed(to, packet):
                self.endpoint.send(to, packet)
            case ListenToCoordinators(to_coordinators):
                self.endpoint.listen_to_coordinators(enabled=to_coordinators)
            case SendAcknowledgement(packet):
                self._listener.acknowledge(packet)
            case DeliverBatch(batch):
                self._listener.deliver(batch)
            case ReportLoss(lost):
                self._listener.messages_lost(lost)
            case ReportView(view, cut):
                self._listener.view_installed(view, cut)
            case ReportRecovered(vector):
                self._listener.recovery_finished(vector)
            case StoreEntries(entries):
                self._listener.store_entries(entries)
            case ReadArchive(number, query):
                self._listener.read_archive(number, query)
            case ReportFailure(reason, recovery):
                self._listener.feed_failed(reason, is_recovery=recovery)

    # --- time

    def _arm_timer(self) -> None:
        """Arm the timer. One that fires too early costs one check of the deadline; moving it each time costs
        more."""
        deadline = self.member.deadline()
        if deadline is None or self._stopped:
            return
        if self._timer is not None:
            if self._timer_at <= deadline + self._clock.stalled_seconds:
                return
            self._timer.cancel()
        # A deadline in the past means "now"; it does not show that the loop was stalled.
        now = self._clock.member_time(self._loop.time())
        self._timer_at = self._clock.expect(max(deadline, now))
        self._timer = self._loop.call_at(self._timer_at, self._on_timer)

    def _on_timer(self) -> None:
        now = self._now()
        self._timer = None
        self._clock.expect(inf)
        self._log_rejected_publishers()
        deadline = self.member.deadline()
        if deadline is not None and deadline <= now:
            self.handle(TimerFired())
        else:
            self._arm_timer()

    def _now(self) -> float:
        monotonic = self._loop.time()
        stalled = self._clock.observe(monotonic)
        if stalled:
            log.info(
                "event loop stalled (member=%s stalled_s=%.1f): feed timeouts do not count this time",
                self.member.context.member_id.name,
                stalled,
            )
            self.member.adjust_for_stall(stalled)
        return self._clock.member_time(monotonic)

    def _log_rejected_publishers(self) -> None:
        """Log once: a flood of publishers must not flood the log."""
        if self._logged_rejections or not self.member.rejected_count:
            return
        self._logged_rejections = self.member.rejected_count
        log.error(
            "publisher limit reached: dropping messages of new publishers (member=%s limit=%d); each "
            "start of a publishing program is a publisher: keep it running, resume it "
            "(ResumePoint), or use a new feed",
            self.member.context.member_id.name,
            self.member.publisher_counts[1],
        )

    # --- packets

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None:
        if tag == NO_TAG and self._is_dropped(packet, MESSAGE_KINDS):
            return
        before = self.member.malformed_count
        self.handle(PacketArrived(route, sender, packet))
        if tag != NO_TAG and not self._stopped:
            try:
                self._listener.packet_handled(
                    packet, tag, is_malformed=self.member.malformed_count != before
                )
            except Exception as fault:  # noqa: BLE001 (as above)
                self._fail(fault)

    def _is_dropped(self, packet: bytes, kinds: tuple[PacketKind, ...]) -> bool:
        """Return whether to drop a packet of these kinds because the inbox is full (DR6)."""
        return (
            self.member.context.is_inbox_full
            and len(packet) >= HEADER_BYTES
            and packet[HEADER_BYTES - 1] in kinds
        )

    def broadcasts_confirmed(self, last_sequence: int) -> None:
        self.handle(BroadcastsConfirmed(last_sequence))
        self._listener.publish_confirmed(last_sequence)

    def transport_lost(self, error: Exception) -> None:
        self._listener.transport_lost(error)

    # --- end

    async def leave(self, vector: Vector | None = None) -> None:
        """Leave the feed, so that the other members need not detect a failure. `vector` is the part that the
        application has processed, if that is not all."""
        self.handle(LeaveRequested(vector))
        await self.stop()

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.endpoint.close()


def resolve_stack(text: str | None, role: Role, transport: str) -> Stack:
    """Parse a stack text, or use the default of a role. Raises `StackError` if it does not end with our
    transport."""
    if text is None:
        text = DEFAULT_STACKS[role].replace("AMQP", transport)
    stack = Stack.parse(text)
    if stack.transport != transport:
        raise StackError(
            f'stack "{text}" ends with {stack.transport}, but the URL is for {transport}'
        )
    return stack


async def join_feed(
    transport: FeedTransport,
    feed: str,
    member_id: MemberId,
    role: Role,
    stack_text: str | None,
    options: FeedOptions,
    listener: MemberListener,
    archive_state: ArchiveState | None = None,
) -> Driver:
    """Create a member of a feed, or a publisher, and start it."""
    stack = resolve_stack(stack_text, role, transport.layer_name)
    fitting = replace(
        options,
        has_total_order=transport.layer_name == "AMQP",
        max_packet_bytes=transport.max_packet_bytes,
    )
    known = max(
        len(fitting.start_vector), len(archive_state.vector) if archive_state is not None else 0
    )
    if known > max_publishers(fitting):
        raise JoinError(
            f"cannot join feed {feed}: {member_id.name} knows {known:,} publishers, the limit on "
            f"{transport.layer_name} is {max_publishers(fitting):,}",
            "Start a new feed with a new archive, and keep its publishers running or resume "
            "them (ResumePoint).",
        )
    driver = Driver(FeedMember(member_id, role, stack, fitting, archive_state), listener)
    endpoint = await transport.join(feed, member_id, role, driver)
    listener.attach(driver)  # before the first effect, which may use it
    driver.start(endpoint)
    return driver
