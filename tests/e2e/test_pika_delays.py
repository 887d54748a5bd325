"""pika: messages that are to come later, as users of RabbitMQ's delayed-message plugin send them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .traffic import Inbox

pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)


@pytest.fixture
def later(channel: BlockingChannel, queue: str, name: Callable[[str], str]) -> str:
    """A delayed exchange, from which `queue` gets everything."""
    exchange = name("later")
    channel.exchange_declare(
        exchange, "x-delayed-message", auto_delete=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_bind(queue, exchange)
    return exchange


def send(
    channel: BlockingChannel, exchange: str, delay: object, *, mandatory: bool = False
) -> None:
    properties = BasicProperties(headers={"x-delay": delay})
    channel.basic_publish(exchange, "", str(delay).encode(), properties, mandatory=mandatory)


def test_they_come_when_they_are_due(channel: BlockingChannel, queue: str, later: str) -> None:
    inbox = Inbox(channel, queue, auto_ack=True)
    began = time.monotonic()
    for delay in (300, 100, "200", 0):
        send(channel, later, delay, mandatory=True)
    inbox.wait(4)
    assert time.monotonic() - began >= 0.3
    assert inbox.bodies == [b"0", b"100", b"200", b"300"]
    delays = [(each.properties.headers or {})["x-delay"] for each in inbox.deliveries]
    assert delays == [0, -100, -200, -300]


def test_a_delayed_exchange_says_what_it_is_otherwise(
    connection: BlockingConnection, name: Callable[[str], str]
) -> None:
    for wrong in ({}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": "nothing"}):
        with pytest.raises(ChannelClosedByBroker) as refused:
            connection.channel().exchange_declare(
                name("later"), "x-delayed-message", arguments=wrong
            )
        assert refused.value.reply_code == 406
        assert "x-delayed-type" in refused.value.reply_text


def test_the_message_may_be_delayed_again(channel: BlockingChannel, queue: str, later: str) -> None:
    """How one retries later: sent back with another delay."""
    inbox = Inbox(channel, queue, auto_ack=True)
    send(channel, later, 10)
    inbox.wait(1)
    send(channel, later, 20)
    assert [each.body for each in inbox.wait(2)] == [b"10", b"20"]
