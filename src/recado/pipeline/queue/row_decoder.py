"""Decode spooled messages to the rows of `format("amqp")`.

Most messages of a queue have equal properties, except for id and timestamp. So these two are extracted, and
each distinct remainder is decoded once. Every message becomes a row: invalid properties are stored in
hexadecimal in the header `recado.malformed`, and bytes that are not UTF-8 are replaced by U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct, error

import pyarrow as pa

from recado.amqp.errors import AmqpError
from recado.amqp.properties import decode_properties
from recado.amqp.traits import find_message_id_offset
from recado.pipeline.row_schema import QUEUE_SCHEMA, headers_to_strings, properties_to_dict

from .spool_record import SPOOL_SCHEMA, SpooledRows

MALFORMED_HEADER = "recado.malformed"
_TABLE_ENTRY_COUNT_MAX = 1 << 16
_MESSAGE_ID_FLAG, _TIMESTAMP_FLAG = 0x80, 0x40
_OTHER_PROPERTIES_MASK = 0xFF - _MESSAGE_ID_FLAG - _TIMESTAMP_FLAG
_unpack_seconds = Struct(">Q").unpack_from
_TIMESTAMP_MAX_S = 253_402_300_799  # the end of the year 9999, the maximum of Python's datetime
_BATCH_ROW_COUNT = 10_000  # approximate
_BATCH_BYTES = 8 << 20  # approximate


def decode_rows(
    rows: Iterable[SpooledRows], queue: str, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows as record batches with the columns of `schema`."""
    for offset, batch in _coalesce(rows):
        decoded = _DecodedBatch(queue, offset, batch)
        arrays = [_COLUMN_BUILDERS[name](decoded) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _coalesce(rows: Iterable[SpooledRows]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Merge small records, which a consumer writes that receives few messages at a time."""
    pending: list[pa.RecordBatch] = []
    first = count = size = 0
    for offset, batch in rows:
        if not pending:
            first = offset
        pending.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= _BATCH_ROW_COUNT or size >= _BATCH_BYTES:
            yield first, _concatenate(pending)
            pending, count, size = [], 0, 0
    if pending:
        yield first, _concatenate(pending)


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    [batch] = pa.Table.from_batches(batches, SPOOL_SCHEMA).combine_chunks().to_batches()
    return batch


class _DecodedBatch:
    """A record batch of the spool, whose properties are decoded when first needed."""

    def __init__(self, queue: str, offset: int, batch: pa.RecordBatch) -> None:
        self.queue = queue
        self.offset = offset
        self.batch = batch
        self._properties: _PropertyLists | None = None

    @property
    def properties(self) -> _PropertyLists:
        if self._properties is None:
            self._properties = _PropertyLists(self.batch.column("header").to_pylist())
        return self._properties


class _PropertyLists:
    """The property lists of a batch: ids, timestamps, and the distinct remainders."""

    def __init__(self, encoded: list[bytes]) -> None:
        self.message_ids: list[bytes | None] = []
        self.timestamps: list[int | None] = []
        self._indices: list[int] = []
        self._distinct: dict[tuple[bytes, bool], int] = {}
        for properties in encoded:
            try:
                rest, message_id, time = _extract_id_and_time(properties)
                key = rest, True
            except (IndexError, AmqpError, error):
                key, message_id, time = (properties, False), None, None
            self.message_ids.append(message_id)
            self.timestamps.append(time)
            self._indices.append(self._distinct.setdefault(key, len(self._distinct)))
        self._decoded = [_decode_properties(rest, is_valid=valid) for rest, valid in self._distinct]

    def expand(self, which: int, kind: pa.DataType) -> pa.Array:
        """Return a decoded column (0: properties, 1: headers) for all rows."""
        values = pa.array([each[which] for each in self._decoded], kind)
        if values.null_count == len(values):
            return pa.nulls(len(self._indices), kind)
        return values.take(pa.array(self._indices, pa.int32()))


_PropertyDict = dict[str, str | int | None] | None
_HeaderDict = dict[str, str | None] | None


def _extract_id_and_time(properties: bytes) -> tuple[bytes, bytes | None, int | None]:
    """Return a property list without message id and timestamp, the id, and the timestamp."""
    flags = properties[1]
    if not flags & (_MESSAGE_ID_FLAG | _TIMESTAMP_FLAG):
        return properties, None, None
    start = at = find_message_id_offset(properties)
    message_id = time = None
    if flags & _MESSAGE_ID_FLAG:
        at = start + 1 + properties[start]
        message_id = properties[start + 1 : at]
    if flags & _TIMESTAMP_FLAG:
        (time,) = _unpack_seconds(properties, at)
        at += 8
    other_flags = flags & _OTHER_PROPERTIES_MASK
    rest = b"%b%c%b%b" % (properties[:1], other_flags, properties[2:start], properties[at:])
    return rest, message_id, time


def _decode_properties(rest: bytes, *, is_valid: bool) -> tuple[_PropertyDict, _HeaderDict]:
    if is_valid:
        try:
            properties = decode_properties(rest, max_entries=_TABLE_ENTRY_COUNT_MAX)
        except AmqpError:
            pass
        else:
            return properties_to_dict(properties), headers_to_strings(properties.headers)
    return None, {MALFORMED_HEADER: rest.hex()}


def _to_strings(octets: pa.Array) -> pa.Array:
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        return _decode_replacing(octets.to_pylist())


def _decode_replacing(octets: list[bytes | None]) -> pa.Array:
    texts = [None if each is None else each.decode("utf-8", "replace") for each in octets]
    return pa.array(texts, pa.string())


def _to_micros(seconds: int | None) -> int | None:
    return None if seconds is None or seconds > _TIMESTAMP_MAX_S else seconds * 1_000_000


def _offset_column(batch: _DecodedBatch) -> pa.Array:
    first = batch.offset
    return pa.array(range(first, first + batch.batch.num_rows), pa.int64())


_COLUMN_BUILDERS: dict[str, Callable[[_DecodedBatch], pa.Array]] = {
    "queue": lambda each: pa.repeat(pa.scalar(each.queue, pa.string()), each.batch.num_rows),
    "offset": _offset_column,
    "exchange": lambda each: _to_strings(each.batch.column("exchange")),
    "routing_key": lambda each: _to_strings(each.batch.column("routing_key")),
    "redelivered": lambda each: each.batch.column("redelivered"),
    "received": lambda each: each.batch.column("received"),
    "timestamp": lambda each: pa.array(
        list(map(_to_micros, each.properties.timestamps)), QUEUE_SCHEMA.field("timestamp").type
    ),
    "message_id": lambda each: _to_strings(pa.array(each.properties.message_ids, pa.binary())),
    "headers": lambda each: each.properties.expand(1, QUEUE_SCHEMA.field("headers").type),
    "properties": lambda each: each.properties.expand(0, QUEUE_SCHEMA.field("properties").type),
    "body": lambda each: each.batch.column("body"),
}
