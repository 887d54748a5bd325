"""The benchmark of feeds: what persistence costs, what an archive takes and gives, and how others do.

    live.py     a persistent feed beside a volatile one with one more plain subscriber: rate and latency
    store.py    an archive by itself: messages in, and out again as columns and as objects
    members.py  what membership costs: 50 and 500 subscribers join at once, and idle
    rivals.py   publishing with persistence and replay, beside NATS JetStream and RabbitMQ streams
    clients/    the programs that publish, subscribe and replay, each a process of its own

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
    """Takes all samples; yields the name of each scenario when it is finished."""
    book.peer = "peers"  # each scenario names its own
    processes.allow_many_open_files()
    CACHE.mkdir(exist_ok=True)
    with peers.temporary_folder("bench-feeds", CACHE) as folder:
        yield from store.run(plan, book, folder)
        yield from live.run(plan, book, folder)
        yield from members.run(plan, book, folder)
        yield from rivals.run(plan, book, folder)
