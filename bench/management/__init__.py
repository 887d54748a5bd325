"""The management benchmark: what administration costs the messages, and what it costs in memory.

    scene.py           a broker with many queues, connections and consumers
    administration.py  Prometheus, and clients that list and export all the time
    waits.py           round trips and throughput meanwhile, next to RabbitMQ
    counters.py        the counters on the path of a message: recado next to a copy without them
    churn.py           memory while a million short connections come and go

The full form has 20,000 queues, 2,000 connections and 5,000 consumers, the quick form a tenth, without RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench import processes
from bench.book import Book
from bench.management import churn, counters, waits
from bench.plan import Plan
from workshop import peers

SCENARIOS = (*waits.SCENARIOS, *counters.SCENARIOS, *churn.SCENARIOS)
CACHE = Path(__file__).parents[2] / ".cache"


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    CACHE.mkdir(exist_ok=True)
    # Below the project: the system's temporary folder may be in memory.
    with peers.temporary_folder("bench-management", CACHE) as folder:
        for part in (waits, counters, churn):
            yield from part.run(folder, plan, book)
