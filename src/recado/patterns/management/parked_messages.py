"""Parked messages: those whose last attempt failed, or that could not be translated.

They wait in a queue, with their reason in headers, until a person has mended what was wrong and replays them.
"""

from collections.abc import AsyncIterator
from typing import Final

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.client import Delivery

from ..destination import PointToPoint
from ..failure import (
    ATTEMPT_HEADER,
    EXCHANGE_HEADER,
    HANDLER_HEADER,
    KEY_HEADER,
    QUEUE_HEADER,
    REASON_HEADER,
    TIME_HEADER,
    replay_properties,
)
from ..messaging import Messaging
from ..publisher import EncodedPublish
from ..reception import to_raw_message
from ..routing import SelectorLike, to_predicate

MAX_EXAMINED_COUNT: Final = 100_000


class ParkedMessage(msgspec.Struct, frozen=True):
    """Why a message was parked, as its headers tell, and the queue to which a replay returns it."""

    message_id: str | None
    queue: str | None
    handler: str | None
    reason: str | None
    time: str | None
    attempts: int | None
    size_bytes: int


class ReplayResult(msgspec.Struct, frozen=True):
    """How many messages were replayed, and how many were examined and left: they did not match, or name no queue."""

    replayed_count: int
    left_count: int


async def parked_messages(
    app: Messaging, source: str, condition: SelectorLike | None = None, *, limit: int = 1_000
) -> list[ParkedMessage]:
    """Return the first messages of a queue of parked messages that match a condition, of at most `MAX_EXAMINED_COUNT`.

    They return to the head of the queue, as after `replay`. On a quorum queue that counts as a delivery of each.
    """
    matches = to_predicate(condition) if condition is not None else None
    found: list[ParkedMessage] = []
    async for delivery in _held_deliveries(app, source):
        if matches is None or matches(to_raw_message(delivery, source)):
            found.append(_describe(delivery))
            if len(found) >= limit:
                break
    return found


async def replay(
    app: Messaging, source: str, condition: SelectorLike | None = None, *, limit: int | None = None
) -> ReplayResult:
    """Return parked messages to the queues they came from, with a fresh count of attempts.

    Only those that match `condition`, at most `limit`, of the first `MAX_EXAMINED_COUNT` messages. Each is acknowledged
    after its copy is confirmed, so a program that is killed loses none, and replays at most one twice. The others
    return to the head of the queue; in a quorum queue of RabbitMQ not always in their order.
    """
    matches = to_predicate(condition) if condition is not None else None
    replayed_count = left_count = 0
    async for delivery in _held_deliveries(app, source):
        properties = delivery.properties
        queue = (properties.headers or {}).get(QUEUE_HEADER)
        is_wanted = matches is None or matches(to_raw_message(delivery, source))
        if not is_wanted or not isinstance(queue, str):
            left_count += 1
            continue
        await _send_back(app, delivery, properties, queue)
        replayed_count += 1
        if replayed_count == limit:
            break
    return ReplayResult(replayed_count, left_count)


async def _held_deliveries(app: Messaging, source: str) -> AsyncIterator[Delivery]:
    """Take the messages that a queue has now, one after the other; those not acknowledged return at the end."""
    async with await app.open_channel() as channel:
        info = await channel.declare_queue(source, passive=True)
        last = None
        try:
            for _ in range(min(info.message_count, MAX_EXAMINED_COUNT)):
                delivery = await channel.get(source)
                if delivery is None:
                    break
                last = delivery
                yield delivery
        finally:
            if last is not None:
                last.nack(multiple=True)  # all that were not acknowledged


async def _send_back(
    app: Messaging, delivery: Delivery, properties: Properties, queue: str
) -> None:
    headers = properties.headers or {}
    exchange, key = headers.get(EXCHANGE_HEADER), headers.get(KEY_HEADER)
    if not isinstance(exchange, str) or not isinstance(key, str):
        exchange, key = "", queue
        await app.declare(PointToPoint(queue))
    await app.publish_encoded(
        EncodedPublish(
            exchange,
            key,
            delivery.body,
            encode_properties(replay_properties(properties)),
            properties.message_id or "",
            mandatory=properties.message_id is not None,
        )
    )
    delivery.ack()


def _describe(delivery: Delivery) -> ParkedMessage:
    properties = delivery.properties
    headers = properties.headers or {}

    def text(name: str) -> str | None:
        value = headers.get(name)
        return value if isinstance(value, str) else None

    attempts = headers.get(ATTEMPT_HEADER)
    return ParkedMessage(
        properties.message_id,
        text(QUEUE_HEADER),
        text(HANDLER_HEADER),
        text(REASON_HEADER),
        text(TIME_HEADER),
        attempts if isinstance(attempts, int) else None,
        len(delivery.body),
    )
