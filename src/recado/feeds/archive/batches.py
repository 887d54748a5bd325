"""Batches from the columns of a table: consecutive messages of one publisher in one view become one again.

They need not be the batches that were stored: what was stored as several may come back as one, and the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..block import EACH, EMPTY, SAME, Block, Column
from ..boundary import Batch
from ..views import ViewId
from .columns import OF_BLOCK, Indices, view_of

RUN_ROWS: Final = 8_192
RUN_BYTES: Final = 1 << 20

Mask = npt.NDArray[np.bool_]


class Keys(NamedTuple):
    """Who wrote the rows of a table, as numbers that can be compared."""

    publishers: list[bytes]
    publisher: Indices
    views: list[ViewId]
    view: Indices
    sequence: Indices


def keys_of(table: pa.RecordBatch) -> Keys:
    publishers, publisher = _decoded(table.column("publisher"))
    views, view = _decoded(table.column("view"))
    return Keys(
        [bytes.fromhex(text) for text in publishers],
        publisher,
        [view_of(text) for text in views],
        view,
        table.column("sequence").to_numpy(),
    )


def _decoded(array: pa.Array) -> tuple[list[str], Indices]:
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    return array.dictionary.to_pylist(), array.indices.to_numpy().astype(np.int64)


def batches_of(table: pa.RecordBatch, keys: Keys, wanted: Mask) -> Iterator[tuple[int, Batch]]:
    """The wanted rows in order, consecutive ones together, each batch with the row behind it."""
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
    columns = [_Values.of(table.column(name)) for name in OF_BLOCK]
    timestamps = table.column("timestamp").cast(pa.int64()).to_numpy()
    weights = sum((column.ends for column in columns), np.zeros(table.num_rows + 1, np.int64))
    for begin, count in zip(begins, np.diff(np.append(begins, len(rows))), strict=True):
        start = int(rows[begin])
        end = start + int(count)
        while start < end:
            stop = _stop(weights, start, end)
            block = _block(columns, timestamps, start, stop)
            publisher = keys.publishers[keys.publisher[start]]
            view = keys.views[keys.view[start]]
            yield stop, Batch(publisher, int(keys.sequence[start]), block, view)
            start = stop


def _stop(weights: Indices, start: int, end: int) -> int:
    """Where a batch ends that is neither too many rows nor too many bytes, but one row at least."""
    end = min(end, start + RUN_ROWS)
    if weights[end] - weights[start] <= RUN_BYTES:
        return end
    fits = int(np.searchsorted(weights, weights[start] + RUN_BYTES, "right")) - 1
    return min(end, max(fits, start + 1))


class _Values(NamedTuple):
    ends: Indices
    """Where each value begins, and the last one ends."""
    data: memoryview

    @classmethod
    def of(cls, array: pa.Array) -> _Values:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        _, ends, data = array.buffers()
        numbers = np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset)
        return cls(numbers.astype(np.int64), memoryview(data if data is not None else b""))

    def column(self, start: int, stop: int) -> Column:
        ends = self.ends[start : stop + 1]
        data = bytes(self.data[int(ends[0]) : int(ends[-1])])
        if not data:
            return Column(EMPTY, (), b"")
        sizes = np.diff(ends)
        size = int(sizes[0])
        if (sizes == size).all() and data == data[:size] * len(sizes):
            return Column(SAME, (), data[:size])
        return Column(EACH, tuple(sizes.tolist()), data)


def _block(columns: Sequence[_Values], timestamps: Indices, start: int, stop: int) -> Block:
    count = stop - start
    parts = [timestamps[start:stop].tobytes()]
    made = []
    for values in columns:
        column = values.column(start, stop)
        parts.append(bytes((column.mode,)))
        if column.mode == SAME:
            parts.append(pack("<I", len(column.data)))
        elif column.mode == EACH:
            parts.append(pack(f"<{count}I", *column.sizes))
        parts.append(column.data)
        made.append(column)
    return Block(count, b"".join(parts), tuple(made))
