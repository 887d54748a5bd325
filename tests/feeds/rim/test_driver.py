"""The driver: events one after the other, effects in order, one timer, and faults that are told."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import (
    Acknowledge,
    Arrived,
    Batch,
    Cast,
    Channel,
    Confirmed,
    Deliver,
    Effect,
    Event,
    Failed,
    Left,
    Options,
    Publish,
    Recovered,
    Send,
    Target,
    Ticked,
)
from recado.feeds.driver import Driver, Station, stack_for
from recado.feeds.layer import Site
from recado.feeds.member import Member
from recado.feeds.packet import Beat, Data, Nak, Pull, Pulled
from recado.feeds.stack import StackError
from recado.feeds.transport.port import UNTAGGED
from recado.feeds.vector import Vector
from recado.feeds.views import NO_VIEW, MemberId, Role
from recado.feeds.wire import encode

from .loop import JumpingLoop, without_waiting

BLOCK = Block.of([b"x"])
BATCH = Batch(bytes(16), 1, BLOCK)


class Scripted:
    """A member that does what it is told, and notes what happens to it."""

    def __init__(self, *answers: list[Effect]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []
        self.times: list[float] = []
        self.stalls: list[float] = []
        self.due: float | None = None
        self.refused = 0
        self.turned_away = 0
        self.publishers = (0, 7)
        self.site = Site(MemberId("me", bytes(16)), Role.SUBSCRIBER, Options(), frozenset())

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        self.times.append(now)
        if self.due is not None and now >= self.due:
            self.due = None
        return self.answers.pop(0) if self.answers else []

    def stall(self, seconds: float) -> None:
        self.stalls.append(seconds)

    def deadline(self) -> float | None:
        return self.due


class Noting(Station):
    """A port and a station that note what is done."""

    def __init__(self) -> None:
        self.done: list[object] = []

    def cast(self, packet: bytes, key: str, number: int) -> None:
        self.done.append(("cast", packet, key, number))
        if number:
            self.driver.confirmed(number)  # a port must not, but the driver would stand it

    def send(self, to: Target, packet: bytes) -> None:
        self.done.append(("send", to, packet))

    def listen(self, *, to_coordinators: bool) -> None:
        self.done.append(("listen", to_coordinators))

    def settle(self, upto: int) -> None:
        self.done.append(("settle", upto))

    async def close(self) -> None:
        self.done.append("closed")

    def deliver(self, batch: Batch) -> None:
        self.done.append(batch)

    def acknowledge(self, packet: bytes) -> None:
        self.done.append(("acknowledge", packet))

    def recovered(self, vector: Vector) -> None:
        self.done.append(vector)

    def failed(self, reason: str, *, recovery: bool) -> None:
        self.done.append(reason)

    def handled(self, packet: bytes, tag: int, *, refused: bool) -> None:
        self.done.append(("handled", tag, refused))

    def broken(self, error: Exception) -> None:
        self.done.append(("broken", str(error)))

    def faulted(self, fault: Exception) -> None:
        self.done.append(("faulted", str(fault)))


def driven(member: Scripted) -> tuple[Driver, Noting]:
    noting = Noting()
    driver = Driver(cast("Member", member), noting)
    noting.attach(driver)
    return driver, noting


@without_waiting
async def test_effects_are_done_in_order_and_events_one_after_the_other() -> None:
    effects: list[Effect] = [Cast(b"p", "k", 7), Deliver(BATCH), Acknowledge(b"a")]
    effects += [Send("members", b"s"), Recovered(Vector()), Failed("why")]
    member = Scripted(effects)
    driver, noting = driven(member)
    driver.handle(Publish(BLOCK))  # before there is a port it waits
    assert member.events == []
    driver.start(noting)
    assert noting.done == [
        *(("cast", b"p", "k", 7), BATCH, ("acknowledge", b"a")),
        *(("send", "members", b"s"), Vector(), "why"),
    ]
    assert member.events == [Publish(BLOCK), Ticked(), Confirmed(7)]


@without_waiting
async def test_one_timer_never_later_than_the_deadline() -> None:
    loop = asyncio.get_running_loop()
    member = Scripted()
    driver, noting = driven(member)
    member.due = loop.time() + 100
    driver.start(noting)
    member.due = loop.time() + 5
    driver.handle(Confirmed(1))
    member.due = early = loop.time() + 1
    driver.handle(Confirmed(2))
    await asyncio.sleep(2)
    assert member.events[-1:] == [Ticked()]
    assert early <= member.times[-1] < early + 1
    count = len(member.events)
    member.due = loop.time() + 10
    driver.handle(Confirmed(3))
    member.due = later = loop.time() + 20  # the timer rings too early, and looks again
    await asyncio.sleep(30)
    assert len(member.events) == count + 2
    assert member.times[-1] >= later
    await driver.leave(Vector())
    assert member.events[-1:] == [Left(Vector())]
    assert noting.done == ["closed"]
    member.due = loop.time()
    driver.handle(Confirmed(4))
    await asyncio.sleep(1)
    assert member.events[-1:] == [Left(Vector())]


@without_waiting
async def test_time_in_which_the_loop_did_not_run_is_left_out() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    member = Scripted()
    driver, noting = driven(member)
    member.due = begun = loop.time()
    driver.start(noting)
    member.due = loop.time() + 0.5
    driver.handle(Confirmed(1))
    loop.stop_for(20)
    driver.arrived(Channel.P, MemberId("", bytes(16)), b"what has waited in the socket", UNTAGGED)
    assert begun <= member.times[-1] < begun + 1
    assert member.stalls == [pytest.approx(19.5, abs=0.4)]
    member.due = member.times[-1] + 3
    await asyncio.sleep(5)
    assert member.events[-1:] == [Ticked()]
    assert begun + 3 <= member.times[-1] < begun + 5
    assert len(member.stalls) == 1
    loop.stop_for(20)
    driver.handle(Confirmed(2))
    assert len(member.stalls) == 1, "it waited for nothing"
    await driver.stop()


@without_waiting
async def test_a_deadline_in_the_past_is_no_stall() -> None:
    """A layer that has to act at once gives 0.0 as its deadline, which was long before the timer is set."""

    class Hasty(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            effects = super().handle(event, now)
            if isinstance(event, Confirmed):
                self.due = 0.0
            return effects

    member = Hasty()
    driver, noting = driven(member)
    driver.start(noting)
    driver.handle(Confirmed(1))
    await asyncio.sleep(1)
    assert member.events[-1:] == [Ticked()]
    assert member.times == sorted(member.times)
    assert member.stalls == []
    await driver.stop()


@without_waiting
async def test_a_fault_of_the_member_is_told(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            super().handle(event, now)
            if isinstance(event, Confirmed):
                raise ZeroDivisionError("a mistake")
            return []

    member = Faulty()
    driver, noting = driven(member)
    driver.start(noting)
    with caplog.at_level(logging.ERROR):
        driver.confirmed(1)
    assert noting.done == [("faulted", "a mistake")], "and not as one of the carrier"
    assert "a member of a feed fails" in caplog.text
    driver.confirmed(2)
    assert member.events.count(Confirmed(2)) == 0


@without_waiting
async def test_a_fault_in_what_the_member_serves_is_told() -> None:
    class Faulty(Noting):
        def handled(self, packet: bytes, tag: int, *, refused: bool) -> None:
            raise ZeroDivisionError("a mistake")

    member, noting = Scripted(), Faulty()
    driver = Driver(cast("Member", member), noting)
    noting.attach(driver)
    driver.start(noting)
    driver.arrived(Channel.P, MemberId("", bytes(16)), b"", 1)
    driver.arrived(Channel.P, MemberId("", bytes(16)), b"", 2)
    assert noting.done == [("faulted", "a mistake")]


@without_waiting
async def test_only_the_packet_that_was_refused_counts_as_refused() -> None:
    class Refusing(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            self.refused += isinstance(event, Arrived) and event.packet == b"wrong"
            return super().handle(event, now)

    driver, noting = driven(Refusing())
    driver.start(noting)
    sender = MemberId("", bytes(16))
    for packet, tag in ((b"right", 1), (b"wrong", UNTAGGED), (b"right", 2), (b"wrong", 3)):
        driver.arrived(Channel.P, sender, packet, tag)
    assert noting.done == [("handled", 1, False), ("handled", 2, False), ("handled", 3, True)]


@without_waiting
async def test_that_publishers_are_turned_away_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Scripted()
    driver, noting = driven(member)
    driver.start(noting)
    for seconds in (1, 2, 3):
        member.turned_away += seconds // 2
        member.due = asyncio.get_running_loop().time() + 1
        driver.handle(Confirmed(1))
        await asyncio.sleep(2)
    (told,) = caplog.messages
    assert "follows as many publishers as it can, 7" in told


def test_the_stack_ends_on_the_carrier() -> None:
    assert str(stack_for(None, Role.PUBLISHER, "UDP")) == "DISPATCH:FRAG:FIFO:NAK:REACH:UDP"
    assert "ARCHIVER" in stack_for(None, Role.ARCHIVE, "AMQP").names
    with pytest.raises(StackError, match="ends with AMQP, and the URL is one for UDP"):
        stack_for("DISPATCH:FRAG:FIFO:NAK:REACH:AMQP", Role.PUBLISHER, "UDP")


def crowded(member: Scripted) -> Scripted:
    """Its application lags behind."""
    member.site.crowded = True
    return member


@without_waiting
async def test_who_lags_behind_asks_for_nothing_and_takes_nothing_that_is_not_kept() -> None:
    me = MemberId("me", bytes(16))
    nak, pull = encode(Nak([])), encode(Pull(1, []))
    beat = encode(Beat(Role.SUBSCRIBER, NO_VIEW, 0))
    effects: list[Effect] = [Cast(nak), Send(me, pull), Send("members", beat)]
    member = crowded(Scripted(effects))
    driver, noting = driven(member)
    driver.start(noting)
    assert noting.done == [("send", "members", beat)]
    data, pulled = encode(Data(bytes(16), 1, BLOCK)), encode(Pulled(1, [], []))
    for packet in (data, pulled, beat, b"", b"?"):
        driver.arrived(Channel.P, me, packet, UNTAGGED)
    driver.arrived(Channel.P, me, data, 1)  # the carrier keeps more where this came from
    arrived = [event.packet for event in member.events if isinstance(event, Arrived)]
    assert arrived == [beat, b"", b"?", data]
    assert noting.done[1:] == [("handled", 1, False)]
    member.site.crowded = False
    driver.arrived(Channel.P, me, pulled, UNTAGGED)
    assert member.events[-1:] == [Arrived(Channel.P, me, pulled)]
