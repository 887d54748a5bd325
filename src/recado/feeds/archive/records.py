"""What an archive writes to its journal: a payload for each entry, one group for what is appended together.

    batch   | 1 u8 | stored i64 | offset u64 | rows u32 | publisher 16 | first u64 | view u64, 16 | block |
    record  | 2 u8 | stored i64 | offset u64 | MessagePack |

Little-endian. `stored` is the archive's time in µs, `offset` that of the batch's first message, or of the
next; a view is its number and who made it. A block is written as it came; nothing is done for a message by
itself. A record is what the core keeps beside messages: a view, an acknowledgement, and the like.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ..block import Block, Malformed
from ..boundary import Batch, Entry
from ..views import Record, ViewId
from ..wire import record_from_bytes, record_to_bytes

BATCH, RECORD = 1, 2
_START: Final = Struct("<BqQ")
_BATCH: Final = Struct("<BqQI16sQQ16s")
_pack = _BATCH.pack


class StoredBatch(NamedTuple):
    stored: int
    offset: int
    rows: int
    publisher: bytes
    first: int
    view: ViewId
    block: bytes

    @property
    def last(self) -> int:
        return self.first + self.rows - 1

    @property
    def end(self) -> int:
        return self.offset + self.rows

    def as_batch(self) -> Batch:
        return Batch(self.publisher, self.first, Block.parse(self.block, self.rows), self.view)


class StoredRecord(NamedTuple):
    stored: int
    offset: int
    record: Record


Stored = StoredBatch | StoredRecord


def encode(entry: Entry, offset: int, stored: int) -> bytes:
    if isinstance(entry, Batch):
        view, block = entry.view, entry.block
        start = _pack(
            *(BATCH, stored, offset, block.count, entry.publisher, entry.first),
            *(view.number, view.coordinator),
        )
        return start + block.data
    return _START.pack(RECORD, stored, offset) + record_to_bytes(entry)


def decode(payload: bytes) -> Stored:
    """Raises Malformed."""
    size = len(payload)
    kind = payload[0] if size else 0
    if kind == BATCH and size > _BATCH.size:
        _, stored, offset, count, publisher, first, number, coordinator = _BATCH.unpack_from(
            payload
        )
        view = ViewId(number, coordinator)
        return StoredBatch(stored, offset, count, publisher, first, view, payload[_BATCH.size :])
    if kind == RECORD and size > _START.size:
        _, stored, offset = _START.unpack_from(payload)
        return StoredRecord(stored, offset, record_from_bytes(payload[_START.size :]))
    raise Malformed(f"a payload of kind {kind} and {size} bytes is not known here")
