"""Delayed delivery to a queue: the message waits in the broker, not in a worker.

On recado it waits in an `x-delayed-message` exchange. On RabbitMQ it waits in a queue with a TTL, from which it is
dead-lettered to the default exchange, and so by its routing key to the target queue:

    exchange recado.delay.2000ms (fanout) → queue recado.delay.2000ms (with that TTL) → default exchange → target

All messages in one such queue wait equally long, so none is stuck behind another. Delays are rounded up to two
significant digits, which bounds the number of queues: 90 for each power of ten. The broker deletes a delay queue
that was not used for a while.

RabbitMQ adds to the header `x-death` when it dead-letters a message, and trusts what the message has in it. If the
target queue is among the entries, it drops the message as one in a cycle. Entries of another form crash the delay
queue, again and again with each restart, so messages of other programs wait in it for ever. So a message is delayed
without that header.
"""

import math
from typing import Protocol

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import FieldTable

from .declaration import Declarer
from .failure import DELAY_HEADER
from .publisher import ConfirmedPublisher, EncodedPublish

DELAY_EXCHANGE = "recado.delay"
DEATH_HEADER = "x-death"
DELAY_MAX_MS = (1 << 32) - 1  # the limit of TTLs on RabbitMQ
IDLE_EXTRA_MS = 3_600_000
"""How long a delay queue to which nothing is published exists beyond its TTL. Messages that are due wait in it while
their target cannot be reached; RabbitMQ tries again every three minutes."""
_SIGNIFICANT_DIGITS_COUNT = 2


class Delay(Protocol):
    """Delivers messages to queues later."""

    async def deliver_later(
        self, queue: str, body: bytes, properties: Properties, delay: float
    ) -> None:
        """Store a message that goes to `queue` after `delay` seconds; return when that is confirmed."""


class ExchangeDelay:
    """Delays messages in an `x-delayed-message` exchange, on recado."""

    def __init__(self, declarer: Declarer, publisher: ConfirmedPublisher) -> None:
        self._declarer = declarer
        self._publisher = publisher

    async def deliver_later(
        self, queue: str, body: bytes, properties: Properties, delay: float
    ) -> None:
        # For every message: the queue, and with it the binding, may have been deleted and declared again.
        async with await self._declarer.open_channel() as channel:
            arguments: FieldTable = {"x-delayed-type": "direct"}
            await channel.declare_exchange(
                DELAY_EXCHANGE, "x-delayed-message", durable=True, arguments=arguments
            )
            await channel.bind_queue(queue, DELAY_EXCHANGE, queue)
        headers = {**(properties.headers or {}), DELAY_HEADER: _to_ms(delay)}
        delayed = encode_properties(msgspec.structs.replace(properties, headers=headers))
        await self._publisher.publish(
            EncodedPublish(DELAY_EXCHANGE, queue, body, delayed, properties.message_id or "")
        )


class QueueDelay:
    """Delays messages in queues with a TTL, on RabbitMQ and other brokers."""

    def __init__(self, declarer: Declarer, publisher: ConfirmedPublisher) -> None:
        self._declarer = declarer
        self._publisher = publisher

    async def deliver_later(
        self, queue: str, body: bytes, properties: Properties, delay: float
    ) -> None:
        ttl_ms = round_up(_to_ms(delay))
        headers = dict(properties.headers or {})
        headers.pop(DEATH_HEADER, None)
        delayed = msgspec.structs.replace(properties, headers=headers or None)
        name = f"{DELAY_EXCHANGE}.{ttl_ms}ms"
        async with await self._declarer.open_channel() as channel:
            arguments = delay_queue_arguments(ttl_ms)
            await channel.declare_exchange(name, "fanout", durable=True, auto_delete=True)
            await channel.declare_queue(name, durable=True, arguments=arguments)
            await channel.bind_queue(name, name)
        await self._publisher.publish(
            EncodedPublish(
                name,
                queue,
                body,
                encode_properties(delayed),
                properties.message_id or "",
                mandatory=bool(properties.message_id),
            )
        )


def delay_queue_arguments(ttl_ms: int) -> FieldTable:
    """Return the arguments of a queue from which messages go to their targets after this time."""
    return {
        "x-queue-type": "quorum",
        "x-message-ttl": ttl_ms,
        "x-dead-letter-exchange": "",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # which that strategy needs
        "x-expires": min(ttl_ms + IDLE_EXTRA_MS, DELAY_MAX_MS),
    }


def round_up(milliseconds: int) -> int:
    """Round up to two significant digits."""
    if milliseconds <= 0:
        return 0
    digits = int(math.log10(milliseconds)) + 1
    unit: int = 10 ** max(digits - _SIGNIFICANT_DIGITS_COUNT, 0)
    return min(-(-milliseconds // unit) * unit, DELAY_MAX_MS)


def _to_ms(seconds: float) -> int:
    return min(max(round(seconds * 1000), 0), DELAY_MAX_MS)
