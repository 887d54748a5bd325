"""Sealing: from the records of the journal to Parquet files, and from small files to larger ones.

A file has rows of one day, in order of offsets. Neither takes more memory than a few row groups, each of
50,000 rows or 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from . import files
from .batches import Keys, keys_of
from .columns import GROUP_BYTES, GROUP_ROWS, INDEXED, OF_BATCH, Place, Scanned, groups, table_of
from .layout import Tree, data_folder, date_of, file_name
from .manifest import DataFile
from .records import StoredBatch

Spans = dict[str, tuple[int, int]]


class _Group(NamedTuple):
    """A row group, and when its rows were stored."""

    table: pa.RecordBatch
    stored: tuple[int, int]


def seal(
    tree: Tree, place: Place, batches: Iterable[StoredBatch], generation: int, most_rows: int
) -> list[DataFile]:
    """Write consecutive batches to files of about so many rows. When this returns they are durable."""
    made = []
    for (date, _), of_day in groupby(batches, key=_Runs()):
        rows = (_Group(table_of(group, place), _times(group)) for group in groups(of_day))
        for first in rows:
            most = most_rows - first.table.num_rows
            made.append(_write(tree, date, chain([first], _take(rows, most)), generation))
    return made


def _times(group: Sequence[Scanned]) -> tuple[int, int]:
    times = [scanned.batch.stored for scanned in group]
    return min(times), max(times)


class _Runs:
    """Which batches go together into a file: those of one day, without a gap between their offsets."""

    def __init__(self) -> None:
        self._first = self._end = 0

    def __call__(self, batch: StoredBatch) -> tuple[str, int]:
        if batch.offset != self._end:
            self._first = batch.offset
        self._end = batch.end
        return date_of(batch.stored), self._first


def _take(rows: Iterator[_Group], most: int) -> Iterator[_Group]:
    while most > 0 and (group := next(rows, None)) is not None:
        most -= group.table.num_rows
        yield group


class _Notes:
    """What the manifest says of a file, gathered while its groups pass."""

    def __init__(self, first: _Group) -> None:
        self.first = self.end = first.table.column("offset")[0].as_py()
        self.stored = first.stored
        self.timestamps = _extremes(first.table)
        self.publishers: Spans = {}

    def tables(self, rows: Iterable[_Group]) -> Iterator[pa.Table]:
        for table, stored in rows:
            self.end += table.num_rows
            self.stored = _wider(self.stored, stored)
            self.timestamps = _wider(self.timestamps, _extremes(table))
            join_spans(self.publishers, spans_of(keys_of(table)))
            yield pa.Table.from_batches([table])


def _write(tree: Tree, date: str, rows: Iterator[_Group], generation: int) -> DataFile:
    first = next(rows)
    notes = _Notes(first)
    folder, name = data_folder(date), file_name(notes.first, generation)
    written = files.write(tree.disk(folder), name, INDEXED, notes.tables(chain([first], rows)))
    return DataFile(
        path=f"{folder}/{name}",
        date=date,
        first=notes.first,
        end=notes.end,
        bytes=written.bytes,
        crc32=written.crc32,
        footer=written.footer,
        stored=notes.stored,
        timestamps=notes.timestamps,
        publishers=notes.publishers,
    )


def _extremes(table: pa.RecordBatch) -> tuple[int, int]:
    times = table.column("timestamp").cast(pa.int64()).to_numpy()
    return int(times.min()), int(times.max())


def _wider(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])


def join_spans(spans: Spans, others: Spans) -> None:
    for publisher, span in others.items():
        spans[publisher] = _wider(spans.get(publisher, span), span)


def spans_of(keys: Keys) -> Spans:
    """The first and the last sequence of each publisher."""
    count = len(keys.publishers)
    firsts = np.full(count, np.iinfo(np.int64).max)
    lasts = np.zeros(count, np.int64)
    np.minimum.at(firsts, keys.publisher, keys.sequence)
    np.maximum.at(lasts, keys.publisher, keys.sequence)
    names = (publisher.hex() for publisher in keys.publishers)
    found = zip(names, firsts.tolist(), lasts.tolist(), strict=True)
    return {name: (first, last) for name, first, last in found if last}


# --- merging -------------------------------------------------------------------------------------


def mergeable(made: Sequence[DataFile], most_rows: int) -> int:
    """How many of the last files are to become one: those of a day that have no more rows than all behind
    them. So a feed with little traffic has few files, too, and a row is written again only as often as the
    logarithm of the number of seals."""
    count, rows = 1, made[-1].rows
    for before in reversed(made[:-1]):
        behind = made[-count]
        together = before.date == behind.date and before.end == behind.first
        if not together or before.rows > rows or before.rows + rows > most_rows:
            break
        count += 1
        rows += before.rows
    return count if count > 1 else 0


def merge(tree: Tree, parts: Sequence[DataFile], generation: int) -> DataFile:
    """The rows of consecutive files of a day in one. When this returns it is durable."""
    first, last = parts[0], parts[-1]
    folder, name = data_folder(first.date), file_name(first.first, generation)
    written = files.write(tree.disk(folder), name, INDEXED, _regrouped(tree, parts))
    publishers: Spans = {}
    stored, timestamps = first.stored, first.timestamps
    for part in parts:
        join_spans(publishers, part.publishers)
        stored = _wider(stored, part.stored)
        timestamps = _wider(timestamps, part.timestamps)
    return DataFile(
        path=f"{folder}/{name}",
        date=first.date,
        first=first.first,
        end=last.end,
        bytes=written.bytes,
        crc32=written.crc32,
        footer=written.footer,
        stored=stored,
        timestamps=timestamps,
        publishers=publishers,
    )


def _regrouped(tree: Tree, parts: Sequence[DataFile]) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for part in parts:
        with files.ParquetReader(tree, part, OF_BATCH) as reader:
            for number in range(len(reader.group_rows)):
                table = reader.group(number)
                if group and (
                    rows + table.num_rows > GROUP_ROWS or size + table.nbytes > GROUP_BYTES
                ):
                    yield _one(group)
                    group, rows, size = [], 0, 0
                group.append(table)
                rows += table.num_rows
                size += table.nbytes
    yield _one(group)


def _one(group: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(group).unify_dictionaries().cast(INDEXED)
