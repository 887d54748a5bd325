"""A queue as a stream: all that is in it, into a sink that drops it. Ours, and one that is written plainly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.book import Book
from bench.pipeline.ground import Ground
from bench.pipeline.plain import PlainSource
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from recado.amqp.properties import Properties
from recado.client import blocking
from workshop import peers
from workshop.peers import Server

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

ROWS: Final = 60_000
QUICK_SHARE: Final = 4
QUEUE: Final = "bench"


def scenario(broker: str) -> Scenario:
    return Scenario(
        f"queue-{broker}",
        f"streaming 100 B messages from a queue of {broker}",
        "rows/s",
        Comparison.TIMES_MORE,
        peer="a plain source with pika",
        note="from the query's start to its end; ours has each row on disk before it is acknowledged",
    )


BROKERS: Final = {"recado": scenario("recado"), "rabbitmq": scenario("rabbitmq")}
SCENARIOS: Final = tuple(BROKERS.values())


def started(broker: str, folder: Path) -> AbstractContextManager[Server]:
    return peers.recado(data=folder / "broker") if broker == "recado" else peers.rabbitmq()


def run(plan: Plan, book: Book, ground: Ground) -> Iterator[str]:
    ground.spark.dataSource.register(PlainSource)
    share = QUICK_SHARE if plan.quick else 1
    for broker, each in BROKERS.items():
        if not plan.wants(each.name):
            continue
        with started(broker, ground.place()) as server:
            rate(ground, ours(ground, server.url), server.url, 1_000)  # the first compiles
            for _ in range(plan.rounds):
                found = rate(ground, ours(ground, server.url), server.url, ROWS // share)
                book.enter(each.name, Side.RECADO, Sample(found))
                if plan.with_peer:
                    found = rate(ground, plain(ground, server.url), server.url, ROWS // share)
                    book.enter(each.name, Side.PEER, Sample(found))
        yield each.name


def fill(url: str, rows: int) -> None:
    with blocking.connect(url) as connection:
        channel = connection.channel()
        channel.declare_queue(QUEUE, durable=True)
        body = b"x" * 100
        for number in range(rows):
            channel.publish("", QUEUE, body, Properties(message_id=f"{time.time_ns()}-{number}"))
        channel.flush()


def rate(ground: Ground, rows: DataFrame, url: str, count: int) -> float:
    """Rows a second, the start of the query included."""
    fill(url, count)
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(ground.place()))
    begun = time.perf_counter()
    query.start().awaitTermination()
    return count / (time.perf_counter() - begun)


def ours(ground: Ground, url: str) -> DataFrame:
    options = {"url": url, "queue": QUEUE, "spool": str(ground.place())}
    return ground.spark.readStream.format("amqp").options(**options).load()


def plain(ground: Ground, url: str) -> DataFrame:
    return ground.spark.readStream.format("pika").options(url=url, queue=QUEUE).load()
