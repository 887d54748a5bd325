"""pika: how deliveries are settled: ack, nack, reject, recover, and what prefetch holds back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .traffic import Inbox, await_depth, await_that, bodies, depth, get, put, take


def test_published_messages_arrive_in_order_with_their_properties(
    channel: BlockingChannel, queue: str
) -> None:
    contents = [b"", b"one", bytes(range(256)), b"caf\xc3\xa9"]
    inbox = Inbox(channel, queue, auto_ack=True)
    sent = {
        "content_type": "text/plain",
        "content_encoding": "identity",
        "headers": {
            "text": "ü",
            "whole": 2**40,
            "small": -5,
            "truth": True,
            "nothing": None,
            "nested": {"list": [1, "two", {"three": 3}]},
            "bytes": b"\x00\xff",
        },
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "x",
    }
    put(channel, queue, *contents, **sent)
    inbox.wait(4)
    assert inbox.bodies == contents
    for delivery in inbox.deliveries:
        assert {key: getattr(delivery.properties, key) for key in sent} == sent
        assert (delivery.exchange, delivery.routing_key, delivery.redelivered) == ("", queue, False)
    assert [delivery.tag for delivery in inbox.deliveries] == [1, 2, 3, 4]


def test_an_ack_removes_and_an_unacked_message_returns_when_the_channel_closes(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    consuming = connection.channel()
    put(channel, queue, b"1", b"2", b"3")
    Inbox(consuming, queue).wait(3)
    consuming.basic_ack(2)
    consuming.close()
    await_depth(channel, queue, 2)
    again = take(channel, queue, 2)
    assert [(found.body, found.redelivered) for found in again] == [(b"1", True), (b"3", True)]


def test_ack_multiple_settles_all_up_to_the_tag(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    consuming = connection.channel()
    put(channel, queue, *(b"%d" % number for number in range(10)))
    Inbox(consuming, queue).wait(10)
    consuming.basic_ack(7, multiple=True)
    consuming.close()
    await_depth(channel, queue, 3)
    assert bodies(take(channel, queue, 3)) == [b"7", b"8", b"9"]


def test_a_nack_without_requeue_drops_and_with_requeue_returns_to_its_place(
    channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, *(b"%d" % number for number in range(6)))
    held = take(channel, queue, 4, auto_ack=False)
    channel.basic_nack(held[2].tag, requeue=True)
    channel.basic_nack(held[0].tag, requeue=True)
    channel.basic_nack(held[1].tag, requeue=False)
    channel.basic_ack(held[3].tag)
    await_depth(channel, queue, 4)
    again = take(channel, queue, 4)
    assert bodies(again) == [b"0", b"2", b"4", b"5"]
    assert [found.redelivered for found in again] == [True, True, False, False]


def test_nack_multiple_of_zero_settles_everything(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1", b"2", b"3")
    take(channel, queue, 3, auto_ack=False)
    channel.basic_nack(0, multiple=True, requeue=True)
    await_depth(channel, queue, 3)
    assert bodies(take(channel, queue, 3)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("requeue", [True, False])
def test_reject(channel: BlockingChannel, queue: str, requeue: bool) -> None:
    put(channel, queue, b"1", b"2")
    (first,) = take(channel, queue, auto_ack=False)
    channel.basic_reject(first.tag, requeue=requeue)
    await_depth(channel, queue, 2 if requeue else 1)
    assert bodies(take(channel, queue)) == [b"1" if requeue else b"2"]


def test_recover_requeues_all_that_the_channel_holds(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1", b"2", b"3")
    take(channel, queue, 2, auto_ack=False)
    channel.basic_recover(requeue=True)
    again = take(channel, queue, 3)
    assert [(found.body, found.redelivered) for found in again] == [
        (b"1", True),
        (b"2", True),
        (b"3", False),
    ]


def test_settling_twice_closes_the_channel_and_spares_the_others(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    other = connection.channel()
    put(channel, queue, b"1")
    (held,) = take(channel, queue, auto_ack=False)
    channel.basic_ack(held.tag)
    channel.basic_ack(held.tag)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 406
    assert depth(other, queue) == 0


def test_prefetch_holds_deliveries_back_until_an_ack_makes_room(
    channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, *(b"%d" % number for number in range(10)))
    channel.basic_qos(prefetch_count=3)
    inbox = Inbox(channel, queue)
    inbox.wait(3)
    assert depth(channel, queue) == 7
    channel.basic_ack(2, multiple=True)
    inbox.wait(5)
    assert depth(channel, queue) == 5
    assert inbox.bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_prefetch_does_not_bind_a_consumer_without_acks(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue, auto_ack=True)
    put(channel, queue, *(b"%d" % number for number in range(20)))
    assert len(inbox.wait(20)) == 20


def test_global_prefetch_is_shared_by_the_consumers_of_a_channel(
    connection: BlockingConnection, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queues = [name("shared"), name("shared")]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
        put(channel, queue, *(b"%d" % number for number in range(5)))
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=4, global_qos=True)
    first, second = (Inbox(consuming, queue) for queue in queues)
    first.wait(4)
    assert depth(channel, queues[0]) == 1
    assert depth(channel, queues[1]) == 5
    consuming.basic_ack(4, multiple=True)
    await_that(connection, lambda: len(first.bodies) + len(second.bodies) == 8)
    assert depth(channel, queues[0]) + depth(channel, queues[1]) == 2


def test_a_get_counts_what_is_left_and_says_when_there_is_nothing(
    channel: BlockingChannel, queue: str
) -> None:
    assert get(channel, queue) is None
    put(channel, queue, b"1", b"2", b"3")
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.message_count, body) == (2, b"1")
    assert channel.queue_purge(queue).method.message_count == 2
    assert get(channel, queue) is None


def test_a_cancelled_consumer_gets_nothing_more_and_keeps_what_it_holds(
    channel: BlockingChannel, queue: str
) -> None:
    inbox = Inbox(channel, queue)
    put(channel, queue, b"1")
    inbox.wait(1)
    channel.basic_cancel(inbox.tag)
    put(channel, queue, b"2")
    await_depth(channel, queue, 1)
    channel.basic_ack(1)
    assert bodies(take(channel, queue)) == [b"2"]
    assert inbox.bodies == [b"1"]


def test_two_consumers_take_turns(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    inboxes = [Inbox(connection.channel(), queue, auto_ack=True) for _ in range(2)]
    put(channel, queue, *(b"%d" % number for number in range(10)))
    for inbox in inboxes:
        inbox.wait(5)
    assert inboxes[0].bodies == [b"%d" % number for number in range(0, 10, 2)]
    assert inboxes[1].bodies == [b"%d" % number for number in range(1, 10, 2)]


def test_requeued_messages_of_two_channels_fall_back_into_order(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, *(b"%d" % number for number in range(8)))
    holders = [connection.channel(), connection.channel()]
    for number in range(6):
        take(holders[number % 2], queue, auto_ack=False)
    for holder in reversed(holders):
        holder.close()
    await_depth(channel, queue, 8)
    again = take(channel, queue, 8)
    assert bodies(again) == [b"%d" % number for number in range(8)]
    assert [each.redelivered for each in again] == [True] * 6 + [False] * 2


def test_a_raised_global_prefetch_takes_effect_at_once(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, *(b"%d" % number for number in range(10)))
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=2, global_qos=True)
    inbox = Inbox(consuming, queue)
    inbox.wait(2)
    assert depth(channel, queue) == 8
    consuming.basic_qos(prefetch_count=5, global_qos=True)
    inbox.wait(5)
    assert depth(channel, queue) == 5
    consuming.basic_qos(prefetch_count=0, global_qos=True)
    inbox.wait(10)


def test_prefetch_is_for_consumers_that_start_later(
    connection: BlockingConnection, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queues = [name("earlier"), name("later")]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
    consuming = connection.channel()
    inboxes = []
    for queue, prefetch in zip(queues, (2, 4), strict=True):
        consuming.basic_qos(prefetch_count=prefetch)
        inboxes.append(Inbox(consuming, queue))
    for queue, inbox, prefetch in zip(queues, inboxes, (2, 4), strict=True):
        put(channel, queue, *[b"message"] * 10)
        inbox.wait(prefetch)
        assert depth(channel, queue) == 10 - prefetch


def test_get_is_not_bound_by_prefetch(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, b"1", b"2", b"3")
    getting = connection.channel()
    getting.basic_qos(prefetch_count=1, global_qos=True)
    assert bodies(take(getting, queue, 3, auto_ack=False)) == [b"1", b"2", b"3"]


def test_a_purge_leaves_what_is_out_for_delivery(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1", b"2", b"3")
    (held,) = take(channel, queue, auto_ack=False)
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_nack(held.tag, requeue=True)
    await_depth(channel, queue, 1)
    assert bodies(take(channel, queue)) == [b"1"]


def test_an_ack_after_its_queue_is_gone_is_no_error(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1", b"2")
    (held,) = take(channel, queue, auto_ack=False)
    assert channel.queue_delete(queue).method.message_count == 1
    channel.basic_ack(held.tag)
    channel.basic_qos(prefetch_count=0)


def test_a_reached_global_prefetch_holds_back_consumers_without_acks(
    connection: BlockingConnection, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    """They get messages while the channel has fewer unacked than its limit, and do not count for it."""
    acked, unacked = name("acked"), name("unacked")
    for queue in (acked, unacked):
        channel.queue_declare(queue, exclusive=True)
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=2, global_qos=True)
    held, free = Inbox(consuming, acked), Inbox(consuming, unacked, auto_ack=True)
    put(channel, acked, b"1")
    held.wait(1)
    put(channel, unacked, b"a", b"b", b"c")
    free.wait(3)
    put(channel, acked, b"2")
    held.wait(2)
    put(channel, unacked, b"d", b"e", b"f")
    assert depth(channel, unacked) == 3
    consuming.basic_ack(held.deliveries[0].tag)
    assert bodies(free.wait(6)) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert held.bodies == [b"1", b"2"]
