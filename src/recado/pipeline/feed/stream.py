"""A feed as a stream: what its archive has, and what comes.

Spark asks in turn where the stream ends now, which tasks read what is new, and tells when that is done. Nothing
is kept here that a restart would miss: places are in Spark's checkpoint, rows in the archive.
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

from recado.feeds.archive.following import Follower

from .batch import FeedPartition, task_count
from .choosing import check_feed, start_of
from .offsets import Place, beginning, between, parts, place_after, place_at
from .options import Reading
from .reading import rows, spare_the_collector

log = logging.getLogger("recado.pipeline")

Noted = dict[str, Any]


class FeedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One is in the driver's keeping, and copies of it are with the tasks, which only `read`."""

    def __init__(self, options: Reading, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._follower: Follower | None = None
        self._initial: Noted | None = None
        self._target: int | None = None
        self._planned = 0
        """Up to where rows are in a batch."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_follower": None}

    def _look(self) -> Follower:
        if self._follower is None:
            self._follower = Follower(self._options.path)
            check_feed(self._follower, self._options)
        else:
            self._follower.look()
        return self._follower

    def initialOffset(self) -> Noted:  # noqa: N802 (Spark's name, and those that follow)
        # Spark asks twice; what came in between would be in no batch if the answer moved.
        if self._initial is None:
            follower = self._look()
            offset = start_of(follower, self._options, otherwise="latest")
            self._initial = place_at(follower, offset).noted()
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._look().end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_rows is not None:
            return ReadMaxRows(options.max_rows)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Noted, limit: ReadLimit) -> Noted:  # noqa: N802
        follower, place = self._look(), Place.of(start)
        begin = beginning(follower, place, fail=self._options.fail_on_data_loss)
        if place.archive == follower.id and begin.start != place.next:
            log.warning(
                "rows of the feed %s are gone: on from offset %d", follower.feed, begin.start
            )
        stop = begin.stop if self._target is None else min(begin.stop, self._target)
        if not isinstance(limit, ReadAllAvailable):
            stop = self._limited(follower, begin.start, stop)
        if stop <= begin.start == place.next and place.archive == follower.id:
            self._planned = place.next
            return start
        self._planned = max(stop, begin.start)
        return place_after(follower, place, begin, self._planned).noted()

    def _limited(self, follower: Follower, start: int, stop: int) -> int:
        options = self._options
        if options.max_rows is not None:
            stop = min(stop, start + options.max_rows)
        if options.max_bytes is not None:
            stop = min(stop, follower.offset_after_bytes(start, options.max_bytes))
        return stop

    def reportLatestOffset(self) -> Noted:  # noqa: N802
        """What is there, for the progress of the query, and how many rows it is behind with this batch."""
        follower = self._look()
        return {
            "archive": follower.id,
            "next": follower.end,
            "lag": follower.end - min(self._planned, follower.end),
        }

    def partitions(self, start: Noted, end: Noted) -> list[InputPartition]:
        follower = self._look()
        span = between(
            follower, Place.of(start), Place.of(end), fail=self._options.fail_on_data_loss
        )
        count = task_count(span.stop - span.start, self._options.least_partitions)
        return [FeedPartition(part) for part in parts(follower, span, count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FeedPartition)
        spare_the_collector()
        return rows(self._options.path, partition.part, self._columns, self._options.selector)
