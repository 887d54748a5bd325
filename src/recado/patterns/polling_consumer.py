"""Polling consumers: one message at a time, when the program asks for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from recado.amqp.properties import Properties
from recado.client import Channel, Delivery, RobustChannel

from .destination import Destination
from .message import Message
from .reception import receive
from .settlement import REFUSED, DeliverySettlement
from .translation import Translators


class PollingConsumer:
    """Takes messages of one queue; those that cannot be translated are parked."""

    def __init__(
        self,
        channel: RobustChannel | Channel,
        source: Destination,
        settlement: DeliverySettlement,
        translators: Translators,
    ) -> None:
        self._channel = channel
        self._source = source
        self._settlement = settlement
        self._translators = translators

    @asynccontextmanager
    async def take(self, body_type: Any) -> AsyncIterator[Message[Any] | None]:
        """Take one message, or None if the queue is empty; see `Messaging.consume`."""
        taken = await self.take_one(body_type)
        if taken is None:
            yield None
            return
        delivery, message = taken
        try:
            yield message
        except BaseException:
            delivery.nack()
            raise
        delivery.ack()

    async def take_one(self, body_type: Any) -> tuple[Delivery, Message[Any]] | None:
        """Return a message with its delivery, or None if the queue is empty."""
        queue = self._source.name
        decode = partial(self._decode, body_type)
        while (delivery := await self._channel.get(queue)) is not None:
            received = receive(delivery, queue)
            body = await self._settlement.receive(received, decode)
            if body is not REFUSED:
                return delivery, received.message(body)
        return None

    def _decode(self, body_type: Any, body: bytes, properties: Properties) -> Any:
        raw = self._translators.decompress(body, properties.content_encoding, body_type)
        return self._translators.decode(raw, properties.content_type, body_type)
