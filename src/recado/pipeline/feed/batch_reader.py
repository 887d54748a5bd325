"""Read a feed as a table: the rows that its archive has when the query is planned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from recado.feeds.archive.follower import ArchiveFollower

from .bounds import check_feed, resolve_end, resolve_start
from .options import FeedReadOptions
from .position import ReadTask, RowRange, split_range
from .row_reader import freeze_gc, read_rows

TASK_ROW_COUNT_MAX: Final = 250_000
"""Rows per task at most: five row groups of an archive's file. Starting and ending a task is expensive:
a stream reads 2.0 M rows/s in tasks of 83,000 rows, and 2.3 M in tasks of this size.
"""
TASK_ROW_COUNT_MIN: Final = 25_000
"""Rows per task at least, unless `minPartitions` asks for more tasks."""


def count_tasks(rows: int, min_tasks: int, cores: int = os.cpu_count() or 1) -> int:
    """Return the number of tasks that keeps all cores busy until the end.

    Spark does not tell a source how many cores the cluster has; the cores of the driver's machine are the
    best guess.
    """
    needed = -(-rows // TASK_ROW_COUNT_MAX)
    even = -(-needed // cores) * cores
    return max(needed, min_tasks, min(even, rows // TASK_ROW_COUNT_MIN))


class FeedPartition(InputPartition):
    def __init__(self, part: ReadTask) -> None:
        super().__init__(part)
        self.task = part


class FeedBatchReader(DataSourceReader):
    def __init__(self, options: FeedReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        options = self._options
        archive = ArchiveFollower(options.path)
        check_feed(archive, options)
        start = resolve_start(archive, options, default="earliest")
        stop = resolve_end(archive, options)
        span = RowRange(start, max(start, stop))
        count = count_tasks(span.stop - span.start, options.min_partitions)
        planned = split_range(archive, span, count)
        # For an empty list, Spark would call read(None). So without rows there is one task, for no rows.
        return [
            FeedPartition(part)
            for part in planned or [ReadTask(span, archive.journal_extent(0, 0))]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FeedPartition)
        freeze_gc()
        return read_rows(self._options.path, partition.task, self._columns, self._options.selector)
