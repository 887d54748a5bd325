"""Rows to an exchange, with confirms. Ours, and a sink that is written plainly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bench.book import Book, NotMeasuredError
from bench.pipeline.brokers import measure
from bench.pipeline.ground import Ground
from bench.plan import Plan
from bench.scenario import Comparison, Scenario
from recado.client import connect_blocking

ROWS: Final = 20_000
QUEUE: Final = "bench-sink"


def scenario(broker: str) -> Scenario:
    return Scenario(
        f"sink-{broker}",
        f"100 B rows to a queue of {broker}, persistent, confirmed",
        "rows/s",
        Comparison.TIMES_MORE,
        peer="a plain sink with pika",
    )


BROKERS: Final = {"recado": scenario("recado"), "rabbitmq": scenario("rabbitmq")}
SCENARIOS: Final = tuple(BROKERS.values())


def run(plan: Plan, book: Book, ground: Ground) -> Iterator[str]:
    return measure(plan, book, ground, BROKERS, ROWS, rate)


def rate(ground: Ground, sink: str, url: str, count: int) -> float:
    """The queue is empty when it begins."""
    with connect_blocking(url) as connection:
        channel = connection.channel()
        channel.declare_queue(QUEUE, durable=True)
        channel.purge_queue(QUEUE)
    rows = ground.spark.range(count).selectExpr(
        "concat('id-', id) AS message_id", "to_binary(repeat('x', 100), 'utf-8') AS body"
    )
    writer = rows.write.format(sink).mode("append").option("url", url)
    begun = time.perf_counter()
    writer.options(exchange="", routingKey=QUEUE).save()
    seconds = time.perf_counter() - begun
    with connect_blocking(url) as connection:
        arrived = connection.channel().declare_queue(QUEUE, passive=True).message_count
    if arrived != count:
        raise NotMeasuredError(f"{sink} has written {arrived:,} of {count:,} messages")
    return count / seconds
