"""A feed as a stream: each row once, across restarts, limits, data loss and a change of the archive."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.pipeline.feed.options import parse_read_options
from recado.pipeline.feed.stream_reader import FeedStreamReader
from tests.pipeline.making import filled, more, quotes, truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Reader:
    """A query that is started again and again, from its checkpoint, and writes what it reads to files."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.progress: list[dict[str, Any]] = []

    def rows(self, path: Path, **options: object) -> DataFrame:
        reader = self.spark.readStream.format("recado").option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load(str(path)).select("publisher", "sequence", "offset")

    def run(self, path: Path, **options: object) -> None:
        writer = self.rows(path, **options).writeStream.format("parquet")
        query = (
            writer.option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(self.folder / "found"))
        )
        try:
            query.awaitTermination()
        finally:
            self.progress = [json.loads(each.json) for each in query.recentProgress]

    def found(self) -> list[tuple[str, int]]:
        table = pq.read_table(self.folder / "found", columns=["publisher", "sequence"])
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def expected(*paths: Path) -> list[tuple[str, int]]:
    return sorted({(row["publisher"], row["sequence"]) for path in paths for row in truth(path)})


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path) -> Reader:
    return Reader(spark, tmp_path)


def test_each_row_once_over_limits_and_restarts(reader: Reader, tmp_path: Path) -> None:
    path = filled(tmp_path / "a", [[quotes(1, 1, 600)], [quotes(2, 1, 300)]], [quotes(1, 601, 50)])
    reader.run(path, maxRowsPerTrigger=400)
    batches = [each for each in reader.progress if each["numInputRows"]]
    assert [each["numInputRows"] for each in batches] == [400, 400, 150]
    source = batches[0]["sources"][0]
    assert source["endOffset"]["next"] == 400
    assert source["latestOffset"]["next"] == 950
    assert source["latestOffset"]["lag"] == 550
    more(path, [quotes(3, 1, 70)])
    with ArchiveStore(path, "quotes") as store:
        store.seal()
    reader.run(path, maxBytesPerTrigger=2000, minPartitions=2)
    assert len([each for each in reader.progress if each["numInputRows"]]) > 1
    reader.run(path)
    assert not any(each["numInputRows"] for each in reader.progress)
    assert reader.found() == expected(path)


def test_what_was_collected_past_the_checkpoint(reader: Reader, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    path = filled(tmp_path / "a", [[quotes(1, 1, 100)]])
    reader.run(path)
    had = reader.found()
    more(path, [quotes(1, 101, 100)])
    with ArchiveStore(path, "quotes") as store:
        store.seal()
        store.append([quotes(1, 201, 10)])
        store.seal()
        store.apply_retention(RetentionLimits(max_messages=1), grace=0)
        store.apply_retention(grace=0)
        first = store.archive_state().next_offset - 10
    with pytest.raises(
        StreamingQueryException, match=f"from offset 100 to {first - 1} of the feed"
    ):
        reader.run(path)
    assert reader.found() == had
    reader.run(path, failOnDataLoss="false")
    assert reader.found() == sorted([*had, *expected(path)])


def test_it_goes_on_with_another_archive_of_the_feed(reader: Reader, tmp_path: Path) -> None:
    first = filled(tmp_path / "a", [[quotes(1, 1, 60), quotes(2, 1, 40)]], [quotes(1, 61, 5)])
    reader.run(first)
    second = filled(tmp_path / "b", [[quotes(2, 1, 50), quotes(1, 1, 80)]], [quotes(3, 1, 5)])
    reader.run(second, maxRowsPerTrigger=70)
    assert reader.found() == expected(first, second)
    more(second, [quotes(1, 81, 5)])
    reader.run(second)
    assert reader.found() == expected(first, second)


def test_a_live_row_comes_without_being_asked_for_and_latest_is_where_it_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = filled(tmp_path / "a", [], [quotes(1, 1, 10)])
    rows = spark.readStream.format("recado").load(str(path))  # from the latest on, as with Kafka
    query = (
        rows.select("sequence")
        .writeStream.format("memory")
        .queryName("live")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        more(path, [quotes(1, 11, 3)])
        query.processAllAvailable()
        more(path, [quotes(1, 14, 2)])
        query.processAllAvailable()
        found = sorted(row[0] for row in spark.table("live").collect())
    finally:
        query.stop()
    assert found == [11, 12, 13, 14, 15]


def test_an_archive_that_went_back_is_followed_from_its_end(tmp_path: Path) -> None:
    """If it may: rows that come there now are read, though the query was further already."""
    path = filled(tmp_path / "in", [], [quotes(1, 1, 10)])
    reader = FeedStreamReader(
        parse_read_options({"path": str(path), "failOnDataLoss": "false"}), ["offset"]
    )
    start = {**reader.initialOffset(), "next": 25}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["next"] == 10
    assert reader.partitions(start, end) == []
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    more(path, [quotes(1, 11, 5)])
    behind = reader.latestOffset(end, ReadAllAvailable())
    assert behind["next"] == 15
    assert len(reader.partitions(end, behind)) == 1


def test_tasks_get_no_open_archive(tmp_path: Path) -> None:
    """A pickled reader has its options only; tasks open the archive themselves."""
    path = filled(tmp_path / "archive", [[quotes(1, 1, 10)]])
    reader = FeedStreamReader(
        parse_read_options({"path": str(path)}, is_streaming=True), ["offset"]
    )
    reader.initialOffset()
    assert reader._archive is not None
    assert pickle.loads(pickle.dumps(reader))._archive is None
