"""Sealing: writes journal records to Parquet files, and merges small files.

A file has rows of one day, in order of offsets. Memory is bounded by a few row groups, each of up to 50,000
rows or 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from . import files
from .batches import MessageKeys, read_keys
from .columns import (
    BATCH_COLUMNS,
    DICTIONARY_SCHEMA,
    MAX_GROUP_BYTES,
    MAX_GROUP_ROWS,
    RowConstants,
    ScannedBatch,
    build_table,
    group_batches,
)
from .layout import ArchiveTree, data_folder, file_name, format_date
from .manifest import DataFile
from .records import StoredBatch

MinMax = tuple[int, int]
"""Minimum and maximum."""
PublisherRanges = dict[str, MinMax]
"""First and last sequence of each publisher."""

_EMPTY_RANGE: Final[MinMax] = (1 << 63, -1 << 63)


class _RowGroup(NamedTuple):
    """A row group, with the range of times at which its rows were stored."""

    table: pa.RecordBatch
    stored_us: MinMax


def write_batches(
    tree: ArchiveTree,
    constants: RowConstants,
    batches: Iterable[StoredBatch],
    generation: int,
    max_rows: int,
) -> list[DataFile]:
    """Write consecutive batches to files of about `max_rows` rows. When this returns they are durable."""
    files_ = []
    for (date, _), of_day in groupby(batches, key=_FileKey()):
        rows = (
            _RowGroup(build_table(group, constants), _stored_range(group))
            for group in group_batches(of_day)
        )
        for first in rows:
            some = chain([first], _take_groups(rows, max_rows - first.table.num_rows))
            stats = _FileStats(first.table.column("offset")[0].as_py())
            files_.append(_write_file(tree, date, generation, stats, stats.track(some)))
    return files_


def _stored_range(group: Sequence[ScannedBatch]) -> MinMax:
    times = [scanned.batch.stored_us for scanned in group]
    return min(times), max(times)


class _FileKey:
    """groupby key: batches of one day, without a gap between their offsets, go into one file."""

    def __init__(self) -> None:
        self._first = self._end = 0

    def __call__(self, batch: StoredBatch) -> tuple[str, int]:
        if batch.offset != self._end:
            self._first = batch.offset
        self._end = batch.end
        return format_date(batch.stored_us), self._first


def _take_groups(rows: Iterator[_RowGroup], remaining: int) -> Iterator[_RowGroup]:
    while remaining > 0 and (group := next(rows, None)) is not None:
        remaining -= group.table.num_rows
        yield group


class _FileStats:
    """Statistics for the manifest, collected while rows are written."""

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.stored = self.timestamps = _EMPTY_RANGE
        self.publishers: PublisherRanges = {}

    def add(
        self, rows: int, stored: MinMax, timestamps: MinMax, publishers: PublisherRanges
    ) -> None:
        self.end += rows
        self.stored = _widen(self.stored, stored)
        self.timestamps = _widen(self.timestamps, timestamps)
        for publisher, span in publishers.items():
            self.publishers[publisher] = _widen(self.publishers.get(publisher, _EMPTY_RANGE), span)

    def track(self, rows: Iterable[_RowGroup]) -> Iterator[pa.Table]:
        for table, stored in rows:
            self.add(
                table.num_rows, stored, _timestamp_range(table), publisher_ranges(read_keys(table))
            )
            yield pa.Table.from_batches([table])


def _write_file(
    tree: ArchiveTree, date: str, generation: int, stats: _FileStats, tables: Iterable[pa.Table]
) -> DataFile:
    """Write a file; durable when this returns."""
    folder, name = data_folder(date), file_name(stats.first, generation)
    written = files.write_parquet(tree.disk(folder), name, DICTIONARY_SCHEMA, tables)
    return DataFile(
        *(f"{folder}/{name}", date, stats.first, stats.end, *written),
        *(stats.stored, stats.timestamps, stats.publishers),
    )


def _timestamp_range(table: pa.RecordBatch) -> MinMax:
    times = table.column("timestamp").cast(pa.int64()).to_numpy()
    return int(times.min()), int(times.max())


def _widen(one: MinMax, other: MinMax) -> MinMax:
    return min(one[0], other[0]), max(one[1], other[1])


def publisher_ranges(keys: MessageKeys) -> PublisherRanges:
    count = len(keys.publishers)
    firsts = np.full(count, np.iinfo(np.int64).max)
    lasts = np.zeros(count, np.int64)
    np.minimum.at(firsts, keys.publisher, keys.sequence)
    np.maximum.at(lasts, keys.publisher, keys.sequence)
    names = (publisher.hex() for publisher in keys.publishers)
    found = zip(names, firsts.tolist(), lasts.tolist(), strict=True)
    return {name: (first, last) for name, first, last in found if last}


# --- merging -------------------------------------------------------------------------------------


def count_mergeable(files_: Sequence[DataFile], max_rows: int) -> int:
    """Return how many of the last files to merge: files of one day that have no more rows than all after them.
    So a feed with little traffic has few files, too, and a row is rewritten only as often as the logarithm of
    the number of seals."""
    count, rows = 1, files_[-1].rows
    for before in reversed(files_[:-1]):
        next_file = files_[-count]
        is_adjacent = before.date == next_file.date and before.end == next_file.first
        if not is_adjacent or before.rows > rows or before.rows + rows > max_rows:
            break
        count += 1
        rows += before.rows
    return count if count > 1 else 0


def find_compactable(files_: Sequence[DataFile], max_rows: int) -> list[list[DataFile]]:
    """Return groups of at least two consecutive files of a day with at most `max_rows` rows together."""
    groups: list[list[DataFile]] = []
    for file in files_:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and (last.date, last.end) == (file.date, file.first)
            and file.end - groups[-1][0].first <= max_rows
        ):
            groups[-1].append(file)
        else:
            groups.append([file])
    return [group for group in groups if len(group) > 1]


def merge_files(tree: ArchiveTree, parts: Sequence[DataFile], generation: int) -> DataFile:
    """Merge consecutive files of a day. When this returns, the new file is durable."""
    stats = _FileStats(parts[0].first)
    for part in parts:
        stats.add(part.rows, part.stored, part.timestamps, part.publishers)
    return _write_file(tree, parts[0].date, generation, stats, _regroup(tree, parts))


def _regroup(tree: ArchiveTree, parts: Sequence[DataFile]) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for part in parts:
        with files.ParquetReader(tree, part, BATCH_COLUMNS) as reader:
            for number in range(len(reader.group_rows)):
                table = reader.read_group(number)
                if group and (
                    rows + table.num_rows > MAX_GROUP_ROWS or size + table.nbytes > MAX_GROUP_BYTES
                ):
                    yield _combine(group)
                    group, rows, size = [], 0, 0
                group.append(table)
                rows += table.num_rows
                size += table.nbytes
    yield _combine(group)


def _combine(group: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(group).unify_dictionaries().cast(DICTIONARY_SCHEMA)
