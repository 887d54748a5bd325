"""What is written down in a spool, and how it is read again, also beside the one who writes.

    HEAD       | 1 | spool's id, 16 bytes | next u64 | committed u64 | size u16 | queue | { size u8 | id } … |
    ROWS       | 2 | offset u64 | rows u32 | an Arrow IPC record batch of SCHEMA |
    COMMITTED  | 3 | offset u64 |

They are records of a journal, which sees to checksums, and to what a crash left half written. Rows are kept as
they came, properties in the broker's own bytes: who reads them decodes them, and nothing is too odd to be kept.
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
from recado.journal.record import Corrupt, Stop, walk
from recado.journal.segment import file_name

HEAD, ROWS, COMMITTED = 1, 2, 3
_HEAD = Struct("<B16sQQH")
_ROWS = Struct("<BQI")
_COMMITTED = Struct("<BQ")
_INSTANT = Struct("<q")

SCHEMA = pa.schema(
    [
        ("exchange", pa.binary()),
        ("routing_key", pa.binary()),
        ("redelivered", pa.bool_()),
        ("received", pa.timestamp("us", "UTC")),
        ("header", pa.binary()),
        ("body", pa.binary()),
    ]
)


class Head(NamedTuple):
    """All that has to be known without the segments before this one."""

    id: bytes
    next: int
    committed: int
    queue: str
    ids: Sequence[bytes]

    def encode(self) -> bytes:
        queue = self.queue.encode()
        start = _HEAD.pack(HEAD, self.id, self.next, self.committed, len(queue))
        return b"".join([start, queue, *(bytes((len(each),)) + each for each in self.ids)])


class Rows(NamedTuple):
    """Messages with consecutive offsets."""

    offset: int
    batch: pa.RecordBatch

    def encode(self) -> bytes:
        start = _ROWS.pack(ROWS, self.offset, self.batch.num_rows)
        return b"".join((start, self.batch.serialize()))


class Committed(NamedTuple):
    """Whoever reads needs nothing before this offset any more."""

    offset: int

    def encode(self) -> bytes:
        return _COMMITTED.pack(COMMITTED, self.offset)


Entry = Head | Rows | Committed


def decode(payload: bytes) -> Entry:
    match payload[0]:
        case 1:
            _, name, following, committed, size = _HEAD.unpack_from(payload)
            at = _HEAD.size + size
            queue = payload[_HEAD.size : at].decode()
            return Head(name, following, committed, queue, list(_ids(payload, at)))
        case 2:
            _, offset, _ = _ROWS.unpack_from(payload)
            return Rows(offset, pa.ipc.read_record_batch(payload[_ROWS.size :], SCHEMA))
        case 3:
            return Committed(_COMMITTED.unpack(payload)[1])
        case kind:
            raise ValueError(f"a record of kind {kind} is not known here")


def _ids(payload: bytes, at: int) -> Iterator[bytes]:
    while at < len(payload):
        start = at + 1
        at = start + payload[at]
        yield payload[start:at]


def as_batch(deliveries: Sequence[Delivery], received: int) -> pa.RecordBatch:
    """As they came, at the time `received`, in microseconds since 1970."""
    sources = [each.source for each in deliveries]
    arrays = [
        _binary([_octets(each.exchange) for each in sources]),
        _binary([_octets(each.routing_key) for each in sources]),
        _booleans([each.redelivered for each in sources]),
        _of(SCHEMA.field("received").type, len(sources), _INSTANT.pack(received) * len(sources)),
        _binary([each.header for each in deliveries]),
        _binary([each.body for each in deliveries]),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# `pa.array` of a list takes as long, but imports pandas when it is first called: 0.2 s in which nothing comes,
# at the start of each query.


def _binary(values: Sequence[bytes]) -> pa.Array:
    ends = array("i", accumulate(map(len, values), initial=0))
    return _of(pa.binary(), len(values), ends, b"".join(values))


def _booleans(values: Sequence[bool]) -> pa.Array:
    bits = int("0" + "".join(["1" if each else "0" for each in reversed(values)]), 2)
    return _of(pa.bool_(), len(values), bits.to_bytes(-(-len(values) // 8), "little"))


def _of(kind: pa.DataType, rows: int, *buffers: bytes | array[int]) -> pa.Array:
    """None of them is null."""
    return pa.Array.from_buffers(kind, rows, [None, *map(pa.py_buffer, buffers)])


@lru_cache(1024)
def _octets(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


class Piece(NamedTuple):
    """Rows [first, end), in the records at [start, stop) of the segment at `base`."""

    base: int
    start: int
    stop: int
    first: int
    end: int


class NotInReach(Exception):
    """Whoever is to read the spool does not see it."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is not there. Executors read the spool: on a cluster its folder must be on storage that "
            "the driver and all workers share; and nobody but the query may remove anything in it."
        )


def read(folder: Path, piece: Piece) -> Iterator[Rows]:
    """Its rows, record by record; what is durable can be read while others are written."""
    path = folder / file_name(piece.base)
    try:
        file = FolderFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
    except FileNotFoundError:
        raise NotInReach(path) from None
    try:
        stop = Stop(0)

        def payloads() -> Iterator[tuple[int, bytes]]:
            nonlocal stop
            base, start, until = piece.base, piece.start, piece.stop
            stop = yield from walk(
                file.read, base, start - base, until - base, until - base, groups=False
            )

        for _, payload in payloads():
            if payload[0] == ROWS:
                entry = decode(payload)
                assert isinstance(entry, Rows)
                yield _within(entry, piece)
        if stop.damage is not None:
            raise Corrupt(path, piece.base + stop.at, stop.damage)
    finally:
        file.close()


def _within(rows: Rows, piece: Piece) -> Rows:
    skipped = max(piece.first - rows.offset, 0)
    count = min(piece.end - rows.offset, rows.batch.num_rows) - skipped
    return Rows(rows.offset + skipped, rows.batch.slice(skipped, count))
