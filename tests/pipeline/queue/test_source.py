"""`format("amqp")` as a streaming source, on both brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from recado.amqp.properties import Properties
from recado.amqp.values import LongString, ScaledDecimal
from recado.client import connect_blocking
from workshop.peers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

HUGE = b"h" * (9 << 20)
NOT_TEXT = b"\xff\xfe".decode(errors="surrogateescape")
ODD: list[tuple[bytes, Properties]] = [
    (b"", Properties()),
    (b"\xff\x00", Properties(message_id=NOT_TEXT, correlation_id=NOT_TEXT, type="")),
    (b"3", Properties(timestamp=1_800_000_000_000, message_id="in milliseconds")),
    (b"4", Properties(timestamp=1_800_000_000, priority=9, content_type="text/plain")),
    (b"5", Properties(headers={"s": "text", "n": 7, "bytes": b"\xff", "none": None, "yes": True})),
    (b"6", Properties(headers={"long": LongString(b"\xfe"), "deep": {"a": [1, {"b": 2.5}]}})),
    (b"7", Properties(headers={"scaled": ScaledDecimal(2, 314), "": "no name"})),
    (b"8", Properties(headers={f"h{number}": number for number in range(900)})),
    (HUGE, Properties(message_id="huge")),
]


def stream(spark: SparkSession, url: str, queue: str, folder: Path, **options: str) -> DataFrame:
    reader = spark.readStream.format("amqp").option("url", url).option("queue", queue)
    return reader.options(**{"spool": str(folder / "spool"), **options}).load()


def drained(rows: DataFrame, folder: Path) -> StreamingQuery:
    """Into Parquet, all that is there now."""
    writing = rows.writeStream.format("parquet").option("path", str(folder / "rows"))
    checkpoint = writing.option("checkpointLocation", str(folder / "checkpoint"))
    query = checkpoint.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def found(folder: Path) -> list[dict[str, Any]]:
    """Read by another than Spark."""
    table = ds.dataset(folder / "rows", format="parquet", exclude_invalid_files=True).to_table()
    return sorted(table.to_pylist(), key=lambda row: row["offset"])


def test_every_message_is_a_row_however_odd(
    spark: SparkSession, server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    queue = name("odd")
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True)
        for body, properties in ODD:
            channel.publish("", queue, body, properties)
        channel.wait_for_confirms()
        drained(stream(spark, server.url, queue, tmp_path), tmp_path)
        rows = found(tmp_path)
        assert [row["body"] for row in rows] == [body for body, _ in ODD]
        assert [row["offset"] for row in rows] == list(range(len(ODD)))
        assert {row["queue"] for row in rows} == {row["routing_key"] for row in rows} == {queue}
        assert rows[0]["headers"] is rows[0]["properties"] is rows[0]["message_id"] is None
        assert rows[1]["message_id"] == rows[1]["properties"]["correlation_id"] == "\ufffd\ufffd"
        assert rows[2]["timestamp"] is None
        assert rows[3]["timestamp"].isoformat().startswith("2027-01-15T08:00:00")
        assert rows[3]["properties"]["content_type"] == "text/plain"
        assert rows[3]["properties"]["priority"] == 9
        simple = dict(rows[4]["headers"])
        assert (simple["s"], simple["n"], simple["none"], simple["yes"]) == (
            "text",
            "7",
            None,
            "true",
        )
        deep = dict(rows[5]["headers"])
        assert deep["long"] == "\ufffd"
        assert json.loads(deep["deep"]) == {"a": [1, {"b": 2.5}]}
        assert dict(rows[6]["headers"])["scaled"] == "3.14"
        assert len(rows[7]["headers"]) == 900

        # The same query again: nothing twice, nothing new; then what is new.
        drained(stream(spark, server.url, queue, tmp_path), tmp_path)
        assert len(found(tmp_path)) == len(ODD)
        for number in range(25):
            channel.publish("", queue, b"later", Properties(message_id=f"{number}"))
        channel.publish("", queue, b"again", Properties(message_id="huge"))
        channel.wait_for_confirms()
        query = drained(
            stream(spark, server.url, queue, tmp_path, maxRowsPerTrigger="10"), tmp_path
        )
        later = found(tmp_path)[len(ODD) :]
        assert [row["message_id"] for row in later] == [f"{number}" for number in range(25)]
        inputs = [each.numInputRows for each in query.recentProgress if each.numInputRows]
        assert inputs == [10, 10, 5]
        assert channel.declare_queue(queue, passive=True).message_count == 0


def test_all_that_is_there_is_more_than_the_spool_may_have(
    spark: SparkSession, server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    queue = name("full")
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True)
        for number in range(30):
            channel.publish("", queue, b"%d" % number, Properties(message_id=f"{number}"))
        channel.wait_for_confirms()
        little = {"prefetch": "5", "maxSpoolBytes": "1000"}
        query = drained(stream(spark, server.url, queue, tmp_path, **little), tmp_path)
        assert [int(row["body"]) for row in found(tmp_path)] == list(range(30))
        assert len([each for each in query.recentProgress if each.numInputRows]) > 1
        assert channel.declare_queue(queue, passive=True).message_count == 0


def test_from_queue_to_exchange_as_a_stream_and_as_a_batch(
    spark: SparkSession, server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = name("from"), name("to")
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue(source, durable=True)
        channel.declare_queue(target, durable=True)
        for number in range(30):
            named = Properties(message_id=f"id-{number}", headers={"n": number}, type="order")
            channel.publish("", source, b"%d" % number, named)
        channel.wait_for_confirms()
        rows = stream(spark, server.url, source, tmp_path).where("headers['n'] >= 10")
        options = {"url": server.url, "exchange": "", "routingKey": target}
        writing = rows.writeStream.format("amqp").options(**options).trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        with channel.consume(target) as consumer:
            arrived = [next(consumer) for _ in range(20)]
            arrived[-1].ack(multiple=True)
        assert sorted(int(each.body) for each in arrived) == list(range(10, 30))
        properties = {each.properties.message_id: each.properties for each in arrived}
        assert properties["id-12"].headers == {"n": "12"}
        assert properties["id-12"].type == "order"

        frame = spark.range(7).selectExpr("id AS order", "CAST(id AS STRING) AS body")
        written = frame.write.format("amqp").mode("append")
        written.options(**options, idColumns="order").save()
        assert channel.declare_queue(target, passive=True).message_count == 7
