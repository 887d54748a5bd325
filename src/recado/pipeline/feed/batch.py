"""A feed as a table: the rows that its archive has when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from recado.feeds.archive.following import Follower

from .choosing import check_feed, end_of, start_of
from .offsets import Part, Span, parts
from .options import Reading
from .reading import rows

TASK_ROWS = 100_000
"""A task reads about so many rows: two row groups of an archive's file."""


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
        planned = parts(follower, span, options.least_partitions, TASK_ROWS)
        # Spark makes one partition of None where there are none.
        return [FeedPartition(part) for part in planned or [Part(span, follower.stretch(0, 0))]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FeedPartition)
        return rows(self._options.path, partition.part, self._columns, self._options.selector)
