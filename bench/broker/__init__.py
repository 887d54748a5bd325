"""The broker benchmark: recado and RabbitMQ under the same load, measured alternately.

    fresh_broker.py  a new broker: its start-up time, and its memory when idle
    growth.py        memory with idle connections, and with messages in a queue
    traffic.py       processor time per message, and round-trip times, for many kinds of load

Every sample of one broker is followed by one of the other, so that a machine that slows down affects both. The
figure of a scenario is the median of its rounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import processes
from bench.book import Book
from bench.broker import fresh_broker, growth, traffic
from bench.plan import Plan

SCENARIOS = (*traffic.SCENARIOS, *growth.SCENARIOS, *fresh_broker.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    yield from growth.run(plan, book)
    # Traffic comes last because it can use the remaining time.
    yield from traffic.run(plan, book)
    yield from fresh_broker.run(plan, book)
