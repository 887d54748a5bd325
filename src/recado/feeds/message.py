"""Messages as the application sees them. A batch is decoded column by column, not message by message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import repeat
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from recado.amqp.errors import AmqpError
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldValue, decode_table

from .block import (
    ALL_EMPTY_CODE,
    BODY_INDEX,
    CONSTANT_CODE,
    HEADERS_INDEX,
    KEY_INDEX,
    MESSAGE_ID_INDEX,
    PROPERTIES_INDEX,
    Column,
)
from .boundary import MessageBatch
from .views import Certainty, ViewId

T = TypeVar("T")
Headers = Mapping[str, FieldValue]

NO_HEADERS: Final[Headers] = MappingProxyType({})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message(msgspec.Struct, frozen=True):
    """One message of a feed. `publisher` and `sequence` together identify it."""

    feed: str
    publisher: bytes
    sequence: int
    view: ViewId
    """The view in which it was delivered."""
    timestamp: int
    """Time of publishing in µs since 1970 UTC, by the publisher's clock."""
    key: str
    message_id: str
    headers: Headers
    properties: Properties | None
    body: bytes
    certainty: Certainty

    @property
    def time(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.timestamp)


def decode_messages(feed: str, batch: MessageBatch) -> list[Message]:
    """Decode all messages of a batch, in order."""
    block = batch.block
    count = block.count

    def values_of(which: int, read: Callable[[bytes], T], empty: T) -> Iterable[T]:
        return decode_column(block.column(which), count, read, empty)

    return list(
        map(
            Message,
            repeat(feed, count),
            repeat(batch.publisher),
            range(batch.first, batch.first + count),
            repeat(batch.view),
            block.timestamps(),
            values_of(KEY_INDEX, decode_text, ""),
            values_of(MESSAGE_ID_INDEX, decode_text, ""),
            values_of(HEADERS_INDEX, decode_headers, NO_HEADERS),
            values_of(PROPERTIES_INDEX, decode_message_properties, None),
            block.values(BODY_INDEX),
            repeat(batch.certainty),
        )
    )


def decode_column(column: Column, count: int, read: Callable[[bytes], T], empty: T) -> Iterable[T]:
    """Decode a column; a constant value is decoded once."""
    if column.mode == ALL_EMPTY_CODE:
        return repeat(empty)
    if column.mode == CONSTANT_CODE:
        return repeat(read(column.data))
    return map(read, column.values(count))


def decode_text(data: bytes) -> str:
    """Decode text without ever failing: a publisher must not be able to stop a subscriber."""
    return data.decode("utf-8", "surrogateescape")


def decode_headers(data: bytes) -> Headers:
    if not data:
        return NO_HEADERS
    try:
        return MappingProxyType(decode_table(data, 0)[0])
    except (AmqpError, IndexError, ValueError):
        return NO_HEADERS


def decode_message_properties(data: bytes) -> Properties | None:
    if not data:
        return None
    try:
        return decode_properties(data)
    except AmqpError:
        return None
