"""aggregate, deduplicate, resequence, functions: as a batch and as a stream, against DuckDB and Python."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from recado.pipeline import preview
from recado.pipeline.definition import Pipeline
from recado.pipeline.runner import run

from .messages import START, message, reading, rows_of, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LATER = START + timedelta(hours=1)  # closes every window before it


def quote(number: int, **fields: Any) -> dict[str, Any]:
    return message(number, {"symbol": "AB"[number % 2], "price": float(number % 17)}, **fields)


def doubled(rows: DataFrame) -> DataFrame:
    return rows.withColumn("price", rows["price"] * 2)


def bars(folder: str, tmp_path: Path) -> Pipeline:
    return (
        reading("bars", folder, tmp_path / "state")
        .translate(json={"symbol": "string", "price": "double"})
        .wire_tap("tap", where="price > 15")
        .apply(f"{__name__}:doubled")
        .deduplicate(by=["publisher", "sequence"], time="timestamp", within="10 minutes")
        .aggregate(
            {"open": "min_by(price, sequence)", "high": "max(price)", "n": "count(*)"},
            by=["symbol"],
            time="timestamp",
            window="20 seconds",
            late="30 seconds",
        )
        .translate(compute={"range": "high - open"})
        .write("bars", "parquet", path=str(tmp_path / "bars"))
        .write("tap", "parquet", path=str(tmp_path / "tap"))
        .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
    )


def by_duckdb(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    rows = [
        {"t": each["timestamp"], "s": each["sequence"], **json.loads(each["body"])}
        for each in messages
    ]
    quotes = pa.Table.from_pylist(rows)
    asked = duckdb.sql(
        """
        SELECT epoch(time_bucket(INTERVAL 20 SECONDS, t)) AS start, symbol,
               2 * min_by(price, s), 2 * max(price), count(*)
        FROM (SELECT DISTINCT * FROM quotes) WHERE t IS NOT NULL GROUP BY ALL ORDER BY ALL
        """
    )
    assert quotes.num_rows  # it is read by its name
    assert asked is not None
    return asked.fetchall()


def as_told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    assert all(row["range"] == row["high"] - row["open"] for row in rows)
    return sorted(
        (row["window_start"].timestamp(), row["symbol"], row["open"], row["high"], row["n"])
        for row in rows
    )


def test_windows_of_what_comes_twice(spark: SparkSession, tmp_path: Path) -> None:
    first = [quote(number) for number in range(1, 60)]
    second = [*first[20:25], *(quote(number) for number in range(60, 121)), first[58]]
    poison = [message(200, b"nope"), quote(201, timestamp=None), quote(202, publisher=None)]
    # Windows are given out when all that may still come is later: so the last row of a stream closes them.
    closing = [quote(300, timestamp=LATER), quote(301, timestamp=LATER)]
    late = [quote(400)]
    # What is late is measured by what the batches before have seen.
    folder = stored(tmp_path / "in", first, [*second, *poison, *closing], closing[:1], late)
    whole = bars(folder, tmp_path)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    at_once = [row.asDict() for row in preview(whole, spark)["bars"].collect()]
    for row in at_once:
        row["window_start"] = row["window_start"].astimezone()
    truth = by_duckdb([*first, *second, *closing, *late])
    assert as_told(at_once) == truth
    report = run(whole, spark)
    assert as_told(rows_of(tmp_path / "bars")) == [
        bar for bar in truth if bar[0] < LATER.timestamp() - 60 and bar[0] < START.timestamp() + 390
    ]
    assert report.duplicates == 7
    assert report.late == 1  # what came an hour too late is in no window, and is counted
    tapped = [row["sequence"] for row in rows_of(tmp_path / "tap")]
    assert sorted(tapped) == sorted(
        each["sequence"]
        for each in [*first, *second, *poison[1:], *closing, closing[0], *late]
        if each["sequence"] % 17 > 15
    )
    reasons = {row["reason"].split(":")[0] for row in rows_of(tmp_path / "dead")}
    assert reasons == {
        "the body is not JSON",
        "publisher or sequence or timestamp is NULL",
    }


def test_rows_in_their_order(spark: SparkSession, tmp_path: Path) -> None:
    """A stream waits for what is missing, and goes on without it when it has waited long enough."""
    parts = [
        [message(n, {}, publisher=who) for who in ("ana", "bia") for n in (2, 1, 5)],
        [message(n, {}, publisher=who) for who in ("ana", "bia") for n in (4, 3, 2)],
        [message(n, {}, publisher="ana") for n in (9, 8)] + [message(1, {}, publisher=None)],
        [message(1, {}, publisher="eva", headers=None, properties=None)],
    ]
    folder = stored(tmp_path / "in", *parts)
    whole = (
        reading("order", folder, tmp_path / "state")
        .resequence(by=["publisher"], wait="1 millisecond")
        .apply(lambda rows: rows.select("*"), stateful=False)
        .write("out", "parquet", path=str(tmp_path / "out"))
        .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
    )
    found = preview(whole, spark)
    at_once = [(row.publisher, row.sequence) for row in found["out"].collect()]
    assert [each for each in at_once if each[0] == "ana"] == [
        ("ana", n) for n in (1, 2, 3, 4, 5, 8, 9)
    ]
    assert len(at_once) == 7 + 5 + 1
    assert found["dead_letters"].count() == 3  # the number 2 twice, and one of nobody
    run(whole, spark)
    rows = rows_of(tmp_path / "out")
    given = {
        who: [row["sequence"] for row in rows if row["publisher"] == who]
        for who in ("ana", "bia", "eva")
    }
    assert given["eva"] == [1]
    assert given["bia"] == [1, 2, 3, 4, 5]  # what was missing came with the next batch
    assert given["ana"] == [1, 2, 3, 4, 5, 8, 9]  # 6 and 7 did not, and were given up
    dead = [json.loads(row["row"]) for row in rows_of(tmp_path / "dead")]
    told = [(row.get("publisher"), row["sequence"]) for row in dead]
    assert sorted(told, key=str) == [("ana", 2), ("bia", 2), (None, 1)]
    row = next(row for row in rows if row["publisher"] == "ana" and row["sequence"] == 1)
    assert dict(row["headers"]) == {"n": "1", "colour": "red"}
    assert row["properties"]["priority"] == 1
    assert next(row for row in rows if row["publisher"] == "eva")["headers"] is None
