"""A queue as a stream: all that is in it, into a sink that drops it. Ours, and one that is written plainly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bench.book import Book, NotMeasuredError
from bench.pipeline.brokers import OURS, measure
from bench.pipeline.ground import Ground
from bench.plan import Plan
from bench.scenario import Comparison, Scenario
from recado.amqp.properties import Properties
from recado.client import connect_blocking

ROWS: Final = 400_000
"""Of 150,000 on RabbitMQ the start and the end of ours, 0.7 s, are a fifth of its time (decision 13)."""
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


def run(plan: Plan, book: Book, ground: Ground) -> Iterator[str]:
    return measure(plan, book, ground, BROKERS, ROWS, rate)


def fill(url: str, rows: int) -> None:
    with connect_blocking(url) as connection:
        channel = connection.channel()
        channel.declare_queue(QUEUE, durable=True)
        body = b"x" * 100
        for number in range(rows):
            channel.publish("", QUEUE, body, Properties(message_id=f"{time.time_ns()}-{number}"))
        channel.wait_for_confirms()


def rate(ground: Ground, source: str, url: str, count: int) -> float:
    """The start of the query included."""
    fill(url, count)
    options = {"url": url, "queue": QUEUE}
    if source == OURS:
        options["spool"] = str(ground.place())
    rows = ground.spark.readStream.format(source).options(**options).load()
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(ground.place()))
    begun = time.perf_counter()
    running = query.start()
    running.awaitTermination()
    seconds = time.perf_counter() - begun
    read = sum(each["numInputRows"] for each in running.recentProgress)
    if read != count:
        raise NotMeasuredError(f"{source} has read {read:,} of {count:,} messages")
    return count / seconds
