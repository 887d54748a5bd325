"""An outage of the broker for a minute: queries that read from it and write to it wait, and lose nothing.

One query is writing to its sink when the broker stops, with the next batches in the spool. Another only
reads, so its progress continues and shows the reason. A third publishes an archive on a feed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

import recado.feeds
from recado.amqp.properties import Properties
from recado.client import connect_blocking
from recado.feeds.archive.archive import Archive
from tests.pipeline.making import filled, quotes, truth
from workshop import peers
from workshop.peers import Server
from workshop.time_limit import scale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

OUTAGE = 61.0
PATIENCE = 60.0
COUNT = 120
AT_A_TIME = "10"  # rows of a batch: there are always some to be written

Named = tuple[str | None, bytes]


def until(reached: Callable[[], bool], what: str) -> None:
    """Spark tells nobody when this is so; each look takes it some milliseconds."""
    deadline = time.monotonic() + scale(PATIENCE)
    while not reached():
        assert time.monotonic() < deadline, f"not in {PATIENCE:g} s: {what}"


def publish(url: str, queue: str, numbers: Iterable[int]) -> None:
    with connect_blocking(url) as connection:
        channel = connection.channel()
        for number in numbers:
            named = Properties(message_id=f"id-{number}", delivery_mode=2)
            channel.publish("", queue, b"%d" % number, named)
        channel.wait_for_confirms()


def arrived(url: str, queue: str, count: int) -> set[Named]:
    """What is in a queue, when so many different ones came."""
    found: set[Named] = set()
    with (
        connect_blocking(url) as connection,
        connection.channel().consume(queue) as consumer,
    ):
        while len(found) < count:
            batch = consumer.next_batch(timeout=scale(PATIENCE))
            found |= {(each.properties.message_id, each.body) for each in batch}
    return found


def stored(folder: Path) -> list[bytes]:
    with Archive.open(folder) as archive:
        return [message.body for message in archive.messages()]


def rows_in(folder: Path) -> list[bytes]:
    table = ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table(["body"])
    return [body.as_py() for body in table.column("body")]


def written(query: StreamingQuery) -> int:
    return sum(each.numInputRows for each in query.recentProgress)


def said(query: StreamingQuery) -> str:
    """Why nothing comes, by the query's last progress."""
    progress = query.lastProgress
    latest = progress and progress.sources[0].latestOffset
    return str(latest) if latest and "waiting" in str(latest) else ""


@contextmanager
def running(rows: DataFrame, form: str, folder: Path, **options: Any) -> Iterator[StreamingQuery]:
    writing = rows.writeStream.format(form).options(**options)
    query = writing.option("checkpointLocation", str(folder)).start()
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("broker", ["recado", "rabbitmq"])
def test_a_broker_that_is_away_for_a_minute(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    [port] = peers.free_ports(1)

    def life() -> AbstractContextManager[Server]:
        return peers.PEERS[broker](port=port, data=tmp_path / "broker")

    def read(queue: str) -> DataFrame:
        reader = spark.readStream.format("amqp").options(url=url, queue=queue)
        reader = reader.options(spool=str(tmp_path / queue), maxRowsPerTrigger=AT_A_TIME)
        return reader.load()

    source = filled(tmp_path / "in", [[quotes(1, 1, COUNT)]])
    with ExitStack() as first:
        url = first.enter_context(life()).url
        with connect_blocking(url) as connection:
            for queue in ("orders", "seen", "target"):
                connection.channel().declare_queue(queue, durable=True)
        publish(url, "orders", range(COUNT))
        publish(url, "seen", range(10))
        archive = spark.readStream.format("recado").option("startingOffsets", "earliest")
        quoted = archive.option("maxRowsPerTrigger", AT_A_TIME).load(str(source))
        target = {"url": url, "exchange": "", "routingKey": "target"}
        with (
            recado.feeds.connect_blocking(url) as link,
            link.archive("out", tmp_path / "out"),
            running(read("orders"), "amqp", tmp_path / "a", **target) as to_queue,
            running(quoted, "recado", tmp_path / "b", url=url, feed="out") as to_feed,
            running(read("seen"), "parquet", tmp_path / "c", path=str(tmp_path / "lake")) as lake,
        ):
            queries = (to_queue, to_feed, lake)
            until(lambda: all(map(written, queries)), "each query has written something")
            first.close()
            gone = time.monotonic()
            until(lambda: bool(said(lake)), "the progress says that the broker is away")
            # Nothing to wait for here: that it is a minute is the point.
            threading.Event().wait(gone + OUTAGE - time.monotonic())
            assert written(to_queue) < COUNT
            assert written(to_feed) < COUNT
            assert all(query.isActive for query in queries)

            with life():
                publish(url, "orders", range(COUNT, COUNT + 10))
                publish(url, "seen", range(10, 20))
                everything = {(f"id-{n}", b"%d" % n) for n in range(COUNT + 10)}
                assert arrived(url, "target", COUNT + 10) == everything
                until(lambda: len(rows_in(tmp_path / "lake")) >= 20, "the lake has all")
                assert sorted(map(int, rows_in(tmp_path / "lake"))) == list(range(20))
                until(lambda: len(stored(tmp_path / "out")) >= COUNT, "the feed has all")
                assert stored(tmp_path / "out") == [row["body"] for row in truth(source)]
                assert [query.exception() for query in queries] == [None] * 3
                assert all(query.isActive for query in queries)
