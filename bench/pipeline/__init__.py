"""The benchmark of pipelines: feeds and queues on Spark, compared with Spark's own sources and with simple
programs.

    ground.py    a SparkSession, archives to read, and the timing of queries
    table.py     the history of a feed as a table, compared with `spark.read.parquet` on the same files
    stream.py    a feed as a stream, compared with Spark's own stream of Parquet files
    latency.py   from the publisher to a Spark sink, at the default trigger
    queue.py     a queue as a stream, compared with a simple source on pika
    sink.py      rows to an exchange, compared with a simple sink on pika
    plain.py     these two
    brokers.py   common parts of both, for each broker

Each group of scenarios has a module with `SCENARIOS` and `run(topology, book, ground)`.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.book import Book
from bench.durable import CACHE
from bench.pipeline import latency, queue, sink, stream, table
from bench.pipeline.ground import Ground
from bench.plan import Plan
from workshop import peers

GROUPS = (table, stream, latency, queue, sink)
SCENARIOS = tuple(scenario for group in GROUPS for scenario in group.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    book.peer = "peers"  # each scenario names its own
    CACHE.mkdir(exist_ok=True)
    with peers.temporary_folder("bench-pipeline", CACHE) as folder, Ground(folder) as ground:
        for group in GROUPS:
            yield from group.run(plan, book, ground)
