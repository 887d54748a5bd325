"""Asking a broker one question, and telling its answer in a comparable form.

An answer is what the client saw: a value, or the level, code and text with which the broker closed the
channel or the connection. Names made for the question are written `{name}` again, so that answers
can be compared between runs and between brokers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
)
from pika.spec import Basic

from .traffic import await_that, put, take


class Closed(NamedTuple):
    """The broker closed something."""

    level: str
    code: int
    text: str


def channel(code: int, text: str) -> Closed:
    """The channel was closed, and only the channel."""
    return Closed("channel", code, text)


def connection(code: int, text: str) -> Closed:
    """The whole connection was closed."""
    return Closed("connection", code, text)


class Case:
    """What a question may use: a connection, a channel, and a name of its own."""

    def __init__(self, connect: Callable[..., BlockingConnection], name: str) -> None:
        self.connect = connect
        self.connection = connect()
        self.channel: BlockingChannel = self.connection.channel()
        self.name = name

    def queue(self, *contents: bytes, **arguments: object) -> str:
        """Declare the exclusive queue with the case's name, and fill it."""
        given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(self.name, exclusive=True, arguments=given)
        put(self.channel, self.name, *contents)
        return self.name

    def publish(self, exchange: str = "", **properties: object) -> None:
        """Publish one message, to the case's name by default."""
        fields = BasicProperties(**properties)
        self.channel.basic_publish(exchange, self.name, b"body", fields)

    def publish_immediate(self) -> None:
        """pika cannot set the immediate bit any more, so the method is sent below its surface."""
        method = Basic.Publish(exchange="", routing_key=self.name, immediate=True)
        self.channel._impl._send_method(method, (BasicProperties(), b"body"))

    def consume_twice(self, tag: str) -> None:
        """Two consumers with one tag; pika must forget the first, or it would not even ask."""
        self.channel.basic_consume(self.queue(), print, consumer_tag=tag)
        self.channel._impl._consumers.clear()
        self.channel._consumer_infos.clear()
        self.channel.basic_consume(self.name, print, consumer_tag=tag)

    def server_named_tag(self) -> str:
        """The tag that the broker gives; pika would make one up itself."""
        method = Basic.Consume(queue=self.queue(), consumer_tag="")
        tags: list[str] = []
        self.channel._impl._rpc(
            method, lambda frame: tags.append(frame.method.consumer_tag), [Basic.ConsumeOk]
        )
        await_that(self.connection, lambda: tags)
        return tags[0]

    def bound_exchange(self, **options: bool) -> None:
        """Declare an exchange with the case's name and bind a queue to it."""
        self.channel.exchange_declare(self.name, "fanout", auto_delete=True, **options)
        self.channel.queue_bind(self.queue(), self.name)

    def other(self) -> BlockingChannel:
        """A channel of another connection, on which the answer is then expected."""
        self.connection = self.connect()
        self.channel = self.connection.channel()
        return self.channel

    def held(self, count: int) -> list[int]:
        """The delivery tags of so many messages, taken and not acknowledged."""
        self.queue(*(b"%d" % number for number in range(count)))
        return [each.tag for each in take(self.channel, self.name, count, auto_ack=False)]

    def taken_again(self, count: int) -> list[tuple[bool, bytes]]:
        """What the queue gives now: redelivered, and the body."""
        return [(each.redelivered, each.body) for each in take(self.channel, self.name, count)]


def answer(case: Case, ask: Callable[[Case], object]) -> object:
    """Ask, let the broker react, and tell what came of it."""
    try:
        value = ask(case)
        if case.channel.is_open:
            # Methods without an answer fail later: this one waits behind them.
            case.channel.basic_qos(prefetch_count=0)
    except ChannelClosedByBroker as closed:
        assert case.connection.channel().is_open
        return Closed("channel", closed.reply_code, general(closed.reply_text, case))
    except ConnectionClosedByBroker as closed:
        return Closed("connection", closed.reply_code, general(closed.reply_text, case))
    except AMQPConnectionError as refused:
        # While connecting, pika tells the broker's words only in the text of its own exception.
        told = re.search(r"ConnectionClosedByBroker: \((\d+)\) '(.*)'", str(refused))
        if told is None:
            raise
        return Closed("connection", int(told[1]), told[2])
    return value


def general(text: str, case: Case) -> str:
    """The text with the case's own name as `{name}`."""
    return text.replace(case.name, "{name}")
