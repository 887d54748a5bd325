"""The time from a start after kill -9 until a broker delivers the first of the messages in its queue.

It is measured from the start of the process to the first message at a consumer, in seconds per million
messages: the quick form uses fewer messages, and the constant part of its time then counts against recado. In
each round a broker is filled once and killed once; at the end all messages must be there, in order. RabbitMQ
takes minutes for a million messages and has no aim here, so it is measured once, and in the full form only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.book import Book
from bench.broker.fresh_broker import fresh
from bench.durable.shape import RUNS, SINGLES, Shape
from bench.generator import generate
from bench.plan import Plan
from bench.processes import resident_megabytes
from bench.scenario import Comparison, Sample, Scenario, Side

MESSAGES = 1_000_000
QUICK_MESSAGES = 100_000
SECONDS = 1800


@dataclass(frozen=True)
class Backlog:
    scenario: Scenario
    shape: Shape
    size: int


def backlog(name: str, title: str, shape: Shape, size: int) -> Backlog:
    scenario = Scenario(f"restart-{name}", f"restart, {title}", "s/million", Comparison.AT_MOST)
    return Backlog(scenario, shape, size)


BACKLOGS = (
    backlog("1k-runs", "1 M of 1 KiB published in runs", RUNS, 1024),
    backlog("16b-singles", "1 M of 16 B published one by one", SINGLES, 16),
)
SCENARIOS = tuple(each.scenario for each in BACKLOGS)


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    for each in BACKLOGS:
        name = each.scenario.name
        if not plan.wants(name):
            continue
        with book.measuring(name):
            for side, rounds in rounds_of(plan).items():
                measure(each, side, rounds, plan, book, folder / f"{name}-{side.value}")
        yield name


def rounds_of(plan: Plan) -> dict[Side, int]:
    rounds = {Side.RECADO: plan.rounds}
    if plan.with_peer and not plan.quick:
        rounds[Side.PEER] = 1
    return rounds


def measure(each: Backlog, side: Side, rounds: int, plan: Plan, book: Book, data: Path) -> None:
    total = QUICK_MESSAGES if plan.quick else MESSAGES
    load = ["--durable", "--sizes", str(each.size), "--messages", str(total)]
    load += each.shape.arguments
    with fresh(side, book, data) as server:
        generate(server, "fill", *load, seconds=SECONDS)
    for turn in range(rounds):
        begun = time.monotonic()
        with fresh(side, book, data) as server:
            spent = generate(server, "first")["moment"] - begun
            details = {"seconds": spent, "resident": resident_megabytes(server.pid)}
            if total < MESSAGES:
                details["taken_at"] = total
            book.enter(each.scenario.name, side, Sample(spent / total * 1e6, details))
            if turn == rounds - 1:
                generate(server, "drain", *load, seconds=SECONDS)
