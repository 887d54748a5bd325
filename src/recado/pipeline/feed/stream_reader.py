"""Read a feed as a stream: the rows of its archive, and new ones as they are stored.

Spark repeatedly asks for the latest offset, plans tasks for the new rows, and commits. This reader stores
nothing that a restart would need: positions are in Spark's checkpoint, rows in the archive.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from recado.feeds.archive.follower import ArchiveFollower

from .batch_reader import FeedPartition, count_tasks
from .bounds import check_feed, resolve_start
from .options import FeedReadOptions
from .position import (
    FeedPosition,
    position_after,
    position_at,
    rows_between,
    rows_from,
    split_range,
)
from .row_reader import freeze_gc, read_rows

log = logging.getLogger("recado.pipeline")

PositionJson = dict[str, Any]


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance is in the driver; tasks get copies, on which Spark calls only `read`."""

    def __init__(self, options: FeedReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._archive: ArchiveFollower | None = None
        self._initial: PositionJson | None = None
        self._available_now_end: int | None = None
        self._planned_end = 0
        """The end offset of the last batch that Spark has planned."""

    def __getstate__(self) -> dict[str, Any]:  # for tasks, which open the archive themselves
        return {**self.__dict__, "_archive": None}

    def _refresh_archive(self) -> ArchiveFollower:
        if self._archive is None:
            self._archive = ArchiveFollower(self._options.path)
            check_feed(self._archive, self._options)
        else:
            self._archive.refresh()
        return self._archive

    def initialOffset(self) -> PositionJson:  # noqa: N802 (Spark's name, and those that follow)
        # Spark asks twice; rows stored in between would be lost if the answer changed.
        if self._initial is None:
            archive = self._refresh_archive()
            offset = resolve_start(archive, self._options, default="latest")
            self._initial = position_at(archive, offset).to_json()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now_end = self._refresh_archive().end_offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: PositionJson, limit: ReadLimit) -> PositionJson:  # noqa: N802
        archive, position = self._refresh_archive(), FeedPosition.from_json(start)
        available = rows_from(archive, position, fail_on_data_loss=self._options.fail_on_data_loss)
        if position.archive == archive.id and available.start != position.next:
            log.warning(
                "rows were deleted before they were read, continuing (feed=%s offset=%d)",
                archive.feed,
                available.start,
            )
        stop = available.stop
        if self._available_now_end is not None:
            stop = min(stop, self._available_now_end)
        if not isinstance(limit, ReadAllAvailable):
            stop = self._apply_limits(archive, available.start, stop)
        # No new rows, and no deleted ones to step over: an equal offset, so Spark plans no batch.
        if stop <= available.start == position.next and position.archive == archive.id:
            self._planned_end = position.next
            return start
        self._planned_end = max(stop, available.start)
        return position_after(archive, position, available, self._planned_end).to_json()

    def _apply_limits(self, archive: ArchiveFollower, start: int, stop: int) -> int:
        options = self._options
        if options.max_rows is not None:
            stop = min(stop, start + options.max_rows)
        if options.max_bytes is not None:
            stop = min(stop, archive.offset_after_bytes(start, options.max_bytes))
        return stop

    def reportLatestOffset(self) -> PositionJson:  # noqa: N802
        """Return the latest offset for the progress of the query, and the lag after this batch."""
        archive = self._refresh_archive()
        return {
            "archive": archive.id,
            "next": archive.end_offset,
            "lag": archive.end_offset - min(self._planned_end, archive.end_offset),
        }

    def partitions(self, start: PositionJson, end: PositionJson) -> list[InputPartition]:
        archive = self._refresh_archive()
        span = rows_between(
            archive,
            FeedPosition.from_json(start),
            FeedPosition.from_json(end),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        count = count_tasks(span.stop - span.start, self._options.min_partitions)
        return [FeedPartition(part) for part in split_range(archive, span, count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FeedPartition)
        freeze_gc()
        return read_rows(self._options.path, partition.task, self._columns, self._options.selector)
