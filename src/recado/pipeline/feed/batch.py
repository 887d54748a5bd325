"""A feed as a table: the rows that its archive has when the query is planned."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from recado.feeds.archive.following import Follower

from .choosing import check_feed, end_of, start_of
from .offsets import Part, Span, parts
from .options import Reading
from .reading import rows, spare_the_collector

TASK_ROWS: Final = 250_000
"""A task reads no more rows than these, five row groups of an archive's file. There is so much to beginning and
ending one that a stream has 2.0 M rows/s in tasks of 83,000 rows, and 2.3 M in these."""
LEAST_ROWS: Final = 25_000
"""Nor fewer than these, if nobody asked for it."""


def task_count(rows: int, least: int, cores: int = os.cpu_count() or 1) -> int:
    """In how many tasks rows are read: as many as keep all cores busy up to the end.

    Spark does not tell a source how many cores it has; where the driver runs there are often as many.
    """
    needed = -(-rows // TASK_ROWS)
    even = -(-needed // cores) * cores
    return max(needed, least, min(even, rows // LEAST_ROWS))


class FeedPartition(InputPartition):
    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


class FeedReader(DataSourceReader):
    def __init__(self, options: Reading, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        options = self._options
        follower = Follower(options.path)
        check_feed(follower, options)
        start = start_of(follower, options, otherwise="earliest")
        stop = end_of(follower, options)
        span = Span(start, max(start, stop))
        count = task_count(span.stop - span.start, options.least_partitions)
        planned = parts(follower, span, count)
        # Spark makes one partition of None where there are none.
        return [FeedPartition(part) for part in planned or [Part(span, follower.stretch(0, 0))]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FeedPartition)
        spare_the_collector()
        return rows(self._options.path, partition.part, self._columns, self._options.selector)
