"""Turn deliveries into messages."""

from typing import TypeVar

import msgspec

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties
from recado.client import Delivery

from .errors import TranslationError
from .failure import PROPERTIES_HEADER, attempt_number
from .message import DeliveryInfo, Message, received_message
from .translation.content_encoding import is_compressed

T = TypeVar("T")


class Received(msgspec.Struct, frozen=True, eq=False):
    """A delivery that is being processed, with what is known about it."""

    delivery: Delivery
    properties: Properties
    queue: str
    line: str | None = None  # the key by which its retries are ordered
    error: TranslationError | None = None  # why its properties cannot be decoded

    @property
    def attempt(self) -> int:
        """Which attempt of its message this is; the first is 1."""
        return attempt_number(self.delivery, self.properties)

    def message(self, body: T) -> Message[T]:
        """Return the message with its decoded body."""
        return to_message(self.delivery, self.queue, body, self.properties)


def receive(delivery: Delivery, queue: str) -> Received:
    """Return a delivery of a queue with its properties.

    Brokers forward headers that cannot be decoded here: nested too deeply, or with names that are not UTF-8. Then
    `error` says so, and the properties are only a header with the original ones.
    """
    try:
        return Received(delivery, delivery.properties, queue)
    except AmqpError as error:
        unreadable = TranslationError(f"the properties of a message cannot be decoded: {error}")
        original = Properties(headers={PROPERTIES_HEADER: delivery.raw_properties})
        return Received(delivery, original, queue, error=unreadable)


def to_message(delivery: Delivery, queue: str, body: T, properties: Properties) -> Message[T]:
    """Return the message of a delivery from `queue`, with its decoded body."""
    info = DeliveryInfo(
        exchange=delivery.exchange,
        queue=queue,
        redelivered=delivery.redelivered,
        raw_body=delivery.body,
    )
    attempt = attempt_number(delivery, properties)
    if body is not delivery.body and is_compressed(properties.content_encoding):
        properties = msgspec.structs.replace(properties, content_encoding=None)
    return received_message(body, properties, info, delivery.routing_key, attempt)


def to_raw_message(delivery: Delivery, queue: str) -> Message[bytes]:
    """Return the message of a delivery without decoding its body."""
    return to_message(delivery, queue, delivery.body, delivery.properties)
