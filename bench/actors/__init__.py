"""The benchmark of actors: within a process, between two processes, and the Trading System.

    local.py        tell and ask, compared with Pykka
    crowds.py       up to 100,000 actors
    remote.py       asks to another process, compared with a raw echo, xoscar, Thespian and Ray
    trading.py      the Trading System over AMQP, compared with point to point and with RabbitMQ
    peers.txt       the pins of the larger peers
    workers.py      starts the programs, and measures their processes
    programs/       a program for each library

All rounds are interleaved: one of recado, then one of the peer.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.actors import crowds, local, remote, trading
from bench.book import Book
from bench.durable import CACHE
from bench.plan import Plan
from workshop import peers

SCENARIOS = (*local.SCENARIOS, *crowds.SCENARIOS, *remote.SCENARIOS, *trading.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    book.peer = "peers"  # each scenario names its own
    CACHE.mkdir(exist_ok=True)
    with peers.temporary_folder("bench-actors", CACHE) as folder:
        yield from local.run(plan, book)
        yield from crowds.run(plan, book)
        yield from remote.run(plan, book)
        yield from trading.run(plan, book, folder)
