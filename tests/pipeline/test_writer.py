"""From an archive through a pipeline to an exchange, a feed and a lake, with a batch that Spark repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import recado.feeds
from recado.client import BlockingChannel, connect_blocking
from recado.pipeline.definition import Pipeline
from recado.pipeline.runner import run
from tests.pipeline.making import filled, quotes, stored, truth
from tests.pipeline.steps.messages import rows_of
from workshop.peers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def forget_the_first_batch(state: Path) -> None:
    """As if killed between the last sink and Spark's own note."""
    for name in ("0", ".0.crc"):
        (state / "commits" / name).unlink(missing_ok=True)


def taken(channel: BlockingChannel, queue: str) -> list[tuple[str | None, bytes]]:
    """All that is in a queue: ids and bodies."""
    got = []
    while (message := channel.get(queue, no_ack=True)) is not None:
        got.append((message.properties.message_id, message.body))
    return got


def test_a_repeated_batch(spark: SparkSession, tmp_path: Path) -> None:
    source = filled(tmp_path / "in", [[quotes(1, 1, 40)]])
    state = tmp_path / "state"
    with (
        recado.Broker(port=0) as broker,
        recado.feeds.connect_blocking(broker.url) as link,
        link.archive("dear", tmp_path / "dear"),
        connect_blocking(broker.url) as connection,
    ):
        channel = connection.channel()
        channel.declare_queue("dear", durable=True)
        pipeline = (
            Pipeline("quotes", checkpoint=str(state), trigger="available-now")
            .read("archive", "recado", path=str(source), startingOffsets="earliest")
            .translate(json={"price": "double", "n": "long"})
            .filter("n > 10")
            .translate(select=["publisher", "sequence", "n"], body=["n"])
            .write("lake", "parquet", path=str(tmp_path / "lake"))
            .write("exchange", "amqp", url=broker.url, exchange="", routingKey="dear")
            .write("feed", "recado", url=broker.url, feed="dear")
            .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
        )
        report = run(pipeline, spark)
        assert report.sinks == {"lake": 30, "exchange": 30, "feed": 30, "dead_letters": 0}
        assert report.sources["archive"].lag == 0
        forget_the_first_batch(state)
        assert run(pipeline, spark).batches == 1
        bodies = [b'{"n":%d}' % n for n in range(11, 41)]
        assert [row["n"] for row in rows_of(tmp_path / "lake")] == list(range(11, 41))
        assert sorted(stored(tmp_path / "dear", 30)) == sorted(bodies)
        channel.wait_for_confirms()
        got = taken(channel, "dear")
        assert len(got) == 60  # at least once …
        assert len(set(got)) == 30  # … and the same ids


def test_a_repeated_batch_has_its_ids_again_on_any_broker(
    spark: SparkSession, server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    source = filled(tmp_path / "in", [[quotes(1, 1, 40)]])
    state, queue = tmp_path / "state", name("dear")
    pipeline = (
        Pipeline("quotes", checkpoint=str(state), trigger="available-now")
        .read("archive", "recado", path=str(source), startingOffsets="earliest")
        .translate(select=["publisher", "sequence", "body"])
        .write("exchange", "amqp", url=server.url, exchange="", routingKey=queue)
        .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
    )
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True)
        run(pipeline, spark)
        forget_the_first_batch(state)
        assert run(pipeline, spark).batches == 1
        rows = [(f"{row['publisher']}:{row['sequence']}", row["body"]) for row in truth(source)]
        assert Counter(taken(channel, queue)) == dict.fromkeys(rows, 2)
