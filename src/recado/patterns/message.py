"""A message as programs and patterns see it: a body, which is an object, and the properties of AMQP.

A message is a value: patterns never change one, they return another (`replace`, `with_headers`).
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from recado.amqp.properties import Properties

T = TypeVar("T")
U = TypeVar("U")

PERSISTENT_CODE: Final = 2  # AMQP's delivery mode

_COPY_HEADERS: Final = frozenset({"CC", "BCC"})  # more routing keys of a message


class DeliveryInfo(msgspec.Struct, frozen=True):
    """Where a received message came from."""

    exchange: str
    queue: str
    redelivered: bool
    raw_body: bytes  # the body as received, before translation


class Message(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A body with its properties.

    `body` is the object that a translator encodes by `content_type` (None: JSON). `key` is AMQP's routing key.
    `reply_to` is the return address, `correlation_id` ties a reply to its request, and `type` with `content_type`
    is the format indicator. `expiration` is in seconds. `attempt` is 1 when a handler sees a message for the
    first time. `delivery` is None in messages that were not received.
    """

    body: T
    key: str = ""
    headers: Mapping[str, Any] = {}
    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    type: str | None = None
    app_id: str | None = None
    user_id: str | None = None
    priority: int | None = None
    expiration: float | None = None
    timestamp: datetime | None = None
    persistent: bool = True
    attempt: int = 1
    delivery: DeliveryInfo | None = None

    def replace(self, **changes: Any) -> "Message[Any]":
        """Return a copy with other values of the given fields."""
        return msgspec.structs.replace(self, **changes)

    def with_body(self, body: U) -> "Message[U]":
        """Return a copy with another body and the same properties."""
        copy: Message[Any] = msgspec.structs.replace(self, body=body)
        return copy

    def with_headers(self, headers: Mapping[str, Any] | None = None, **more: Any) -> "Message[T]":
        """Return a copy with headers added or replaced; a header of value None is removed."""
        merged = {**self.headers, **(headers or {}), **more}
        present = {name: value for name, value in merged.items() if value is not None}
        return msgspec.structs.replace(self, headers=present)

    def as_new(self) -> "Message[T]":
        """Return a copy to send on: without the delivery, the return address and the attempts."""
        return msgspec.structs.replace(self, delivery=None, attempt=1, reply_to=None)

    def to_properties(self) -> Properties:
        """Return AMQP's properties of this message, without those that the broker sets."""
        return Properties(
            content_type=self.content_type,
            content_encoding=self.content_encoding,
            headers=dict(self.headers) or None,
            delivery_mode=PERSISTENT_CODE if self.persistent else 1,
            priority=self.priority,
            correlation_id=self.correlation_id,
            reply_to=self.reply_to,
            expiration=None if self.expiration is None else str(round(self.expiration * 1000)),
            message_id=self.message_id,
            timestamp=None if self.timestamp is None else int(self.timestamp.timestamp()),
            type=self.type,
            user_id=self.user_id,
            app_id=self.app_id,
        )


def received_message(
    body: T, properties: Properties, delivery: DeliveryInfo, key: str, attempt: int
) -> Message[T]:
    """Return a received message. Properties that are not valid, such as an expiration in words, are left out.

    So are the headers CC and BCC, in case the program sends the message on.
    """
    timestamp = None
    if properties.timestamp is not None:
        with suppress(ValueError, OverflowError, OSError):
            timestamp = datetime.fromtimestamp(properties.timestamp, UTC)
    expiration = None
    if properties.expiration is not None and properties.expiration.isdecimal():
        expiration = int(properties.expiration) / 1000
    return Message(
        body=body,
        key=key,
        headers=without_copy_headers(properties.headers or {}),
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        message_id=properties.message_id,
        type=properties.type,
        app_id=properties.app_id,
        user_id=properties.user_id,
        priority=properties.priority,
        expiration=expiration,
        timestamp=timestamp,
        persistent=properties.delivery_mode == PERSISTENT_CODE,
        attempt=attempt,
        delivery=delivery,
    )


def without_copy_headers(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the headers of a received message without CC and BCC, by which the broker makes copies.

    They were made when the message was published. If it is published again with these headers, more copies are made,
    with the permissions of this program, and in a loop if one goes to the queue that is consumed.
    """
    if headers.keys().isdisjoint(_COPY_HEADERS):
        return headers
    return {name: value for name, value in headers.items() if name not in _COPY_HEADERS}
