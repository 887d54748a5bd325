"""The records of a spool, and how tasks read them while the spool is being written.

    HEAD       | 1 | spool's id, 16 bytes | next u64 | committed u64 | size u16 | queue | { size u8 | id } … |
    ROWS       | 2 | offset u64 | rows u32 | an Arrow IPC record batch of SPOOL_SCHEMA |
    COMMITTED  | 3 | offset u64 |

The records are in a journal, which adds checksums and handles torn writes. Rows are stored as received, with
the properties in their encoded form (the column `header`). The reader decodes them, so every message can be
stored.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from recado.client.messages import Delivery
from recado.journal.disk import FolderFile
from recado.journal.record import CorruptJournalError, ScanEnd, scan_records
from recado.journal.segment import file_name

from ..errors import PipelineError

HEAD_TYPE, ROWS_TYPE, COMMITTED_TYPE = 1, 2, 3
_HEAD_STRUCT = Struct("<B16sQQH")
_ROWS_STRUCT = Struct("<BQI")
_COMMITTED_STRUCT = Struct("<BQ")
_TIMESTAMP_STRUCT = Struct("<q")

SPOOL_SCHEMA = pa.schema(
    [
        ("exchange", pa.binary()),
        ("routing_key", pa.binary()),
        ("redelivered", pa.bool_()),
        ("received", pa.timestamp("us", "UTC")),
        ("header", pa.binary()),
        ("body", pa.binary()),
    ]
)


class SpoolHead(NamedTuple):
    """The state that recovery needs if earlier segments were removed.

    It is the first record of a new spool, and follows the rows that open a later segment.
    """

    id: bytes
    next_offset: int
    committed: int
    queue: str
    recent_ids: Sequence[bytes]

    def encode(self) -> bytes:
        queue = self.queue.encode()
        start = _HEAD_STRUCT.pack(HEAD_TYPE, self.id, self.next_offset, self.committed, len(queue))
        return b"".join([start, queue, *(bytes((len(each),)) + each for each in self.recent_ids)])


class SpooledRows(NamedTuple):
    """Messages with consecutive offsets."""

    offset: int
    batch: pa.RecordBatch

    def encode(self) -> bytes:
        start = _ROWS_STRUCT.pack(ROWS_TYPE, self.offset, self.batch.num_rows)
        return b"".join((start, self.batch.serialize()))


class SpoolCommitted(NamedTuple):
    """Rows before this offset are no longer needed."""

    offset: int

    def encode(self) -> bytes:
        return _COMMITTED_STRUCT.pack(COMMITTED_TYPE, self.offset)


SpoolEntry = SpoolHead | SpooledRows | SpoolCommitted


def decode(payload: bytes) -> SpoolEntry:
    match payload[0]:
        case 1:
            _, name, following, committed, size = _HEAD_STRUCT.unpack_from(payload)
            at = _HEAD_STRUCT.size + size
            queue = payload[_HEAD_STRUCT.size : at].decode()
            return SpoolHead(name, following, committed, queue, list(_decode_ids(payload, at)))
        case 2:
            _, offset, _ = _ROWS_STRUCT.unpack_from(payload)
            return SpooledRows(
                offset, pa.ipc.read_record_batch(payload[_ROWS_STRUCT.size :], SPOOL_SCHEMA)
            )
        case 3:
            return SpoolCommitted(_COMMITTED_STRUCT.unpack(payload)[1])
        case kind:
            raise ValueError(f"unknown record type {kind}")


def _decode_ids(payload: bytes, at: int) -> Iterator[bytes]:
    while at < len(payload):
        start = at + 1
        at = start + payload[at]
        yield payload[start:at]


def to_record_batch(deliveries: Sequence[Delivery], received_us: int) -> pa.RecordBatch:
    """Convert deliveries, received at this time in microseconds since 1970, to a record batch."""
    sources = [each.source for each in deliveries]
    arrays = [
        _binary_array([_to_bytes(each.exchange) for each in sources]),
        _binary_array([_to_bytes(each.routing_key) for each in sources]),
        _boolean_array([each.redelivered for each in sources]),
        _from_buffers(
            SPOOL_SCHEMA.field("received").type,
            len(sources),
            _TIMESTAMP_STRUCT.pack(received_us) * len(sources),
        ),
        _binary_array([each.raw_properties for each in deliveries]),
        _binary_array([each.body for each in deliveries]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SPOOL_SCHEMA)


# `pa.array` of a list is as fast, but imports pandas on its first call: a delay of 0.2 s
# at the start of each query.


def _binary_array(values: Sequence[bytes]) -> pa.Array:
    ends = array("i", accumulate(map(len, values), initial=0))
    return _from_buffers(pa.binary(), len(values), ends, b"".join(values))


def _boolean_array(values: Sequence[bool]) -> pa.Array:
    bits = int("0" + "".join(["1" if each else "0" for each in reversed(values)]), 2)
    return _from_buffers(pa.bool_(), len(values), bits.to_bytes(-(-len(values) // 8), "little"))


def _from_buffers(kind: pa.DataType, rows: int, *buffers: bytes | array[int]) -> pa.Array:
    """Build an array without nulls."""
    return pa.Array.from_buffers(kind, rows, [None, *map(pa.py_buffer, buffers)])


@lru_cache(1024)
def _to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class SpoolSlice(NamedTuple):
    """Rows [first, end), in the records at [start, stop) of the segment at position `segment`."""

    segment: int
    start: int
    stop: int
    first: int
    end: int


class SpoolUnreachableError(PipelineError):
    """A task cannot see the files of the spool."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} does not exist. Executors read the spool: on a cluster its folder must be on storage that "
            "the driver and all workers share, and only the query may remove files in it."
        )


def read_slice(folder: Path, rows: SpoolSlice) -> Iterator[SpooledRows]:
    """Yield the rows of a slice, record by record. Durable rows can be read while others are written."""
    path = folder / file_name(rows.segment)
    try:
        file = FolderFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
    except FileNotFoundError:
        raise SpoolUnreachableError(path) from None
    try:
        stop = ScanEnd(0)

        def payloads() -> Iterator[tuple[int, bytes]]:
            nonlocal stop
            base, start, until = rows.segment, rows.start, rows.stop
            stop = yield from scan_records(
                file.read, base, start - base, until - base, until - base, whole_groups=False
            )

        for _, payload in payloads():
            if payload[0] == ROWS_TYPE:
                entry = decode(payload)
                assert isinstance(entry, SpooledRows)
                yield _clip(entry, rows)
        if stop.damage is not None:
            raise CorruptJournalError(path, rows.segment + stop.offset, stop.damage)
    finally:
        file.close()


def _clip(rows: SpooledRows, wanted: SpoolSlice) -> SpooledRows:
    skipped = max(wanted.first - rows.offset, 0)
    count = min(wanted.end - rows.offset, rows.batch.num_rows) - skipped
    return SpooledRows(rows.offset + skipped, rows.batch.slice(skipped, count))
