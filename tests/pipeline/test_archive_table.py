"""The history of a feed as a table of Spark, against DuckDB on the same files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

import recado
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.pipeline.options import OptionError
from tests.pipeline.making import filled, more, quotes, truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    days = [[quotes(1, 1, 700), quotes(2, 1, 300)], [quotes(1, 701, 400)]]
    return filled(tmp_path_factory.mktemp("table") / "archive", days, [quotes(3, 1, 20)])


def test_it_says_what_others_say(spark: SparkSession, path: Path) -> None:
    rows = recado.table(spark, "quotes", path=path)
    found = rows.selectExpr("date", "routing_key", "sequence").groupBy("date", "routing_key")
    counted = found.agg({"sequence": "sum"}).collect()
    with Archive.open(path) as archive:
        files = archive.parquet_paths
    asked = duckdb.sql(
        "SELECT date, routing_key, sum(sequence) "
        f"FROM read_parquet({files}, hive_partitioning = true) GROUP BY ALL ORDER BY ALL"
    )
    assert asked is not None
    expected = asked.fetchall()
    assert sorted(tuple(row) for row in counted) == expected
    assert len(expected) == 14


def test_where_it_is_is_in_the_configuration(
    spark: SparkSession, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"archive of the feed quotes: there is no recado.toml"):
        recado.table(spark, "quotes")
    archives = f'[feeds.archives.ticks]\nfeed = "quotes"\nfolder = "{path}"\n'
    (tmp_path / "recado.toml").write_text(archives)
    rows = recado.table(spark, "quotes")
    assert rows.inputFiles() == recado.table(spark, path=path).inputFiles()
    assert rows.count() == 1400
    with pytest.raises(OptionError, match=r"recado.toml has no archive of the feed orders"):
        recado.table(spark, "orders")
    with pytest.raises(OptionError, match="needs the option path or feed"):
        recado.table(spark)


def test_days_are_pruned(spark: SparkSession, path: Path) -> None:
    rows = recado.table(spark, path=path)
    first = rows.where("date = '2027-01-15'")
    plan = first._jdf.queryExecution().executedPlan().toString()
    assert "PartitionFilters: [isnotnull(date" in plan
    assert first.count() == 1000
    assert {name.split("date=")[1][:10] for name in rows.inputFiles()} == {
        "2027-01-15",
        "2027-01-16",
    }


def test_headers_and_properties_by_functions(spark: SparkSession, path: Path) -> None:
    recado.table(spark, path=path).createOrReplaceTempView("history")
    found = spark.sql(
        "SELECT offset, recado_headers(headers) h, recado_properties(properties) p FROM history "
        "WHERE offset < 31 ORDER BY offset"
    ).collect()
    for row, expected in zip(found, truth(path), strict=False):
        assert row.h == expected["headers"]
        assert (row.p and (row.p.content_type, row.p.priority)) == expected["properties"]


def test_as_it_was(spark: SparkSession, path: Path) -> None:
    assert recado.table(spark, path=path, at_offset=1005).count() == 1005
    assert recado.table(spark, path=path, at_offset=1000).count() == 1000
    moment = datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
    expected = next(row["offset"] for row in truth(path) if row["timestamp"] >= moment)
    assert recado.table(spark, path=path, at_time=moment).count() == expected
    assert recado.table(spark, path=path, at_offset=0).columns[-1] == "date"
    with pytest.raises(OptionError, match="exclude each other"):
        recado.table(spark, path=path, at_offset=1, at_time=moment)
    with pytest.raises(OptionError, match="archive of the feed 'quotes', not of 'orders'"):
        recado.table(spark, "orders", path=path)


def test_a_snapshot_stays_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    path = filled(tmp_path / "archive", [[quotes(1, 1, 50)]])
    before = recado.table(spark, path=path)
    more(path, [quotes(1, 51, 50)])
    with ArchiveStore(path, "quotes") as store:
        store.seal()
        store.apply_retention(
            RetentionLimits(max_messages=50)
        )  # within their grace period the files are there
    assert before.count() == 50
    after = recado.table(spark, path=path)
    assert sorted(row[0] for row in after.select("offset").collect()) == [*range(50, 100)]
    with pytest.raises(OptionError, match="starts at offset 50"):
        recado.table(spark, path=path, at_offset=20)
