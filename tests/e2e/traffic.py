"""Messages in and out with pika's blocking client: what nearly every end-to-end test does.

Nothing here sleeps. `await_that` lets pika work until a condition holds, `take` asks the queue until
it has given enough, and both fail at a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from workshop.time_limit import scale

PATIENCE = 15.0


class Delivery(NamedTuple):
    """One message as a client saw it, by basic.deliver or basic.get-ok."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes

    @classmethod
    def of(cls, method: Any, properties: BasicProperties, body: bytes) -> Delivery:
        """From the three things that pika hands out."""
        return cls(
            method.delivery_tag,
            method.redelivered,
            method.exchange,
            method.routing_key,
            properties,
            body,
        )


def await_that(connection: BlockingConnection, holds: Callable[[], object]) -> None:
    """Let pika handle what arrives until the condition holds."""
    limit_s = scale(PATIENCE)
    deadline = time.monotonic() + limit_s
    while not holds():
        left = deadline - time.monotonic()
        assert left > 0, f"waited {limit_s:.0f} s in vain"
        connection.process_data_events(time_limit=min(left, 0.05))


class Inbox:
    """A consumer that keeps what it gets."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: object) -> None:
        self.channel = channel
        self.deliveries: list[Delivery] = []
        self.tag: str = channel.basic_consume(queue, self._keep, **options)

    def _keep(
        self, _channel: object, method: object, properties: BasicProperties, body: bytes
    ) -> None:
        self.deliveries.append(Delivery.of(method, properties, body))

    @property
    def bodies(self) -> list[bytes]:
        """The bodies so far, in order of arrival."""
        return [delivery.body for delivery in self.deliveries]

    def wait(self, count: int) -> list[Delivery]:
        """Everything so far, once at least `count` messages are here."""
        await_that(self.channel.connection, lambda: len(self.deliveries) >= count)
        return self.deliveries


def get(channel: BlockingChannel, queue: str, *, auto_ack: bool = True) -> Delivery | None:
    """One basic.get: the message, or None for get-empty."""
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    return None if method is None else Delivery.of(method, properties, body)


def take(
    channel: BlockingChannel, queue: str, count: int = 1, *, auto_ack: bool = True
) -> list[Delivery]:
    """The next `count` messages of a queue by basic.get, asking until they are there."""
    taken: list[Delivery] = []

    def enough() -> bool:
        while len(taken) < count and (found := get(channel, queue, auto_ack=auto_ack)):
            taken.append(found)
        return len(taken) == count

    await_that(channel.connection, enough)
    return taken


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    """Only the bodies."""
    return [delivery.body for delivery in deliveries]


def put(channel: BlockingChannel, queue: str, *contents: bytes, **properties: object) -> None:
    """Publish to a queue by name, through the default exchange."""
    for body in contents:
        channel.basic_publish("", queue, body, BasicProperties(**properties))


def depth(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready, by a passive declare."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def await_depth(channel: BlockingChannel, queue: str, count: int) -> None:
    """Wait until exactly `count` messages are ready."""
    await_that(channel.connection, lambda: depth(channel, queue) == count)
