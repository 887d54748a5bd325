"""Common parts of the scenarios on brokers: ours, then the simple program with pika, on each broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.book import Book
from bench.pipeline.ground import Ground
from bench.pipeline.plain import PlainSource
from bench.plan import Plan
from bench.scenario import Sample, Scenario, Side
from workshop import peers
from workshop.peers import Server

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

OURS: Final = "amqp"
PLAIN: Final = "pika"
"""The names of the formats."""
QUICK_SHARE: Final = 4
WARM_UP: Final = 1_000  # rows of the run that is not measured, in which Spark compiles

Rate = Callable[[Ground, str, str, int], float]
"""Returns the rows per second of a format, at the broker with this URL, for so many rows."""


def measure(
    plan: Plan, book: Book, ground: Ground, scenarios: Mapping[str, Scenario], rows: int, rate: Rate
) -> Iterator[str]:
    """All samples of these scenarios, one for each broker; yields the name of each when it is finished."""
    ground.spark.dataSource.register(PlainSource)
    count = rows // QUICK_SHARE if plan.quick else rows
    for broker, scenario in scenarios.items():
        if not plan.wants(scenario.name):
            continue
        with book.measuring(scenario.name), started(broker, ground.place()) as server:
            for format_ in (OURS, PLAIN) if plan.with_peer else (OURS,):
                rate(ground, format_, server.url, min(WARM_UP, count))
            for _ in range(plan.rounds):
                found = rate(ground, OURS, server.url, count)
                book.enter(scenario.name, Side.RECADO, Sample(found))
                if plan.with_peer:
                    found = rate(ground, PLAIN, server.url, count)
                    book.enter(scenario.name, Side.PEER, Sample(found))
        yield scenario.name


def started(broker: str, folder: Path) -> AbstractContextManager[Server]:
    return peers.recado(data=folder / "broker") if broker == "recado" else peers.rabbitmq()
