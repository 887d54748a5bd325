"""What is in a spool as the rows of `format("amqp")`.

Most messages of a queue have the same properties but for their ids and times. So these two are taken out, and
of what is left each different one is decoded once. No message is too odd to be a row: properties that make no
sense are in the header `recado.malformed`, in hexadecimal, and what is not UTF-8 has U+FFFD for what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct, error

import pyarrow as pa

from recado.amqp.errors import ProtocolError
from recado.amqp.facts import message_id_at
from recado.amqp.properties import decode_properties
from recado.pipeline.rows import QUEUE, fields_of, texts_of

from .spooled import SCHEMA, Rows

MALFORMED = "recado.malformed"
_ENTRIES = 1 << 16
_MESSAGE_ID, _TIMESTAMP = 0x80, 0x40
_NEITHER = 0xFF - _MESSAGE_ID - _TIMESTAMP
_seconds_at = Struct(">Q").unpack_from
_LATEST = 253_402_300_799  # the last second of the year 9999: later ones are no times, to Python and others
_TOGETHER = 10_000  # rows that are unfolded at a time, about
_HEAVY = 8 << 20  # bytes, likewise


def unfold(rows: Iterable[Rows], queue: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows, with the columns of `schema`."""
    for offset, batch in _gathered(rows):
        columns = _Columns(queue, offset, batch)
        arrays = [_COLUMNS[name](columns) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _gathered(rows: Iterable[Rows]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """In batches that are worth their while: who takes little at a time writes many small records."""
    some: list[pa.RecordBatch] = []
    first = count = size = 0
    for offset, batch in rows:
        if not some:
            first = offset
        some.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= _TOGETHER or size >= _HEAVY:
            yield first, _one(some)
            some, count, size = [], 0, 0
    if some:
        yield first, _one(some)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    [batch] = pa.Table.from_batches(batches, SCHEMA).combine_chunks().to_batches()
    return batch


class _Columns:
    def __init__(self, queue: str, offset: int, batch: pa.RecordBatch) -> None:
        self.queue = queue
        self.offset = offset
        self.batch = batch
        self._split: _Split | None = None

    @property
    def split(self) -> _Split:
        if self._split is None:
            self._split = _Split(self.batch.column("header").to_pylist())
        return self._split


class _Split:
    """Property lists, taken apart: ids, times, and what is left, each different one once."""

    def __init__(self, headers: list[bytes]) -> None:
        self.ids: list[bytes | None] = []
        self.times: list[int | None] = []
        self._where: list[int] = []
        self._different: dict[tuple[bytes, bool], int] = {}
        for header in headers:
            try:
                rest, message_id, time = _taken_apart(header)
                key = rest, True
            except (IndexError, ProtocolError, error):
                key, message_id, time = (header, False), None, None
            self.ids.append(message_id)
            self.times.append(time)
            self._where.append(self._different.setdefault(key, len(self._different)))
        self._decoded = [_decoded(rest, whole=whole) for rest, whole in self._different]

    def spread(self, which: int, kind: pa.DataType) -> pa.Array:
        values = pa.array([each[which] for each in self._decoded], kind)
        if values.null_count == len(values):
            return pa.nulls(len(self._where), kind)
        return values.take(pa.array(self._where, pa.int32()))


_Fields = dict[str, str | int | None] | None
_Texts = dict[str, str | None] | None


def _taken_apart(header: bytes) -> tuple[bytes, bytes | None, int | None]:
    flags = header[1]
    if not flags & (_MESSAGE_ID | _TIMESTAMP):
        return header, None, None
    start = at = message_id_at(header)
    message_id = time = None
    if flags & _MESSAGE_ID:
        at = start + 1 + header[start]
        message_id = header[start + 1 : at]
    if flags & _TIMESTAMP:
        (time,) = _seconds_at(header, at)
        at += 8
    rest = b"%b%c%b%b" % (header[:1], flags & _NEITHER, header[2:start], header[at:])
    return rest, message_id, time


def _decoded(rest: bytes, *, whole: bool) -> tuple[_Fields, _Texts]:
    if whole:
        try:
            properties = decode_properties(rest, max_entries=_ENTRIES)
        except ProtocolError:
            pass
        else:
            return fields_of(properties), texts_of(properties.headers)
    return None, {MALFORMED: rest.hex()}


def _texts(octets: pa.Array) -> pa.Array:
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        return _lenient(octets.to_pylist())


def _lenient(octets: list[bytes | None]) -> pa.Array:
    texts = [None if each is None else each.decode("utf-8", "replace") for each in octets]
    return pa.array(texts, pa.string())


def _time(seconds: int | None) -> int | None:
    return None if seconds is None or seconds > _LATEST else seconds * 1_000_000


def _offsets(columns: _Columns) -> pa.Array:
    first = columns.offset
    return pa.array(range(first, first + columns.batch.num_rows), pa.int64())


_COLUMNS: dict[str, Callable[[_Columns], pa.Array]] = {
    "queue": lambda each: pa.repeat(pa.scalar(each.queue, pa.string()), each.batch.num_rows),
    "offset": _offsets,
    "exchange": lambda each: _texts(each.batch.column("exchange")),
    "routing_key": lambda each: _texts(each.batch.column("routing_key")),
    "redelivered": lambda each: each.batch.column("redelivered"),
    "received": lambda each: each.batch.column("received"),
    "timestamp": lambda each: pa.array(
        list(map(_time, each.split.times)), QUEUE.field("timestamp").type
    ),
    "message_id": lambda each: _texts(pa.array(each.split.ids, pa.binary())),
    "headers": lambda each: each.split.spread(1, QUEUE.field("headers").type),
    "properties": lambda each: each.split.spread(0, QUEUE.field("properties").type),
    "body": lambda each: each.batch.column("body"),
}
