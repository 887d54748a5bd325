"""The entries of an archive as bytes. Each is the payload of one record of the journal; those of an append are a group.

An entry is a batch of messages, or an `ArchiveRecord`: a view, an acknowledgement, or another fact to keep.

    batch   | 1 u8 | stored i64 | offset u64 | rows u32 | publisher 16 | first u64 | view u64, 16 | block |
    record  | 2 u8 | stored i64 | offset u64 | MessagePack |

Little-endian. `stored` is the archive's time in µs. `offset` is the offset of the batch's first message; for a
record, the offset of the next message that is stored. A view is its number and its coordinator. A block is
written as received, without work per message.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ..block import Block, MalformedDataError
from ..boundary import ArchiveEntry, MessageBatch
from ..views import ArchiveRecord, ViewId
from ..wire import decode_record, encode_record

BATCH_TYPE, RECORD_TYPE = 1, 2
_RECORD_LAYOUT: Final = Struct("<BqQ")
_BATCH_LAYOUT: Final = Struct("<BqQI16sQQ16s")
_pack_batch = _BATCH_LAYOUT.pack


class StoredBatch(NamedTuple):
    stored_us: int
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

    def as_batch(self) -> MessageBatch:
        return MessageBatch(
            self.publisher, self.first, Block.parse(self.block, self.rows), self.view
        )


class StoredRecord(NamedTuple):
    stored_us: int
    offset: int
    record: ArchiveRecord


StoredEntry = StoredBatch | StoredRecord


def encode(entry: ArchiveEntry, offset: int, stored_us: int) -> bytes:
    if isinstance(entry, MessageBatch):
        view, block = entry.view, entry.block
        start = _pack_batch(
            *(BATCH_TYPE, stored_us, offset, block.count, entry.publisher, entry.first),
            *(view.number, view.coordinator),
        )
        return start + block.data
    return _RECORD_LAYOUT.pack(RECORD_TYPE, stored_us, offset) + encode_record(entry)


def decode(payload: bytes) -> StoredEntry:
    """Decode an entry; raise `MalformedDataError` if it is invalid."""
    size = len(payload)
    kind = payload[0] if size else 0
    if kind == BATCH_TYPE and size > _BATCH_LAYOUT.size:
        _, stored, offset, count, publisher, first, number, coordinator = _BATCH_LAYOUT.unpack_from(
            payload
        )
        view = ViewId(number, coordinator)
        return StoredBatch(
            stored, offset, count, publisher, first, view, payload[_BATCH_LAYOUT.size :]
        )
    if kind == RECORD_TYPE and size > _RECORD_LAYOUT.size:
        _, stored, offset = _RECORD_LAYOUT.unpack_from(payload)
        return StoredRecord(stored, offset, decode_record(payload[_RECORD_LAYOUT.size :]))
    raise MalformedDataError(f"unknown payload of type {kind} and {size} bytes")
