"""Rebuilds batches from the columns of a table: consecutive messages of one publisher in one view form a batch.

The batches may differ from those that were stored: several may be returned as one, and one as several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..block import ALL_EMPTY_CODE, CONSTANT_CODE, VARYING_CODE, Block, Column
from ..boundary import MessageBatch
from ..views import ViewId
from .columns import BLOCK_COLUMNS, Indices, parse_view_id

MAX_BATCH_ROWS: Final = 8_192
MAX_BATCH_BYTES: Final = 1 << 20

Mask = npt.NDArray[np.bool_]


class MessageKeys(NamedTuple):
    """The columns that identify messages, dictionary-encoded for fast comparison."""

    publishers: list[bytes]
    publisher: Indices
    views: list[ViewId]
    view: Indices
    sequence: Indices


def read_keys(table: pa.RecordBatch) -> MessageKeys:
    publishers, publisher = _split_dictionary(table.column("publisher"))
    views, view = _split_dictionary(table.column("view"))
    return MessageKeys(
        [bytes.fromhex(text) for text in publishers],
        publisher,
        [parse_view_id(text) for text in views],
        view,
        table.column("sequence").to_numpy(),
    )


def _split_dictionary(array: pa.Array) -> tuple[list[str], Indices]:
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.dictionary.to_pylist(), array.indices.to_numpy().astype(np.int64)


def build_batches(
    table: pa.RecordBatch, keys: MessageKeys, wanted: Mask
) -> Iterator[tuple[int, MessageBatch]]:
    """Yield the selected rows as batches, each with the index of the row after it."""
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return
    same = (
        (np.diff(rows) == 1)
        & (np.diff(keys.publisher[rows]) == 0)
        & (np.diff(keys.view[rows]) == 0)
        & (np.diff(keys.sequence[rows]) == 1)
    )
    begins = np.flatnonzero(np.concatenate(([True], ~same)))
    columns = [_ColumnValues.from_array(table.column(name)) for name in BLOCK_COLUMNS]
    timestamps = table.column("timestamp").cast(pa.int64()).to_numpy()
    # The offset of each row in bytes, in all columns together.
    byte_offsets = sum(
        (column.offsets for column in columns), np.zeros(table.num_rows + 1, np.int64)
    )
    for begin, count in zip(begins, np.diff(np.append(begins, len(rows))), strict=True):
        start = int(rows[begin])
        end = start + int(count)
        while start < end:
            stop = _batch_end(byte_offsets, start, end)
            block = _build_block(columns, timestamps, start, stop)
            publisher = keys.publishers[keys.publisher[start]]
            view = keys.views[keys.view[start]]
            yield stop, MessageBatch(publisher, int(keys.sequence[start]), block, view)
            start = stop


def _batch_end(byte_offsets: Indices, start: int, end: int) -> int:
    """Return where a batch ends: limited in rows and bytes, but at least one row."""
    end = min(end, start + MAX_BATCH_ROWS)
    if byte_offsets[end] - byte_offsets[start] <= MAX_BATCH_BYTES:
        return end
    fits = int(np.searchsorted(byte_offsets, byte_offsets[start] + MAX_BATCH_BYTES, "right")) - 1
    return min(end, max(fits, start + 1))


class _ColumnValues(NamedTuple):
    offsets: Indices
    """The start of each value, and the end of the last one."""
    data: memoryview

    @classmethod
    def from_array(cls, array: pa.Array) -> _ColumnValues:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        _, offsets, data = array.buffers()
        numbers = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
        return cls(numbers.astype(np.int64), memoryview(data if data is not None else b""))

    def column(self, start: int, stop: int) -> Column:
        offsets = self.offsets[start : stop + 1]
        data = bytes(self.data[int(offsets[0]) : int(offsets[-1])])
        if not data:
            return Column(ALL_EMPTY_CODE, (), b"")
        sizes = np.diff(offsets)
        size = int(sizes[0])
        if (sizes == size).all() and data == data[:size] * len(sizes):
            return Column(CONSTANT_CODE, (), data[:size])
        return Column(VARYING_CODE, tuple(sizes.tolist()), data)


def _build_block(
    columns: Sequence[_ColumnValues], timestamps: Indices, start: int, stop: int
) -> Block:
    count = stop - start
    parts = [timestamps[start:stop].tobytes()]
    made = []
    for values in columns:
        column = values.column(start, stop)
        parts.append(bytes((column.mode,)))
        if column.mode == CONSTANT_CODE:
            parts.append(pack("<I", len(column.data)))
        elif column.mode == VARYING_CODE:
            parts.append(pack(f"<{count}I", *column.sizes))
        parts.append(column.data)
        made.append(column)
    return Block(count, b"".join(parts), tuple(made))
