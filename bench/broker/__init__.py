"""The broker benchmark: recado and RabbitMQ side by side, under the same load, in turns.

    life.py     a fresh broker: how soon it answers, and what it takes when idle
    growth.py   memory with idle connections, memory with messages in a queue
    traffic.py  processor time per message, and round trips, of many kinds of load

Every sample of one side is followed by one of the other, so that a machine that slows down slows
down both. The figures of a scenario are the medians of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import processes
from bench.book import Book
from bench.broker import growth, life, traffic
from bench.plan import Plan

SCENARIOS = (*traffic.SCENARIOS, *growth.SCENARIOS, *life.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Takes all samples; yields the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    yield from growth.run(plan, book)
    # Traffic comes last because it can use whatever time is left.
    yield from traffic.run(plan, book)
    yield from life.run(plan, book)
