"""What a client gets from the broker: deliveries, messages that came back, answers about queues."""

from typing import Protocol

import msgspec

from recado.amqp.properties import Properties, decode_properties


class DeliveryChannel(Protocol):
    """The channel that a delivery came on, as far as the delivery needs it."""

    @property
    def is_open(self) -> bool: ...

    def ack(self, delivery: "Delivery", *, multiple: bool = False) -> bool: ...

    def nack(
        self, delivery: "Delivery", *, multiple: bool = False, requeue: bool = True
    ) -> bool: ...


class DeliverySource(msgspec.Struct, frozen=True, eq=False):
    """What the deliveries of a run share: where they came from, and by which way."""

    channel: DeliveryChannel
    consumer_tag: str  # empty: it was asked for by `get`
    redelivered: bool
    exchange: str
    routing_key: str
    no_ack: bool  # the broker expects no ack


class Delivery(msgspec.Struct, frozen=True, eq=False):
    """A message that the broker gave out.

    Its tag means something only on the channel that it came on, while that lives. When the channel has ended
    a delivery that was not acknowledged `is_stale`: the broker gives the message out again, here or to
    others, and what is said about this one has no effect.
    """

    source: DeliverySource
    delivery_tag: int
    raw_properties: bytes  # the properties as they came
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
        """Read anew each time, because that takes longer than to receive the message."""
        return decode_properties(self.raw_properties, max_entries=1 << 16)

    @property
    def is_stale(self) -> bool:
        return not self.source.channel.is_open

    def ack(self, *, multiple: bool = False) -> bool:
        """The message is done with; with `multiple`, so are all before it on its channel.

        False, and nothing is sent, if it is stale.
        """
        return self.source.channel.ack(self, multiple=multiple)

    def nack(self, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Give it back, or without `requeue` away: it is dropped, or becomes a dead letter."""
        return self.source.channel.nack(self, multiple=multiple, requeue=requeue)


class ReturnedMessage(msgspec.Struct, frozen=True):
    """A message published with `mandatory` that no queue was found for."""

    reply_code: int
    reply_text: str
    exchange: str
    routing_key: str
    raw_properties: bytes
    body: bytes

    @property
    def properties(self) -> Properties:
        return decode_properties(self.raw_properties, max_entries=1 << 16)


class QueueInfo(msgspec.Struct, frozen=True):
    """What the broker says of a queue that was declared."""

    name: str
    message_count: int
    consumer_count: int
