"""pika: who consumes: exclusive consumers, a single active one, and news that a queue is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from workshop.peers import Server

from .traffic import Inbox, await_that, bodies, depth, put, take
from .wire import wire_to


@pytest.fixture
def single(channel: BlockingChannel, name: Callable[[str], str]) -> str:
    """A queue with a single active consumer."""
    queue = name("single")
    channel.queue_declare(queue, exclusive=True, arguments={"x-single-active-consumer": True})
    return queue


def test_the_first_of_several_consumers_is_the_active_one(
    connection: BlockingConnection, channel: BlockingChannel, single: str
) -> None:
    channels = [connection.channel() for _ in range(3)]
    first, second, third = (Inbox(each, single, auto_ack=True) for each in channels)
    put(channel, single, *(b"%d" % number for number in range(5)))
    first.wait(5)
    channels[0].basic_cancel(first.tag)
    put(channel, single, b"5")
    second.wait(1)
    channels[1].close()
    put(channel, single, b"6")
    third.wait(1)
    assert (len(first.bodies), second.bodies, third.bodies) == (5, [b"5"], [b"6"])


def test_the_next_active_consumer_gets_what_the_closed_one_held(
    connection: BlockingConnection, channel: BlockingChannel, single: str
) -> None:
    active = connection.channel()
    Inbox(active, single)
    waiting = Inbox(connection.channel(), single, auto_ack=True)
    put(channel, single, b"1", b"2")
    await_that(connection, lambda: depth(channel, single) == 0)
    active.close()
    waiting.wait(2)
    assert [(each.body, each.redelivered) for each in waiting.deliveries] == [
        (b"1", True),
        (b"2", True),
    ]


def test_messages_of_a_closed_active_consumer_come_before_newer_ones(
    server: Server,
    connection: BlockingConnection,
    channel: BlockingChannel,
    name: Callable[[str], str],
) -> None:
    """The active consumer is on a plain socket: pika cancels consumers before it closes their channel."""
    queue = name("single")
    given = {"x-single-active-consumer": True}
    channel.queue_declare(queue, auto_delete=True, arguments=given)
    with wire_to(server) as active:
        consume = commands.Basic.Consume(queue=queue)
        active.send(commands.Channel.Open(), commands.Basic.Qos(0, 2), consume, channel=1)
        active.expect(commands.Channel.OpenOk, commands.Basic.QosOk, commands.Basic.ConsumeOk)
        waiting = Inbox(connection.channel(), queue, auto_ack=True)
        put(channel, queue, b"1", b"2", b"3", b"4")
        for _ in range(6):  # two deliveries, of three frames each
            active.receive()
        active.send(commands.Channel.Close(200, "", 0, 0), channel=1)
        active.expect(commands.Channel.CloseOk)
        waiting.wait(4)
    assert [(each.body, each.redelivered) for each in waiting.deliveries] == [
        (b"1", True),
        (b"2", True),
        (b"3", False),
        (b"4", False),
    ]


def test_an_exclusive_consumer_keeps_others_out_until_it_leaves(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    alone = connection.channel()
    inbox = Inbox(alone, queue, exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as refused:
        Inbox(connection.channel(), queue)
    assert refused.value.reply_code == 403
    alone.basic_cancel(inbox.tag)
    Inbox(connection.channel(), queue)
    with pytest.raises(ChannelClosedByBroker) as refused:
        Inbox(connection.channel(), queue, exclusive=True)
    assert refused.value.reply_code == 403


def test_a_consumer_is_told_when_its_queue_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    consuming = connection.channel()
    cancelled: list[str] = []
    consuming.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    inbox = Inbox(consuming, queue, consumer_tag="mine")
    channel.queue_delete(queue)
    await_that(connection, lambda: cancelled)
    assert cancelled == [inbox.tag] == ["mine"]
    assert consuming.is_open


def test_the_generator_of_pika_ends_when_its_queue_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    consuming = connection.channel()
    put(channel, queue, b"1", b"2")
    seen = []
    for method, _, body in consuming.consume(queue):
        seen.append(body)
        consuming.basic_ack(method.delivery_tag)
        if len(seen) == 2:
            channel.queue_delete(queue)
    assert seen == [b"1", b"2"]


def test_a_queue_without_its_consumers_keeps_messages_for_the_next(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    consuming = connection.channel()
    inbox = Inbox(consuming, queue, auto_ack=True)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    consuming.basic_cancel(inbox.tag)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 0
    put(channel, queue, b"later")
    assert bodies(take(channel, queue)) == [b"later"]


def test_consumer_tags_are_per_channel(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    channels = [connection.channel(), connection.channel()]
    inboxes = [Inbox(each, queue, auto_ack=True, consumer_tag="same") for each in channels]
    put(channel, queue, b"1", b"2")
    for inbox in inboxes:
        inbox.wait(1)
    assert sorted(inbox.bodies[0] for inbox in inboxes) == [b"1", b"2"]


def test_a_tag_used_twice_on_a_channel_closes_the_connection(
    connect: Callable[..., BlockingConnection], queue: str, name: Callable[[str], str]
) -> None:
    channel = connect().channel()
    own = name("own")
    channel.queue_declare(own, exclusive=True)
    # pika checks its own tags, so the second consumer is asked for below pika's check.
    Inbox(channel, own, consumer_tag="twice")
    channel._impl._consumers.clear()
    channel._consumer_infos.clear()
    with pytest.raises(ConnectionClosedByBroker) as closed:
        Inbox(channel, own, consumer_tag="twice")
    assert closed.value.reply_code == 530


def test_a_server_named_consumer_has_a_tag_of_its_own(channel: BlockingChannel, queue: str) -> None:
    first, second = Inbox(channel, queue), Inbox(channel, queue)
    assert first.tag != second.tag


def test_a_queue_with_a_single_active_consumer_has_no_exclusive_one(
    channel: BlockingChannel, single: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        Inbox(channel, single, exclusive=True)
    assert refused.value.reply_code == 403


def test_the_single_active_consumer_does_not_yield_to_a_higher_priority(
    connection: BlockingConnection, channel: BlockingChannel, single: str
) -> None:
    consuming = connection.channel()
    inboxes = [
        Inbox(consuming, single, auto_ack=True, arguments={"x-priority": priority})
        for priority in (1, 5, 9)
    ]
    put(channel, single, b"1")
    inboxes[0].wait(1)
    consuming.basic_cancel(inboxes[0].tag)
    put(channel, single, b"2")
    inboxes[2].wait(1)
    assert [inbox.bodies for inbox in inboxes] == [[b"1"], [], [b"2"]]
