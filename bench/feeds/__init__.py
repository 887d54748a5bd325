"""The benchmark of feeds: the cost of persistence, the rates of an archive, and other systems.

    live.py     a feed with an archive compared with one that has a plain subscriber instead: rate and latency
    store.py    an archive by itself: ingest, and replay as columns and as objects
    members.py  the cost of membership: 50 and 500 subscribers join at the same time, and idle
    rivals.py   persistent publishing and replay, compared with NATS JetStream and RabbitMQ streams
    clients/    the programs that publish, subscribe and replay, each in its own process

All data is in folders of one file system, that of this repository, as in the durable benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import processes
from bench.book import Book
from bench.durable import CACHE
from bench.feeds import live, members, rivals, store
from bench.plan import Plan
from workshop import peers

SCENARIOS = (*live.SCENARIOS, *store.SCENARIOS, *members.SCENARIOS, *rivals.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    book.peer = "peers"  # each scenario names its own
    processes.allow_many_open_files()
    CACHE.mkdir(exist_ok=True)
    with peers.temporary_folder("bench-feeds", CACHE) as folder:
        yield from store.run(plan, book, folder)
        yield from live.run(plan, book, folder)
        yield from members.run(plan, book, folder)
        yield from rivals.run(plan, book, folder)
