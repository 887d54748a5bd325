"""The objects that a program receives from the client: deliveries, returned messages, queue infos."""

from typing import Protocol

import msgspec

from recado.amqp.properties import Properties, decode_properties


class DeliveryChannel(Protocol):
    """The part of a channel that a delivery needs to be settled."""

    @property
    def is_open(self) -> bool: ...

    def ack(self, delivery: "Delivery", *, multiple: bool = False) -> bool: ...

    def nack(
        self, delivery: "Delivery", *, multiple: bool = False, requeue: bool = True
    ) -> bool: ...


class DeliverySource(msgspec.Struct, frozen=True, eq=False):
    """The attributes that all deliveries of a run share."""

    channel: DeliveryChannel
    consumer_tag: str  # empty for a message from `get`
    redelivered: bool
    exchange: str
    routing_key: str
    no_ack: bool  # the broker expects no acknowledgement


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """A message that the broker delivered.

    Its delivery tag is valid only on the channel that received it, while that channel is open. When the channel
    has closed, a delivery that was not acknowledged `is_stale`: the broker delivers the message again, to this
    or another consumer, and settling the old delivery has no effect.
    """

    source: DeliverySource
    delivery_tag: int
    raw_properties: bytes  # encoded, as received
    body: bytes

    @property
    def exchange(self) -> str:
        return self.source.exchange

    @property
    def routing_key(self) -> str:
        return self.source.routing_key

    @property
    def redelivered(self) -> bool:
        return self.source.redelivered

    @property
    def consumer_tag(self) -> str:
        return self.source.consumer_tag

    @property
    def properties(self) -> Properties:
        """The properties, decoded at each access and not cached: store them to read several.

        Decoding takes longer than receiving a message, and many programs never read the properties.
        """
        return decode_properties(self.raw_properties, max_entries=1 << 16)

    @property
    def is_stale(self) -> bool:
        """Whether the channel of the delivery has closed."""
        return not self.source.channel.is_open

    def ack(self, *, multiple: bool = False) -> bool:
        """Acknowledge the message; with `multiple`, also all earlier ones of its channel.

        Returns False and sends nothing if the delivery is stale. Raises `ValueError` if its consumer has
        `no_ack`.
        """
        return self.source.channel.ack(self, multiple=multiple)

    def nack(self, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Reject the message: requeue it, or without `requeue` drop or dead-letter it. Otherwise like `ack`."""
        return self.source.channel.nack(self, multiple=multiple, requeue=requeue)


class ReturnedMessage(msgspec.Struct, frozen=True):
    """A message published with `mandatory` that the broker could route to no queue."""

    reply_code: int
    reply_text: str
    exchange: str
    routing_key: str
    raw_properties: bytes
    body: bytes

    @property
    def properties(self) -> Properties:
        """The decoded properties."""
        return decode_properties(self.raw_properties, max_entries=1 << 16)


class QueueInfo(msgspec.Struct, frozen=True):
    """The broker's reply to the declaration of a queue."""

    name: str
    message_count: int
    consumer_count: int
