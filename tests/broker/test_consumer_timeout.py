"""A channel that exceeds the consumer timeout is closed: never early, and not much later."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import ChannelLevelError
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.consumer_timeout import CHECK_INTERVAL_MS, CLOSED_CHANNELS_MAX, DeliveryAge
from recado.broker.queue import Queue

from .stage import Peer, close_channel, consume, new_broker, new_queue, open_channel, run_of

MINUTE = 60_000
HALF_HOUR = 30 * MINUTE


class Minutes:
    """A broker with a clock, and a channel that the connection closes on request."""

    def __init__(self, **settings: Any) -> None:
        self.broker: Broker = new_broker()
        self.broker.consumer_timeouts.default_ms = HALF_HOUR
        self.queue: Queue = new_queue(self.broker, **settings)
        self.peer = Peer()
        self.channel: Channel = open_channel(self.broker, self.peer, 3)
        self.now = 0

    def publish(self, *bodies: bytes) -> None:
        self.queue.publish(run_of(bodies), self.now)

    def wait(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while (due := self.broker.deadline()) is not None and due <= end:
            self.now = max(due, self.now)
            self.broker.tick(self.now)
        self.now = end


def test_after_half_an_hour_the_channel_is_closed() -> None:
    here = Minutes()
    consume(here.channel, here.queue)
    here.publish(b"one")
    here.wait(HALF_HOUR)
    assert not here.peer.closed
    here.wait(2 * MINUTE)
    number, error = here.peer.closed[0]
    assert number == 3
    assert error.code == 406
    assert error.reply_text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 3 timed out. Timeout value used:"
        " 1800000 ms. This timeout value can be configured, see consumers doc guide to learn more"
    )


def test_what_was_asked_for_is_held_too() -> None:
    here = Minutes()
    here.publish(b"one")
    here.channel.get(here.queue, no_ack=False, now=0)
    here.wait(HALF_HOUR + 2 * MINUTE)
    assert here.peer.closed


def test_who_acknowledges_in_time_stays() -> None:
    here = Minutes()
    consume(here.channel, here.queue)
    for tag in range(1, 5):
        here.publish(b"message")
        here.wait(HALF_HOUR - MINUTE)
        here.channel.settle(Settlement.ACK, tag, here.now, multiple=False)
    here.wait(HALF_HOUR * 3)
    assert not here.peer.closed


def test_the_second_does_not_get_the_time_of_the_first() -> None:
    here = Minutes()
    consume(here.channel, here.queue)
    here.publish(b"one", b"two")
    here.wait(HALF_HOUR - MINUTE)
    here.channel.settle(Settlement.ACK, 1, here.now, multiple=False)
    here.wait(3 * MINUTE)
    assert here.peer.closed


@pytest.mark.parametrize("no_ack", [False, True])
def test_nothing_is_awaited_of_who_has_nothing_or_does_not_ack(no_ack: bool) -> None:
    here = Minutes()
    consume(here.channel, here.queue, no_ack=no_ack)
    if no_ack:
        here.publish(b"one")
    here.wait(3 * HALF_HOUR)
    assert not here.peer.closed


@pytest.mark.parametrize(
    ("own", "default", "expected"),
    [
        (None, HALF_HOUR, HALF_HOUR),
        (None, 0, None),
        (0, HALF_HOUR, None),
        (MINUTE, HALF_HOUR, MINUTE),
        (MINUTE, 0, MINUTE),
        (2 * HALF_HOUR, HALF_HOUR, 2 * HALF_HOUR),
    ],
)
def test_a_queue_may_have_its_own(own: int | None, default: int, expected: int | None) -> None:
    here = Minutes(consumer_timeout_ms=own)
    here.broker.consumer_timeouts.default_ms = default
    consume(here.channel, here.queue)
    here.publish(b"one")
    if expected is not None:
        here.wait(expected - 1)
        assert not here.peer.closed
        here.wait(2 * MINUTE + 1)
        assert here.peer.closed
    else:
        here.wait(HALF_HOUR * 10)
        assert not here.peer.closed


def test_what_a_stream_delivered_may_be_held_for_ever() -> None:
    here = Minutes(durable=True, queue_type="stream")
    consume(here.channel, here.queue, prefetch=5)
    here.publish(b"one")
    assert here.peer.bodies() == [b"one"]
    here.wait(HALF_HOUR * 2)
    assert not here.peer.closed


def test_a_channel_that_is_gone_is_not_looked_at() -> None:
    here = Minutes()
    consume(here.channel, here.queue)
    here.publish(b"one")
    other = open_channel(here.broker)
    consume(other, here.queue)
    close_channel(here.channel)
    assert here.broker.deadline() == CHECK_INTERVAL_MS
    close_channel(other)
    assert here.broker.deadline() is None
    here.broker.tick(HALF_HOUR * 2)
    assert not here.peer.closed


class Leaver(Peer):
    """Brokers whose connections close channels on request."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[int, Channel] = {}

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        super().close_channel(number, error, now)
        close_channel(self.channels.pop(number), now)


def test_many_are_closed_in_several_turns() -> None:
    here = Minutes(consumer_timeout_ms=1)
    peer = Leaver()
    for number in range(1, 2 * CLOSED_CHANNELS_MAX + 2):
        channel = peer.channels[number] = open_channel(here.broker, peer, number)
        consume(channel, here.queue, prefetch=1)
        here.publish(b"message")
    for now in (CHECK_INTERVAL_MS, 2 * CHECK_INTERVAL_MS):
        here.broker.tick(now)
    assert len(peer.closed) == CLOSED_CHANNELS_MAX
    here.now = 2 * CHECK_INTERVAL_MS
    close_channel(peer.channels.pop(CLOSED_CHANNELS_MAX + 5), here.now)  # before the first check
    here.wait(5)
    assert [number for number, _ in peer.closed] == [
        number
        for number in range(1, 2 * CLOSED_CHANNELS_MAX + 2)
        if number != CLOSED_CHANNELS_MAX + 5
    ]
    assert here.broker.consumer_timeouts.next_check is None


def test_when_all_leave_the_look_is_over() -> None:
    here = Minutes(consumer_timeout_ms=1)
    peer = Leaver()
    for number in range(1, CLOSED_CHANNELS_MAX + 3):
        channel = peer.channels[number] = open_channel(here.broker, peer, number)
        consume(channel, here.queue, prefetch=1)
        here.publish(b"message")
    for now in (CHECK_INTERVAL_MS, 2 * CHECK_INTERVAL_MS):
        here.broker.tick(now)
    assert here.broker.deadline() == 2 * CHECK_INTERVAL_MS + 1
    for channel in list(peer.channels.values()):
        close_channel(channel, 2 * CHECK_INTERVAL_MS)
    assert here.broker.deadline() is None


def test_between_two_looks_nothing_is_looked_at() -> None:
    here = Minutes(consumer_timeout_ms=1)
    consume(here.channel, here.queue)
    here.publish(b"one")
    for now in (CHECK_INTERVAL_MS, CHECK_INTERVAL_MS + 1, 2 * CHECK_INTERVAL_MS - 1):
        here.broker.tick(now)
        assert not here.peer.closed
    here.broker.tick(2 * CHECK_INTERVAL_MS)
    assert here.peer.closed


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 90))))
def test_the_time_is_known_to_the_look(steps: Sequence[tuple[int, int, int]]) -> None:
    """Against a list of delivery times: the reported age is never too high, and too low by at most one
    check.
    """
    patience, given_at, settled, now, last_look = DeliveryAge(), [0], 1, 0, 0
    for deliveries, acks, seconds in steps:
        given_at += [now] * deliveries
        settled = min(settled + acks, len(given_at))
        now += seconds
        held = patience.age_ms(settled, len(given_at), now)
        if settled == len(given_at):
            assert held == 0
        else:
            really = now - given_at[settled]
            assert held <= really <= held + max(now - last_look, 90)
        last_look = now
