"""Rows published on a feed: a batch that Spark repeats is stored once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import recado.feeds
from recado.feeds.archive.archive import Archive
from recado.feeds.message import Message
from tests.pipeline.making import filled, quotes, truth
from workshop import peers
from workshop.time_limit import scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PATIENCE = 60.0


class Target:
    """A feed with an archive, on a broker of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def messages(self, count: int) -> list[Message]:
        """When so many are there."""
        deadline = time.monotonic() + scale(PATIENCE)
        while time.monotonic() < deadline:
            with Archive.open(self.folder) as archive:
                found = list(archive.messages())
            if len(found) >= count:
                return list(found)
        pytest.fail(f"{len(found)} of {count} messages are there")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    with (
        recado.Broker(port=0) as broker,
        recado.feeds.connect_blocking(broker.url) as link,
        link.archive("out", tmp_path / "out"),
    ):
        yield Target(broker.url, tmp_path / "out")


def test_a_stream_is_published_once_though_its_last_batch_is_repeated(
    spark: SparkSession, tmp_path: Path, target: Target
) -> None:
    source = filled(tmp_path / "in", [[quotes(1, 1, 150)]], [quotes(2, 1, 50)])
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("recado").option("startingOffsets", "earliest")
        rows = reader.option("maxRowsPerTrigger", 120).option("minPartitions", 3).load(str(source))
        query = (
            rows.drop("message_id")
            .writeStream.format("recado")
            .options(url=target.url, feed="out", checkpointLocation=str(checkpoint))
            .option("staging", str(tmp_path / "staging"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    (checkpoint / "commits" / "1").unlink()  # killed between the sink and Spark's own note
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    run()
    published = target.messages(200)
    expected = truth(source)
    assert [each.body for each in published] == [row["body"] for row in expected]
    assert [each.message_id for each in published] == [
        f"{row['publisher']}:{row['sequence']}" for row in expected
    ]
    assert [each.key for each in published] == [row["routing_key"] for row in expected]
    assert [each.time for each in published] == [row["timestamp"] for row in expected]
    headers = [{name: str(value) for name, value in each.headers.items()} for each in published]
    assert headers == [row["headers"] or {} for row in expected]
    priorities = [each.properties and each.properties.priority for each in published]
    assert priorities == [row["properties"] and row["properties"][1] for row in expected]
    assert len({each.publisher for each in published}) == 1
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    left = (tmp_path / "staging" / query).iterdir()
    assert sorted(each.name for each in left) == ["out.json", "out.seal"]


def test_a_broker_that_is_away_is_waited_for_and_a_refusal_is_not(
    spark: SparkSession, target: Target
) -> None:
    from pyspark.errors import PySparkException

    rows = spark.range(1).selectExpr("id", "string(id) AS body")
    writer = rows.write.format("recado").mode("append").options(feed="out", idColumns="id")
    wrong = target.url.replace("amqp://", "amqp://guest:wrong@")
    with pytest.raises(PySparkException, match="ACCESS_REFUSED"):
        writer.option("url", wrong).save()
    [port] = peers.free_ports(1)
    away = writer.option("url", f"amqp://127.0.0.1:{port}").option("reconnectTimeout", "0.3")
    with pytest.raises(PySparkException, match=r"no reconnection within 0\.3"):
        away.save()


def test_a_write_by_batch_numbers_is_once_and_one_without_each_time(
    spark: SparkSession, tmp_path: Path, target: Target
) -> None:
    from pyspark.errors import PySparkException

    rows = spark.range(20, numPartitions=2).selectExpr("id", "string(id) AS body")
    writer = rows.write.format("recado").mode("append").options(url=target.url, feed="out")
    writer = writer.option("idColumns", "id")
    writer.save()
    staged = writer.option("staging", str(tmp_path / "staging"))
    for _ in range(2):  # without a batch it is only where rows are on their way
        staged.save()
    assert len(target.messages(60)) == 60
    assert list((tmp_path / "staging").iterdir()) == []
    numbered = staged.option("batch", "0")
    for _ in range(2):
        numbered.save()
    numbered.option("batch", "1").save()
    published = target.messages(100)
    assert len(published) == 100
    assert len({each.publisher for each in published}) == 4
    with pytest.raises(PySparkException, match="messages on a feed cannot be overwritten"):
        rows.write.format("recado").mode("overwrite").options(url="amqp:", feed="out").save()
    others = spark.range(5).selectExpr("id", "'x' AS body").write.format("recado").mode("append")
    others = others.options(url=target.url, feed="out", idColumns="id", batch="1")
    with pytest.raises(PySparkException, match="batch 1 had 20 rows when it was first published"):
        others.option("staging", str(tmp_path / "staging")).save()


def staged_meanwhile(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task, while the write is under way: what of ours is in the folder that Spark removes at its end."""
    for _ in rows:
        found = [path.name for path in Path(os.environ["SPARK_LOCAL_DIRS"]).glob("recado-*")]
        yield pa.RecordBatch.from_pydict({"body": [" ".join(found)]})


def test_rows_on_their_way_are_where_spark_tidies_up(spark: SparkSession, target: Target) -> None:
    rows = spark.range(1).mapInArrow(staged_meanwhile, "body string")
    options = {"url": target.url, "feed": "out", "idColumns": "body"}
    rows.write.format("recado").mode("append").options(**options).save()
    [message] = target.messages(1)
    folder = message.body.decode()
    assert folder.startswith("recado-")
    local = Path(spark.conf.get("spark.local.dir") or "")
    assert local.is_dir()
    assert list(local.rglob(folder)) == []  # nor is it there any more
