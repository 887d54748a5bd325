"""Transactions of the broker (AMQP's class tx): publishes and acknowledgements that take effect together.

    async with app.transaction() as transaction:
        order = await transaction.take("orders", Order)
        await transaction.publish("invoices", Invoice(order.body))
        await transaction.publish("shipments", Shipment(order.body))

At the end of the block everything is committed. If the block raises, nothing was published, and what was taken returns
to its queue.

PTX1  Nothing of a block that raises takes effect.
PTX2  When the block has ended without an error, the broker has taken responsibility for all messages.
PTX3  If the connection is lost before the commit, nothing takes effect; during the commit, the outcome is unknown.

A transaction has a channel of its own on a plain connection: one that reconnects would publish the rest of a
transaction outside of it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from recado.client import Channel, Delivery, ReturnedMessage

from .destination import DestinationLike
from .message import Message
from .polling_consumer import PollingConsumer
from .publisher import EncodedPublish, to_unroutable

EncodeFor: TypeAlias = Callable[[DestinationLike, object, str], Awaitable[EncodedPublish]]
Poll: TypeAlias = Callable[[Channel, DestinationLike], Awaitable[PollingConsumer]]


class BrokerTransaction:
    """What a block publishes and takes; made by `Messaging.transaction`."""

    def __init__(self, channel: Channel, encode: EncodeFor, poll: Poll) -> None:
        self._channel = channel
        self._encode = encode
        self._poll = poll
        self._taken: list[Delivery] = []
        self._returned: list[ReturnedMessage] = []

    async def begin(self) -> None:
        """Start the transaction; called by `Messaging.transaction`."""
        self._channel.on_return = self._returned.append
        await self._channel.select_tx()

    async def publish(self, to: DestinationLike, body: object, *, key: str = "") -> None:
        """Publish a message when the transaction is committed; the arguments are those of `Messaging.publish`."""
        publish = await self._encode(to, body, key)
        self._channel.publish(
            publish.exchange,
            publish.key,
            publish.body,
            publish.properties,
            mandatory=publish.mandatory,
        )
        await self._channel.drain()

    async def take(self, source: DestinationLike, body_type: Any = Any) -> Message[Any] | None:
        """Take one message, or None if the queue is empty. It is acknowledged by the commit."""
        consumer = await self._poll(self._channel, source)
        taken = await consumer.take_one(body_type)
        if taken is None:
            return None
        delivery, message = taken
        self._taken.append(delivery)
        return message

    async def commit(self) -> None:
        """Commit; called by `Messaging.transaction`. Raises `UnroutableMessageError` for a message without a queue.

        The other messages have been published then: a broker finds that out during the commit.
        """
        for delivery in self._taken:
            delivery.ack()
        await self._channel.commit()
        if self._returned:
            raise to_unroutable(self._returned[0])
