"""pika: messages that overtake others, and consumers that come first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .traffic import Inbox, await_depth, await_that, bodies, put, take


@pytest.fixture
def ranked(channel: BlockingChannel, name: Callable[[str], str]) -> str:
    """A queue with priorities 0 to 5."""
    queue = name("ranked")
    channel.queue_declare(queue, exclusive=True, arguments={"x-max-priority": 5})
    return queue


def test_higher_priorities_leave_first_and_equals_in_order(
    channel: BlockingChannel, ranked: str
) -> None:
    for priority, body in [(1, b"a"), (5, b"b"), (None, b"c"), (1, b"d"), (0, b"e"), (5, b"f")]:
        put(channel, ranked, body, priority=priority)
    assert bodies(take(channel, ranked, 6)) == [b"b", b"f", b"a", b"d", b"c", b"e"]


def test_a_priority_above_the_maximum_counts_as_the_maximum(
    channel: BlockingChannel, ranked: str
) -> None:
    put(channel, ranked, b"5", priority=5)
    put(channel, ranked, b"200", priority=200)
    found = take(channel, ranked, 2)
    assert [(each.body, each.properties.priority) for each in found] == [(b"5", 5), (b"200", 200)]


def test_a_plain_queue_ignores_priorities(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"first", priority=0)
    put(channel, queue, b"second", priority=9)
    assert bodies(take(channel, queue, 2)) == [b"first", b"second"]


def test_a_requeued_message_returns_to_its_place_within_its_priority(
    channel: BlockingChannel, ranked: str
) -> None:
    for body in (b"low 1", b"low 2"):
        put(channel, ranked, body, priority=1)
    put(channel, ranked, b"high", priority=4)
    held = take(channel, ranked, 2, auto_ack=False)
    assert bodies(held) == [b"high", b"low 1"]
    channel.basic_nack(0, multiple=True, requeue=True)
    await_depth(channel, ranked, 3)
    assert bodies(take(channel, ranked, 3)) == [b"high", b"low 1", b"low 2"]


def test_a_full_queue_with_priorities_drops_its_head(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("ranked")
    arguments = {"x-max-priority": 5, "x-max-length": 2}
    channel.queue_declare(queue, exclusive=True, arguments=arguments)
    for priority in (1, 5, 3):
        put(channel, queue, b"%d" % priority, priority=priority)
    assert bodies(take(channel, queue, 2)) == [b"3", b"1"]


@pytest.mark.parametrize("maximum", [256, -1, "many"])
def test_a_maximum_out_of_range_is_refused(
    channel: BlockingChannel, name: Callable[[str], str], maximum: object
) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(name("ranked"), exclusive=True, arguments={"x-max-priority": maximum})
    assert closed.value.reply_code == 406


def test_the_consumer_of_higher_priority_is_served_while_it_has_room(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    low, high = connection.channel(), connection.channel()
    for each in (low, high):
        each.basic_qos(prefetch_count=3)
    second = Inbox(low, queue, arguments={"x-priority": -1})
    first = Inbox(high, queue, arguments={"x-priority": 10})
    put(channel, queue, *(b"%d" % number for number in range(5)))
    first.wait(3)
    second.wait(2)
    assert first.bodies == [b"0", b"1", b"2"]
    assert second.bodies == [b"3", b"4"]
    high.basic_ack(0, multiple=True)
    put(channel, queue, b"5")
    first.wait(4)
    assert first.bodies[-1] == b"5"


def test_consumers_of_equal_priority_take_turns(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    inboxes = [
        Inbox(connection.channel(), queue, auto_ack=True, arguments={"x-priority": 5})
        for _ in range(3)
    ]
    put(channel, queue, *(b"%d" % number for number in range(9)))
    await_that(connection, lambda: sum(len(inbox.bodies) for inbox in inboxes) == 9)
    assert [len(inbox.bodies) for inbox in inboxes] == [3, 3, 3]


def test_a_consumer_with_prefetch_gets_the_highest_that_waits(
    connection: BlockingConnection, channel: BlockingChannel, ranked: str
) -> None:
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=1)
    inbox = Inbox(consuming, ranked)
    put(channel, ranked, b"first")
    inbox.wait(1)
    for priority in (1, 5, 3, 4, 0):
        put(channel, ranked, b"%d" % priority, priority=priority)
    for count in range(1, 7):
        consuming.basic_ack(inbox.wait(count)[-1].tag)
    assert inbox.bodies == [b"first", b"5", b"4", b"3", b"1", b"0"]
