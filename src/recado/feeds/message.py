"""A message as an application sees it, and how the messages of a batch are made: by column, not one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import repeat
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from recado.amqp.errors import ProtocolError
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import Value, decode_table

from .block import BODY, EMPTY, HEADERS, KEY, MESSAGE_ID, PROPERTIES, SAME, Column
from .boundary import Batch
from .views import Certainty, ViewId

T = TypeVar("T")
Headers = Mapping[str, Value]

NO_HEADERS: Final[Headers] = MappingProxyType({})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message(msgspec.Struct, frozen=True):
    """`publisher` and `sequence` name it; no other message of the feed has the same."""

    feed: str
    publisher: bytes
    sequence: int
    view: ViewId
    """The membership in which it was delivered."""
    timestamp: int
    """µs since 1970, UTC, by the publisher's clock."""
    key: str
    message_id: str
    headers: Headers
    properties: Properties | None
    body: bytes
    certainty: Certainty

    @property
    def time(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.timestamp)


def messages_of(feed: str, batch: Batch) -> list[Message]:
    """All messages of a batch, in order."""
    block = batch.block
    count = block.count

    def each(which: int, read: Callable[[bytes], T], empty: T) -> Iterable[T]:
        return column_of(block.column(which), count, read, empty)

    return list(
        map(
            Message,
            repeat(feed, count),
            repeat(batch.publisher),
            range(batch.first, batch.first + count),
            repeat(batch.view),
            block.timestamps(),
            each(KEY, text_of, ""),
            each(MESSAGE_ID, text_of, ""),
            each(HEADERS, headers_of, NO_HEADERS),
            each(PROPERTIES, properties_of, None),
            block.values(BODY),
            repeat(batch.certainty),
        )
    )


def column_of(column: Column, count: int, read: Callable[[bytes], T], empty: T) -> Iterable[T]:
    """What is the same for all is read once."""
    if column.mode == EMPTY:
        return repeat(empty)
    if column.mode == SAME:
        return repeat(read(column.data))
    return map(read, column.values(count))


def text_of(data: bytes) -> str:
    """Whatever a publisher sent; nobody can send what stops a subscriber."""
    return data.decode("utf-8", "surrogateescape")


def headers_of(data: bytes) -> Headers:
    if not data:
        return NO_HEADERS
    try:
        return MappingProxyType(decode_table(data, 0)[0])
    except (ProtocolError, IndexError, ValueError):
        return NO_HEADERS


def properties_of(data: bytes) -> Properties | None:
    if not data:
        return None
    try:
        return decode_properties(data)
    except ProtocolError:
        return None
