"""Rows as messages: bodies, ways, and properties as bytes.

Of most rows only the id and the time differ. So the properties without these are encoded once for all rows that
have them alike, and the two are put in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recado.amqp.facts import message_id_at
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import Table
from recado.pipeline.options import OptionError, check_columns
from recado.pipeline.rows import PROPERTIES

from .ids import Ways, id_columns, ids_of
from .settings import SinkOptions

PERSISTENT: Final = 2
_MESSAGE_ID, _TIMESTAMP = 0x80, 0x40
_ROUTES_AGAIN: Final = frozenset({"CC", "BCC"})
"""Headers by which a broker routes a message; it was routed when it was first published."""
_seconds = Struct(">Q").pack
_KEPT: Final = 10_000  # different properties that are remembered
_TYPES: Final = {
    "body": ("binary", "string"),
    "exchange": ("string",),
    "routing_key": ("string",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("map",),
    "properties": ("struct",),
}
"""Of columns that mean something, as Spark calls them, without what is in brackets."""


class BadRow(Exception):
    """A row that cannot be a message."""


class Message(NamedTuple):
    exchange: str
    routing_key: str
    body: bytes
    properties: bytes


def checked_columns(options: SinkOptions, columns: Mapping[str, str | None]) -> Ways | None:
    """The columns that make a row's id. Raises OptionError if rows with these columns cannot be messages.

    They are given with what Spark calls their types, as far as these are known.
    """
    check_columns(columns, _TYPES, "amqp")
    if options.exchange is None and "exchange" not in columns:
        raise OptionError(
            'format("amqp") needs the option exchange (the default one is ""), or a column of that name'
        )
    if options.routing_key is None and "routing_key" not in columns and not options.exchange:
        raise OptionError(
            'format("amqp") needs the option routingKey, or a column routing_key: to the default exchange '
            "it is the name of the queue"
        )
    return id_columns(options.id_columns, [*columns])


class Rendering:
    """Checked when it is made, with the columns that will come, and what Spark calls their types."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, str | None], user: str) -> None:
        """`user` is who publishes: a broker refuses messages that claim to be another's."""
        self._options = options
        self._columns = columns
        self._ids = checked_columns(options, columns)
        self._user = user
        self._stems: dict[object, tuple[bytes, int, bytes]] = {}

    def messages(self, batch: pa.RecordBatch) -> Iterator[Message]:
        bodies = batch.column("body").cast(pa.binary()).to_pylist()
        ids: Iterable[bytes | None] = repeat(None)
        if self._ids is not None:
            ids = ids_of(batch, self._ids)
        rows = zip(
            self._given(self._options.exchange, "exchange", batch),
            self._given(self._options.routing_key, "routing_key", batch),
            bodies,
            ids,
            _times(self._column("timestamp", batch)),
            _values(self._column("properties", batch)),
            _values(self._column("headers", batch)),
            strict=False,  # what no row has is repeated for ever
        )
        for exchange, key, body, message_id, time, properties, headers in rows:
            encoded = self._encoded(message_id, time, properties, headers)
            yield Message(exchange or "", key or "", body or b"", encoded)

    def _given(self, option: str | None, name: str, batch: pa.RecordBatch) -> Iterable[str | None]:
        if option is not None:
            return repeat(option, batch.num_rows)
        return _values(self._column(name, batch))

    def _column(self, name: str, batch: pa.RecordBatch) -> pa.Array | None:
        return batch.column(name) if name in self._columns else None

    def _encoded(
        self,
        message_id: bytes | None,
        time: int | None,
        properties: Mapping[str, Any] | None,
        headers: Sequence[tuple[str, str | None]] | None,
    ) -> bytes:
        key = properties and tuple(properties.values()), headers and tuple(headers)
        stem = self._stems.get(key)
        if stem is None:
            if len(self._stems) >= _KEPT:
                self._stems.clear()
            stem = self._stems[key] = self._stem(properties, headers)
        start, flags, end = stem
        between = b""
        if message_id is not None:
            flags |= _MESSAGE_ID
            between = b"%c%b" % (len(message_id), message_id)
        if time is not None:
            flags |= _TIMESTAMP
            between += _seconds(time)
        return b"%b%c%b%b%b" % (start[:1], flags, start[2:], between, end)

    def _stem(
        self,
        given: Mapping[str, Any] | None,
        headers: Sequence[tuple[str, str | None]] | None,
    ) -> tuple[bytes, int, bytes]:
        """The bytes before the id, with its second byte, the flags; and those behind the time."""
        values = {name: value for name, value in (given or {}).items() if name in PROPERTIES}
        if values.get("delivery_mode") not in (1, PERSISTENT):
            values["delivery_mode"] = PERSISTENT
        if values.get("user_id") != self._user:
            values["user_id"] = None
        table: Table = {name: value for name, value in headers or () if name not in _ROUTES_AGAIN}
        try:
            encoded = encode_properties(Properties(**values, headers=table or None))
        except ValueError as error:
            raise BadRow(f"a row cannot be a message: {error}") from None
        at = message_id_at(encoded)
        return encoded[:at], encoded[1], encoded[at:]


def _values(column: pa.Array | None) -> Iterable[Any]:
    if column is None or column.null_count == len(column):
        return repeat(None)
    values: list[Any] = column.to_pylist()
    return values


def _times(column: pa.Array | None) -> Iterable[int | None]:
    """Seconds since 1970; AMQP has none before."""
    if column is None or column.null_count == len(column):
        return repeat(None)
    seconds = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1_000_000)
    times: list[int | None] = pc.if_else(pc.less(seconds, 0), None, seconds).to_pylist()
    return times
