"""Rows to an exchange, with confirms. Ours, and a sink that is written plainly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bench.book import Book
from bench.pipeline.ground import Ground
from bench.pipeline.plain import PlainSource
from bench.pipeline.queue import started
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from recado.client import blocking

ROWS: Final = 20_000
QUICK_SHARE: Final = 4
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
    ground.spark.dataSource.register(PlainSource)
    share = QUICK_SHARE if plan.quick else 1
    for broker, each in BROKERS.items():
        if not plan.wants(each.name):
            continue
        with started(broker, ground.place()) as server:
            rate(ground, "amqp", server.url, 1_000)  # the first compiles
            for _ in range(plan.rounds):
                found = rate(ground, "amqp", server.url, ROWS // share)
                book.enter(each.name, Side.RECADO, Sample(found))
                if plan.with_peer:
                    found = rate(ground, "pika", server.url, ROWS // share)
                    book.enter(each.name, Side.PEER, Sample(found))
        yield each.name


def rate(ground: Ground, sink: str, url: str, count: int) -> float:
    """Rows a second; the queue is empty when it begins."""
    with blocking.connect(url) as connection:
        channel = connection.channel()
        channel.declare_queue(QUEUE, durable=True)
        channel.purge_queue(QUEUE)
    rows = ground.spark.range(count).selectExpr(
        "concat('id-', id) AS message_id", "to_binary(repeat('x', 100), 'utf-8') AS body"
    )
    writer = rows.write.format(sink).mode("append").option("url", url)
    begun = time.perf_counter()
    writer.options(exchange="", routingKey=QUEUE).save()
    return count / (time.perf_counter() - begun)
