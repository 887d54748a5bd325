"""A feed as a table of Spark, against pyarrow and the archive's own messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recado.pipeline.row_schema import FEED_SCHEMA, QUEUE_SCHEMA, to_ddl
from tests.pipeline.making import filled, quotes, truth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    days = [[quotes(1, 1, 700), quotes(2, 1, 300)], [quotes(1, 701, 400)]]
    return filled(tmp_path_factory.mktemp("batch") / "archive", days, [quotes(3, 1, 250)])


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("recado")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def as_truth(row: Row) -> dict[str, Any]:
    found = row.asDict()
    found["body"] = bytes(found["body"])
    about = found["properties"]
    found["properties"] = about and (about.content_type, about.priority)
    return found


def test_every_row_with_all_that_it_has(spark: SparkSession, path: Path) -> None:
    rows = read(spark, path, minPartitions=5)
    assert rows.rdd.getNumPartitions() == 5
    found = [as_truth(row) for row in rows.orderBy("offset").collect()]
    expected = truth(path)
    for row, other in zip(found, expected, strict=True):
        moment = row.pop("timestamp")
        assert moment.timestamp() == pytest.approx(other.pop("timestamp").timestamp(), abs=2e-6)
        assert row == other


def test_the_arrow_schemas_are_those_that_spark_makes(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    for schema in (FEED_SCHEMA, QUEUE_SCHEMA):
        made = spark.createDataFrame([], to_ddl(schema)).schema
        assert to_arrow_schema(made, timezone="UTC").equals(schema)


def test_offsets_times_and_a_selector(spark: SparkSession, path: Path) -> None:
    def offsets(**options: object) -> list[int]:
        reader = read(spark, path, feed="quotes", **options)
        return sorted(row[0] for row in reader.select("offset").collect())

    assert offsets(startingOffsets=1390, endingOffsets='{"quotes": 1405}') == [*range(1390, 1405)]
    assert offsets(startingOffsets="latest") == []
    late = truth(path)[-1]["timestamp"]
    by_time = offsets(startingTimestamp="2023-11-14T22:13:21.090Z")
    assert by_time[0] == next(
        row["offset"] for row in truth(path) if row["timestamp"].timestamp() >= 1_700_000_001.09
    )
    assert late.year == 2023
    wanted = "key = 'S3' AND json.price > 50 AND headers.n = 2"
    expected = [
        row["offset"]
        for row in truth(path)
        if row["routing_key"] == "S3"
        and int(row["body"].split(b'"price": ')[1].split(b".")[0]) >= 50
        and (row["headers"] or {}).get("n") == "2"
    ]
    assert offsets(selector=wanted) == expected != []


def test_a_schema_names_the_columns_that_are_read(spark: SparkSession, path: Path) -> None:
    reader = spark.read.format("recado").schema("body binary, sequence bigint")
    rows = reader.option("endingOffsets", "2").load(str(path)).collect()
    assert [(bytes(row.body)[:14], row.sequence) for row in rows] == [
        (b'{"symbol": "S1', 1),
        (b'{"symbol": "S2', 2),
    ]


@pytest.mark.parametrize(
    ("schema", "options", "told"),
    [
        ("body string", {}, "the schema declares body as string, but .* it is binary: cast it"),
        ("price double", {}, "unknown column 'price'; the columns are feed, offset"),
        ("body binary", {"maxRowPerTrigger": "1"}, "did you mean maxRowsPerTrigger"),
        ("body binary", {"feed": "orders"}, "archive of the feed 'quotes', not of 'orders'"),
        ("body binary", {"startingOffsets": "9999"}, "has offsets from 0 up to 1650"),
        ("body binary", {"path": "/nowhere"}, "no archive in /nowhere"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    spark: SparkSession, path: Path, schema: str, options: dict[str, str], told: str
) -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("recado").schema(schema).options(**{"path": str(path)} | options)
    with pytest.raises(PySparkException, match=told):
        reader.load().collect()


def test_misspelt_options_are_refused_by_load(spark: SparkSession, path: Path) -> None:
    from pyspark.errors import AnalysisException

    for name, value, told in (
        ("startingOffset", "earliest", "did you mean startingOffsets"),
        ("startingOffsets", "first", "expected earliest, latest, an offset"),
    ):
        for reader in (spark.read, spark.readStream):
            with pytest.raises(AnalysisException, match=told):
                reader.format("recado").option(name, value).load(str(path))


def test_tables_of_a_catalog_are_refused_and_views_can_be_read(
    spark: SparkSession, path: Path
) -> None:
    """Spark passes no options of such a table to a format in Python, so it could not be read."""
    from pyspark.errors import AnalysisException

    options = f"USING recado OPTIONS (path '{path}', endingOffsets '7')"
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE refused {options}")
    assert not spark.catalog.tableExists("refused")
    spark.sql(f"CREATE TEMPORARY VIEW seen {options}")
    try:
        assert spark.sql("SELECT count(*) FROM seen").collect()[0][0] == 7
    finally:
        spark.catalog.dropTempView("seen")
    spark.sql(f"CREATE TABLE unread (body binary) {options}")  # with columns Spark asks nothing
    try:
        with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM unread").collect()
    finally:
        spark.sql("DROP TABLE unread")
