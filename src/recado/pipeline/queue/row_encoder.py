"""Encode rows as AMQP messages: routing, body, and properties as bytes.

Most rows differ only in id and timestamp. So the other properties are encoded once per distinct
combination, and id and timestamp are inserted into the encoded bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from struct import Struct
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.traits import find_message_id_offset
from recado.amqp.values import FieldTable
from recado.pipeline.options import OptionError, check_message_columns
from recado.pipeline.row_schema import PROPERTY_TYPES

from ..errors import PipelineError
from .message_ids import IdColumns, choose_id_columns, make_message_ids
from .options import QueueWriteOptions

PERSISTENT_MODE_CODE: Final = 2
_MESSAGE_ID_FLAG, _TIMESTAMP_FLAG = 0x80, 0x40
_ROUTING_HEADERS: Final = frozenset({"CC", "BCC"})
"""Headers with further routing keys. They are removed: the message was routed by them when it was first published."""
_pack_seconds = Struct(">Q").pack
_CACHE_ENTRY_COUNT_MAX: Final = 10_000  # distinct properties
_COLUMN_TYPES: Final = {
    "body": ("binary", "string"),
    "exchange": ("string",),
    "routing_key": ("string",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("map",),
    "properties": ("struct",),
}
"""The columns that the sink uses, and their accepted types by Spark's names without parameters."""


class RowEncodingError(PipelineError):
    """A row cannot be encoded as a message."""


class EncodedMessage(NamedTuple):
    """A message to publish; `properties` are encoded."""

    exchange: str
    routing_key: str
    body: bytes
    properties: bytes


def resolve_id_columns(
    options: QueueWriteOptions, columns: Mapping[str, str | None]
) -> IdColumns | None:
    """Return the columns that make a message id.

    `columns` has Spark's type names, None if a type is not known yet. Raises OptionError if rows with these
    columns cannot be messages.
    """
    check_message_columns(columns, _COLUMN_TYPES, "amqp")
    if options.exchange is None and "exchange" not in columns:
        raise OptionError(
            'format("amqp") needs the option exchange ("" is the default exchange) or a column of that name'
        )
    if options.routing_key is None and "routing_key" not in columns and not options.exchange:
        raise OptionError(
            'format("amqp") needs the option routingKey or a column routing_key: for the default exchange '
            "it is the name of the queue"
        )
    return choose_id_columns(options.id_columns, [*columns])


class RowEncoder:
    """Encodes rows with given columns. The columns are checked on creation."""

    def __init__(
        self, options: QueueWriteOptions, columns: Mapping[str, str | None], user: str
    ) -> None:
        """`user` is the user of the connection: brokers refuse messages with another `user_id`."""
        self._options = options
        self._columns = columns
        self._id_columns = resolve_id_columns(options, columns)
        self._user = user
        self._templates: dict[object, tuple[bytes, int, bytes]] = {}

    def encode(self, batch: pa.RecordBatch) -> Iterator[EncodedMessage]:
        """Yield a message for each row."""
        bodies = batch.column("body").cast(pa.binary()).to_pylist()
        ids: Iterable[bytes | None] = repeat(None)
        if self._id_columns is not None:
            ids = make_message_ids(batch, self._id_columns)
        rows = zip(
            self._option_or_column(self._options.exchange, "exchange", batch),
            self._option_or_column(self._options.routing_key, "routing_key", batch),
            bodies,
            ids,
            _times(self._column("timestamp", batch)),
            _values(self._column("properties", batch)),
            _values(self._column("headers", batch)),
            strict=False,  # missing columns are endless iterators of None
        )
        for exchange, key, body, message_id, time, properties, headers in rows:
            encoded = self._encode_properties(message_id, time, properties, headers)
            yield EncodedMessage(exchange or "", key or "", body or b"", encoded)

    def _option_or_column(
        self, option: str | None, name: str, batch: pa.RecordBatch
    ) -> Iterable[str | None]:
        if option is not None:
            return repeat(option, batch.num_rows)
        return _values(self._column(name, batch))

    def _column(self, name: str, batch: pa.RecordBatch) -> pa.Array | None:
        return batch.column(name) if name in self._columns else None

    def _encode_properties(
        self,
        message_id: bytes | None,
        time: int | None,
        properties: Mapping[str, Any] | None,
        headers: Sequence[tuple[str, str | None]] | None,
    ) -> bytes:
        key = properties and tuple(properties.values()), headers and tuple(headers)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _CACHE_ENTRY_COUNT_MAX:
                self._templates.clear()
            template = self._templates[key] = self._make_template(properties, headers)
        start, flags, end = template
        id_and_time = b""
        if message_id is not None:
            flags |= _MESSAGE_ID_FLAG
            id_and_time = b"%c%b" % (len(message_id), message_id)
        if time is not None:
            flags |= _TIMESTAMP_FLAG
            id_and_time += _pack_seconds(time)
        return b"%b%c%b%b%b" % (start[:1], flags, start[2:], id_and_time, end)

    def _make_template(
        self,
        properties: Mapping[str, Any] | None,
        headers: Sequence[tuple[str, str | None]] | None,
    ) -> tuple[bytes, int, bytes]:
        """Encode properties without message id and timestamp.

        Returns the bytes before the message id, the second byte of them (flags for id and timestamp), and the
        bytes after the timestamp.
        """
        values = {
            name: value for name, value in (properties or {}).items() if name in PROPERTY_TYPES
        }
        if values.get("delivery_mode") not in (1, PERSISTENT_MODE_CODE):
            values["delivery_mode"] = PERSISTENT_MODE_CODE
        if values.get("user_id") != self._user:
            values["user_id"] = None
        table: FieldTable = {
            name: value for name, value in headers or () if name not in _ROUTING_HEADERS
        }
        try:
            encoded = encode_properties(Properties(**values, headers=table or None))
        except ValueError as error:
            raise RowEncodingError(f"a row cannot be encoded as a message: {error}") from None
        offset = find_message_id_offset(encoded)
        return encoded[:offset], encoded[1], encoded[offset:]


def _values(column: pa.Array | None) -> Iterable[Any]:
    if column is None or column.null_count == len(column):
        return repeat(None)
    values: list[Any] = column.to_pylist()
    return values


def _times(column: pa.Array | None) -> Iterable[int | None]:
    """Return seconds since 1970; earlier times, which AMQP does not have, are None."""
    if column is None or column.null_count == len(column):
        return repeat(None)
    seconds = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1_000_000)
    times: list[int | None] = pc.if_else(pc.less(seconds, 0), None, seconds).to_pylist()
    return times
