"""pika: what a publisher learns: confirms, returns, refusals, and transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from .traffic import Delivery, Inbox, await_that, bodies, depth, get, put, take


def test_a_confirmed_message_is_in_the_queue(channel: BlockingChannel, queue: str) -> None:
    for number in range(50):
        put(channel, queue, b"%d" % number)
        assert depth(channel, queue) == number + 1


def test_an_unroutable_message_is_confirmed_and_dropped(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    channel.basic_publish("", name("nowhere"), b"lost")


def test_an_unroutable_mandatory_message_comes_back_whole(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    key = name("nowhere")
    properties = BasicProperties(message_id="m", headers={"answer": 42})
    with pytest.raises(UnroutableError) as refused:
        channel.basic_publish("amq.topic", key, b"x" * 300_000, properties, mandatory=True)
    (returned,) = refused.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.topic", key)
    assert (returned.properties.message_id, returned.properties.headers) == ("m", {"answer": 42})
    assert returned.body == b"x" * 300_000


def test_without_confirms_a_mandatory_message_comes_back_too(
    connection: BlockingConnection, name: Callable[[str], str]
) -> None:
    channel = connection.channel()
    returned: list[bytes] = []
    channel.add_on_return_callback(lambda _channel, _method, _props, body: returned.append(body))
    channel.basic_publish("", name("nowhere"), b"back", mandatory=True)
    await_that(connection, lambda: returned)
    assert returned == [b"back"]


def test_a_routable_mandatory_message_does_not_come_back(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"fine", mandatory=True)
    assert bodies(take(channel, queue)) == [b"fine"]


def test_a_full_queue_that_rejects_publishes_answers_with_a_nack(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("full")
    limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(queue, exclusive=True, arguments=limit)
    put(channel, queue, b"kept")
    with pytest.raises(NackError):
        put(channel, queue, b"refused")
    assert bodies(take(channel, queue)) == [b"kept"]
    put(channel, queue, b"room again")


def test_publishing_to_no_exchange_closes_the_channel_instead_of_confirming(
    connection: BlockingConnection, channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.basic_publish(name("nowhere"), "key", b"lost")
    assert closed.value.reply_code == 404
    assert connection.channel().is_open


def test_a_transaction_publishes_at_commit_and_forgets_at_rollback(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    transacted = connection.channel()
    transacted.tx_select()
    put(transacted, queue, b"1", b"2")
    assert depth(channel, queue) == 0
    transacted.tx_commit()
    assert depth(channel, queue) == 2
    put(transacted, queue, b"3")
    transacted.tx_rollback()
    transacted.tx_commit()
    assert bodies(take(channel, queue, 2)) == [b"1", b"2"]
    assert get(channel, queue) is None


def test_acks_wait_for_the_commit(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    transacted = connection.channel()
    put(channel, queue, b"1", b"2")
    transacted.tx_select()
    held = take(transacted, queue, 2, auto_ack=False)
    transacted.basic_ack(held[0].tag)
    transacted.tx_rollback()
    transacted.basic_ack(held[1].tag)
    transacted.tx_commit()
    transacted.close()
    again = take(channel, queue)
    assert (again[0].body, again[0].redelivered) == (b"1", True)
    assert get(channel, queue) is None


def test_an_unfinished_transaction_is_lost_with_its_channel(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    transacted = connection.channel()
    transacted.tx_select()
    put(transacted, queue, b"lost")
    transacted.close()
    assert get(channel, queue) is None


def test_a_consumer_may_publish_and_ack_in_one_transaction(
    connection: BlockingConnection, channel: BlockingChannel, queue: str, name: Callable[[str], str]
) -> None:
    onward = name("onward")
    channel.queue_declare(onward, exclusive=True)
    put(channel, queue, b"a", b"b", b"c")
    transacted = connection.channel()
    transacted.tx_select()
    transacted.basic_qos(prefetch_count=1)

    def forward(_channel: object, method: object, properties: BasicProperties, body: bytes) -> None:
        put(transacted, onward, body.upper())
        transacted.basic_ack(Delivery.of(method, properties, body).tag)
        transacted.tx_commit()

    transacted.basic_consume(queue, forward)
    inbox = Inbox(connection.channel(), onward, auto_ack=True)
    inbox.wait(3)
    assert inbox.bodies == [b"A", b"B", b"C"]
