"""The driver: events one after the other, effects in order, one timer, and faults that are told."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import (
    Broadcast,
    BroadcastsConfirmed,
    DeliverBatch,
    Effect,
    Event,
    LeaveRequested,
    MessageBatch,
    PacketArrived,
    PacketRoute,
    PublishRequested,
    ReportFailure,
    ReportRecovered,
    SendAcknowledgement,
    SendAddressed,
    Target,
    TimerFired,
)
from recado.feeds.driver import Driver, MemberListener, resolve_stack
from recado.feeds.layer import MemberContext
from recado.feeds.member import FeedMember
from recado.feeds.options import FeedOptions
from recado.feeds.packet import Data, Heartbeat, Nak, PullReply, PullRequest
from recado.feeds.stack import StackError
from recado.feeds.transport.endpoint import NO_TAG
from recado.feeds.vector import Vector
from recado.feeds.views import NO_VIEW, MemberId, Role
from recado.feeds.wire import encode

from .loop import JumpingLoop, without_waiting

BLOCK = Block.build([b"x"])
BATCH = MessageBatch(bytes(16), 1, BLOCK)


class Scripted:
    """A member that does what it is told, and notes what happens to it."""

    def __init__(self, *answers: list[Effect]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []
        self.times: list[float] = []
        self.stalls: list[float] = []
        self.due: float | None = None
        self.malformed_count = 0
        self.rejected_count = 0
        self.publisher_counts = (0, 7)
        self.context = MemberContext(
            MemberId("me", bytes(16)), Role.SUBSCRIBER, FeedOptions(), frozenset()
        )

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        self.times.append(now)
        if self.due is not None and now >= self.due:
            self.due = None
        return self.answers.pop(0) if self.answers else []

    def adjust_for_stall(self, seconds: float) -> None:
        self.stalls.append(seconds)

    def deadline(self) -> float | None:
        return self.due


class Noting(MemberListener):
    """A port and a listener that record the calls."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        self.done.append(("cast", packet, key, last_sequence))
        if last_sequence:
            self.driver.broadcasts_confirmed(
                last_sequence
            )  # a port must not, but the driver would stand it

    def send(self, to: Target, packet: bytes) -> None:
        self.done.append(("send", to, packet))

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        self.done.append(("listen", enabled))

    def settle(self, last_tag: int) -> None:
        self.done.append(("settle", last_tag))

    async def close(self) -> None:
        self.done.append("closed")

    def deliver(self, batch: MessageBatch) -> None:
        self.done.append(batch)

    def acknowledge(self, packet: bytes) -> None:
        self.done.append(("acknowledge", packet))

    def recovery_finished(self, vector: Vector) -> None:
        self.done.append(vector)

    def feed_failed(self, reason: str, *, is_recovery: bool) -> None:
        self.done.append(reason)

    def packet_handled(self, packet: bytes, tag: int, *, is_malformed: bool) -> None:
        self.done.append(("handled", tag, is_malformed))

    def transport_lost(self, error: Exception) -> None:
        self.done.append(("broken", str(error)))

    def internal_error(self, error: Exception) -> None:
        self.done.append(("faulted", str(error)))


def driven(member: Scripted) -> tuple[Driver, Noting]:
    noting = Noting()
    driver = Driver(cast("FeedMember", member), noting)
    noting.attach(driver)
    return driver, noting


@without_waiting
async def test_effects_are_done_in_order_and_events_one_after_the_other() -> None:
    effects: list[Effect] = [
        Broadcast(b"p", "k", 7),
        DeliverBatch(BATCH),
        SendAcknowledgement(b"a"),
    ]
    effects += [SendAddressed("members", b"s"), ReportRecovered(Vector()), ReportFailure("why")]
    member = Scripted(effects)
    driver, noting = driven(member)
    driver.handle(PublishRequested(BLOCK))  # before there is a port it waits
    assert member.events == []
    driver.start(noting)
    assert noting.done == [
        *(("cast", b"p", "k", 7), BATCH, ("acknowledge", b"a")),
        *(("send", "members", b"s"), Vector(), "why"),
    ]
    assert member.events == [PublishRequested(BLOCK), TimerFired(), BroadcastsConfirmed(7)]


@without_waiting
async def test_one_timer_never_later_than_the_deadline() -> None:
    loop = asyncio.get_running_loop()
    member = Scripted()
    driver, noting = driven(member)
    member.due = loop.time() + 100
    driver.start(noting)
    member.due = loop.time() + 5
    driver.handle(BroadcastsConfirmed(1))
    member.due = early = loop.time() + 1
    driver.handle(BroadcastsConfirmed(2))
    await asyncio.sleep(2)
    assert member.events[-1:] == [TimerFired()]
    assert early <= member.times[-1] < early + 1
    count = len(member.events)
    member.due = loop.time() + 10
    driver.handle(BroadcastsConfirmed(3))
    member.due = later = loop.time() + 20  # the timer rings too early, and looks again
    await asyncio.sleep(30)
    assert len(member.events) == count + 2
    assert member.times[-1] >= later
    await driver.leave(Vector())
    assert member.events[-1:] == [LeaveRequested(Vector())]
    assert noting.done == ["closed"]
    member.due = loop.time()
    driver.handle(BroadcastsConfirmed(4))
    await asyncio.sleep(1)
    assert member.events[-1:] == [LeaveRequested(Vector())]


@without_waiting
async def test_time_in_which_the_loop_did_not_run_is_left_out() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    member = Scripted()
    driver, noting = driven(member)
    member.due = begun = loop.time()
    driver.start(noting)
    member.due = loop.time() + 0.5
    driver.handle(BroadcastsConfirmed(1))
    loop.stop_for(20)
    driver.packet_received(
        PacketRoute.BROADCAST, MemberId("", bytes(16)), b"what has waited in the socket", NO_TAG
    )
    assert begun <= member.times[-1] < begun + 1
    assert member.stalls == [pytest.approx(19.5, abs=0.4)]
    member.due = member.times[-1] + 3
    await asyncio.sleep(5)
    assert member.events[-1:] == [TimerFired()]
    assert begun + 3 <= member.times[-1] < begun + 5
    assert len(member.stalls) == 1
    loop.stop_for(20)
    driver.handle(BroadcastsConfirmed(2))
    assert len(member.stalls) == 1, "it waited for nothing"
    await driver.stop()


@without_waiting
async def test_a_deadline_in_the_past_is_no_stall() -> None:
    """A layer that has to act at once gives 0.0 as its deadline, which was long before the timer is set."""

    class Hasty(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            effects = super().handle(event, now)
            if isinstance(event, BroadcastsConfirmed):
                self.due = 0.0
            return effects

    member = Hasty()
    driver, noting = driven(member)
    driver.start(noting)
    driver.handle(BroadcastsConfirmed(1))
    await asyncio.sleep(1)
    assert member.events[-1:] == [TimerFired()]
    assert member.times == sorted(member.times)
    assert member.stalls == []
    await driver.stop()


@without_waiting
async def test_a_fault_of_the_member_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            super().handle(event, now)
            if isinstance(event, BroadcastsConfirmed):
                raise ZeroDivisionError("a mistake")
            return []

    member = Faulty()
    driver, noting = driven(member)
    driver.start(noting)
    with caplog.at_level(logging.ERROR):
        driver.broadcasts_confirmed(1)
    assert noting.done == [("faulted", "a mistake")], "and not as one of the carrier"
    assert "feed member stopped: internal error" in caplog.text
    driver.broadcasts_confirmed(2)
    assert member.events.count(BroadcastsConfirmed(2)) == 0


@without_waiting
async def test_a_fault_in_what_the_member_serves_is_told() -> None:
    class Faulty(Noting):
        def packet_handled(self, packet: bytes, tag: int, *, is_malformed: bool) -> None:
            raise ZeroDivisionError("a mistake")

    member, noting = Scripted(), Faulty()
    driver = Driver(cast("FeedMember", member), noting)
    noting.attach(driver)
    driver.start(noting)
    driver.packet_received(PacketRoute.BROADCAST, MemberId("", bytes(16)), b"", 1)
    driver.packet_received(PacketRoute.BROADCAST, MemberId("", bytes(16)), b"", 2)
    assert noting.done == [("faulted", "a mistake")]


@without_waiting
async def test_only_the_packet_that_was_refused_counts_as_refused() -> None:
    class Refusing(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            self.malformed_count += isinstance(event, PacketArrived) and event.packet == b"wrong"
            return super().handle(event, now)

    driver, noting = driven(Refusing())
    driver.start(noting)
    sender = MemberId("", bytes(16))
    for packet, tag in ((b"right", 1), (b"wrong", NO_TAG), (b"right", 2), (b"wrong", 3)):
        driver.packet_received(PacketRoute.BROADCAST, sender, packet, tag)
    assert noting.done == [("handled", 1, False), ("handled", 2, False), ("handled", 3, True)]


@without_waiting
async def test_that_publishers_are_turned_away_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Scripted()
    driver, noting = driven(member)
    driver.start(noting)
    for seconds in (1, 2, 3):
        member.rejected_count += seconds // 2
        member.due = asyncio.get_running_loop().time() + 1
        driver.handle(BroadcastsConfirmed(1))
        await asyncio.sleep(2)
    (told,) = caplog.messages
    assert (
        "publisher limit reached: dropping messages of new publishers (member=me limit=7)" in told
    )


def test_the_stack_ends_on_the_carrier() -> None:
    assert (
        str(resolve_stack(None, Role.PUBLISHER, "UDP")) == "DISPATCH:FRAG:FIFO:NAK:MEMBERSHIP:UDP"
    )
    assert "ARCHIVER" in resolve_stack(None, Role.ARCHIVE, "AMQP").names
    with pytest.raises(StackError, match="ends with AMQP, but the URL is for UDP"):
        resolve_stack("DISPATCH:FRAG:FIFO:NAK:MEMBERSHIP:AMQP", Role.PUBLISHER, "UDP")


def crowded(member: Scripted) -> Scripted:
    """Its application lags behind."""
    member.context.is_inbox_full = True
    return member


@without_waiting
async def test_who_lags_behind_asks_for_nothing_and_takes_nothing_that_is_not_kept() -> None:
    me = MemberId("me", bytes(16))
    nak, pull = encode(Nak([])), encode(PullRequest(1, []))
    beat = encode(Heartbeat(Role.SUBSCRIBER, NO_VIEW, 0))
    effects: list[Effect] = [
        Broadcast(nak),
        SendAddressed(me, pull),
        SendAddressed("members", beat),
    ]
    member = crowded(Scripted(effects))
    driver, noting = driven(member)
    driver.start(noting)
    assert noting.done == [("send", "members", beat)]
    data, pulled = encode(Data(bytes(16), 1, BLOCK)), encode(PullReply(1, [], []))
    for packet in (data, pulled, beat, b"", b"?"):
        driver.packet_received(PacketRoute.BROADCAST, me, packet, NO_TAG)
    driver.packet_received(
        PacketRoute.BROADCAST, me, data, 1
    )  # the carrier keeps more where this came from
    arrived = [event.packet for event in member.events if isinstance(event, PacketArrived)]
    assert arrived == [beat, b"", b"?", data]
    assert noting.done[1:] == [("handled", 1, False)]
    member.context.is_inbox_full = False
    driver.packet_received(PacketRoute.BROADCAST, me, pulled, NO_TAG)
    assert member.events[-1:] == [PacketArrived(PacketRoute.BROADCAST, me, pulled)]
