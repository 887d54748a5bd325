"""Thousands of consumers on one queue, thousands of queues on one connection, all served alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from .traffic import Inbox, await_that, depth, put

pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)

MANY = 2000
CHANNELS = 20


@pytest.fixture
def crowd(connect: Callable[..., BlockingConnection], queue: str) -> Callable[..., list[Inbox]]:
    """Starts two thousand consumers of the queue, spread over twenty channels."""

    def gather(connection: BlockingConnection, prefetch: int = 0) -> list[Inbox]:
        channels = [connection.channel() for _ in range(CHANNELS)]
        for channel in channels:
            channel.basic_qos(prefetch_count=prefetch)
        return [
            Inbox(channels[number % CHANNELS], queue, auto_ack=not prefetch)
            for number in range(MANY)
        ]

    return gather


def shares(connection: BlockingConnection, inboxes: list[Inbox], total: int) -> Counter[int]:
    """How many consumers got how many messages, once all have arrived."""
    await_that(connection, lambda: sum(len(inbox.deliveries) for inbox in inboxes) >= total)
    return Counter(len(inbox.deliveries) for inbox in inboxes)


def test_two_thousand_consumers_of_one_queue_get_equal_shares(
    connection: BlockingConnection, queue: str, crowd: Callable[..., list[Inbox]]
) -> None:
    inboxes = crowd(connection)
    publishing = connection.channel()
    put(publishing, queue, *(b"%d" % number for number in range(2 * MANY + 500)))
    assert shares(connection, inboxes, 2 * MANY + 500) == {2: MANY - 500, 3: 500}


def test_two_thousand_consumers_fill_their_prefetch_evenly_and_no_further(
    connection: BlockingConnection,
    channel: BlockingChannel,
    queue: str,
    crowd: Callable[..., list[Inbox]],
) -> None:
    inboxes = crowd(connection, prefetch=2)
    put(connection.channel(), queue, *(b"%d" % number for number in range(2 * MANY + 10)))
    assert shares(connection, inboxes, 2 * MANY) == {2: MANY}
    assert depth(channel, queue) == 10
    for inbox in inboxes[:10]:
        inbox.channel.basic_ack(inbox.deliveries[0].tag)
    assert shares(connection, inboxes, 2 * MANY + 10) == {2: MANY - 10, 3: 10}


def test_two_thousand_queues_on_one_connection_are_all_served(
    connection: BlockingConnection, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    exchange = name("everybody")
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channels = [connection.channel() for _ in range(CHANNELS)]
    inboxes = []
    for number in range(MANY):
        own = channels[number % CHANNELS]
        queue = own.queue_declare("", exclusive=True).method.queue
        own.queue_bind(queue, exchange)
        inboxes.append(Inbox(own, queue, auto_ack=True))
    channel.basic_publish(exchange, "", b"to everybody")
    assert shares(connection, inboxes, MANY) == {1: MANY}


def test_two_thousand_channels_on_one_connection(
    connection: BlockingConnection, queue: str
) -> None:
    channels = [connection.channel() for _ in range(MANY)]
    inboxes = [Inbox(channel, queue, auto_ack=True) for channel in channels]
    put(channels[0], queue, *(b"%d" % number for number in range(MANY)))
    assert shares(connection, inboxes, MANY) == {1: MANY}
