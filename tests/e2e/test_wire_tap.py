"""The wire tap: a consumer that sees a copy of all that enters a queue and takes nothing away.

Its example with pika is the first test; the argument is recado's own, so RabbitMQ has no part here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .traffic import Inbox, await_depth, await_that, bodies, depth, put, take

pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)

TAP = {"x-wire-tap": True}


def test_a_tap_sees_what_enters_and_takes_nothing_away(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    orders = name("orders")
    channel.queue_declare(orders, auto_delete=True)

    tapping = connect().channel()
    seen: list[bytes] = []
    tapping.basic_consume(
        orders,
        lambda _channel, _method, _properties, body: seen.append(body),
        auto_ack=True,
        arguments={"x-wire-tap": True},
    )

    put(channel, orders, b"first", b"second")
    await_that(tapping.connection, lambda: len(seen) == 2)
    assert seen == [b"first", b"second"]
    assert bodies(take(channel, orders, 2)) == [b"first", b"second"]
    channel.queue_delete(orders)


def test_a_tap_beside_consumers_gets_every_message(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    tap = Inbox(connection.channel(), queue, auto_ack=True, arguments=TAP)
    workers = [Inbox(connection.channel(), queue, auto_ack=True) for _ in range(2)]
    sent = [b"%d" % number for number in range(50)]
    put(channel, queue, *sent, headers={"kind": "order"})
    for worker in workers:
        worker.wait(25)
    tap.wait(50)
    assert tap.bodies == sent
    assert sorted(workers[0].bodies + workers[1].bodies) == sorted(sent)
    assert {each.properties.headers["kind"] for each in tap.deliveries} == {"order"}
    assert {each.routing_key for each in tap.deliveries} == {queue}


def test_a_tap_sees_no_redelivery(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    tap = Inbox(connection.channel(), queue, auto_ack=True, arguments=TAP)
    put(channel, queue, b"once")
    (held,) = take(channel, queue, auto_ack=False)
    channel.basic_nack(held.tag, requeue=True)
    put(channel, queue, b"after")
    tap.wait(2)
    assert tap.bodies == [b"once", b"after"]


def test_a_tap_counts_neither_as_consumer_nor_as_use(
    connection: BlockingConnection, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("used")
    channel.queue_declare(queue)
    Inbox(connection.channel(), queue, auto_ack=True, arguments=TAP)
    declared = channel.queue_declare(queue, passive=True).method
    assert declared.consumer_count == 0
    channel.queue_delete(queue, if_unused=True)


def test_a_tap_is_cancelled_like_any_consumer(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    tapping = connection.channel()
    tap = Inbox(tapping, queue, auto_ack=True, arguments=TAP)
    put(channel, queue, b"seen")
    tap.wait(1)
    tapping.basic_cancel(tap.tag)
    put(channel, queue, b"unseen")
    await_depth(channel, queue, 2)
    assert tap.bodies == [b"seen"]


def test_a_tap_leaves_an_exclusive_consumer_alone(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    alone = Inbox(connection.channel(), queue, exclusive=True, auto_ack=True)
    tap = Inbox(connection.channel(), queue, auto_ack=True, arguments=TAP)
    put(channel, queue, b"both")
    alone.wait(1)
    tap.wait(1)
    assert depth(channel, queue) == 0


def test_a_tap_that_would_acknowledge_is_refused(channel: BlockingChannel, queue: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        Inbox(channel, queue, auto_ack=False, arguments=TAP)
    assert refused.value.reply_code == 406
