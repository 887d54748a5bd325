"""The benchmark of pipelines: feeds and queues on Spark, beside what Spark has and what people write.

    ground.py    a Spark, archives to read, and how long a query took
    table.py     the history of a feed as a table, beside `spark.read.parquet` on the same files
    stream.py    a feed as a stream, beside Spark's own stream of Parquet files
    latency.py   from the publisher to Spark's sink, at the default trigger
    queue.py     a queue as a stream, beside a source that is written plainly with pika
    sink.py      rows to an exchange, beside a sink that is written plainly with pika
    plain.py     these two
    brokers.py   what is done for both of them, on each broker

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
    """Takes all samples; yields the name of each scenario when it is finished."""
    book.peer = "peers"  # each scenario names its own
    CACHE.mkdir(exist_ok=True)
    with peers.temporary_folder("bench-pipeline", CACHE) as folder, Ground(folder) as ground:
        for group in GROUPS:
            yield from group.run(plan, book, ground)
