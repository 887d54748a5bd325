"""Sealing: from the records of the journal to Parquet files, and from small files to larger ones.

A file has rows of one day, in order of offsets. Neither takes more memory than a few row groups, each of
50,000 rows or 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from . import files
from .batches import Keys, keys_of
from .columns import GROUP_BYTES, GROUP_ROWS, INDEXED, OF_BATCH, Place, Scanned, groups, table_of
from .layout import Tree, data_folder, date_of, file_name
from .manifest import DataFile
from .records import StoredBatch

Span = tuple[int, int]
"""The least and the greatest."""
Spans = dict[str, Span]
"""Of each publisher the first and the last sequence."""

_NOTHING: Final[Span] = (1 << 63, -1 << 63)


class _Group(NamedTuple):
    """A row group, and when its rows were stored."""

    table: pa.RecordBatch
    stored: Span


def seal(
    tree: Tree, place: Place, batches: Iterable[StoredBatch], generation: int, most_rows: int
) -> list[DataFile]:
    """Write consecutive batches to files of about so many rows. When this returns they are durable."""
    made = []
    for (date, _), of_day in groupby(batches, key=_Runs()):
        rows = (_Group(table_of(group, place), _times(group)) for group in groups(of_day))
        for first in rows:
            some = chain([first], _take(rows, most_rows - first.table.num_rows))
            notes = _Notes(first.table.column("offset")[0].as_py())
            made.append(_write(tree, date, generation, notes, notes.taken(some)))
    return made


def _times(group: Sequence[Scanned]) -> Span:
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
    """What the manifest says of a file, gathered while its rows pass."""

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.stored = self.timestamps = _NOTHING
        self.publishers: Spans = {}

    def add(self, rows: int, stored: Span, timestamps: Span, publishers: Spans) -> None:
        self.end += rows
        self.stored = _wider(self.stored, stored)
        self.timestamps = _wider(self.timestamps, timestamps)
        for publisher, span in publishers.items():
            self.publishers[publisher] = _wider(self.publishers.get(publisher, _NOTHING), span)

    def taken(self, rows: Iterable[_Group]) -> Iterator[pa.Table]:
        for table, stored in rows:
            self.add(table.num_rows, stored, _extremes(table), spans_of(keys_of(table)))
            yield pa.Table.from_batches([table])


def _write(
    tree: Tree, date: str, generation: int, notes: _Notes, tables: Iterable[pa.Table]
) -> DataFile:
    """When this returns the file is durable."""
    folder, name = data_folder(date), file_name(notes.first, generation)
    written = files.write(tree.disk(folder), name, INDEXED, tables)
    return DataFile(
        *(f"{folder}/{name}", date, notes.first, notes.end, *written),
        *(notes.stored, notes.timestamps, notes.publishers),
    )


def _extremes(table: pa.RecordBatch) -> Span:
    times = table.column("timestamp").cast(pa.int64()).to_numpy()
    return int(times.min()), int(times.max())


def _wider(one: Span, other: Span) -> Span:
    return min(one[0], other[0]), max(one[1], other[1])


def spans_of(keys: Keys) -> Spans:
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


def compactable(made: Sequence[DataFile], most_rows: int) -> list[list[DataFile]]:
    """Files of a day that follow each other and together have no more rows than that; two at least."""
    groups: list[list[DataFile]] = []
    for file in made:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and (last.date, last.end) == (file.date, file.first)
            and file.end - groups[-1][0].first <= most_rows
        ):
            groups[-1].append(file)
        else:
            groups.append([file])
    return [group for group in groups if len(group) > 1]


def merge(tree: Tree, parts: Sequence[DataFile], generation: int) -> DataFile:
    """The rows of consecutive files of a day in one. When this returns it is durable."""
    notes = _Notes(parts[0].first)
    for part in parts:
        notes.add(part.rows, part.stored, part.timestamps, part.publishers)
    return _write(tree, parts[0].date, generation, notes, _regrouped(tree, parts))


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
