"""Memory of recado while millions of persistent messages pass through a queue, and while they wait in it.

The figure is the peak resident memory, so no peak between two measurements is missed. The quick form stops at
fewer messages, with the same limit. All rounds are of one run of a broker: each sample is the maximum of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.book import Book
from bench.broker.fresh_broker import fresh
from bench.durable.shape import RUNS, SINGLES, Shape
from bench.generator import generate
from bench.plan import Plan
from bench.processes import peak_megabytes
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop.peers import Server

MESSAGES = 10_000_000
QUICK_MESSAGES = {"passing": 500_000, RUNS.name: 500_000, SINGLES.name: 50_000}
SECONDS = 1800

# Shares of all messages after which memory is measured; it must not grow after the first.
STOPS = (0.1, 0.5, 1.0)

PASSING = Scenario("passing", "growth while 10 M pass", "MB", Comparison.AT_MOST)
QUEUED = {
    shape: Scenario(
        f"queued-{shape.name}", f"10 M of 100 B queued, {shape.title}", "MB", Comparison.AT_MOST
    )
    for shape in (RUNS, SINGLES)
}
SCENARIOS = (PASSING, *QUEUED.values())


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    if plan.wants(PASSING.name):
        with (
            book.measuring(PASSING.name),
            fresh(Side.RECADO, book, folder / PASSING.name) as server,
        ):
            passing(server, plan, book)
        yield PASSING.name
    for shape, scenario in QUEUED.items():
        if not plan.wants(scenario.name):
            continue
        with (
            book.measuring(scenario.name),
            fresh(Side.RECADO, book, folder / scenario.name) as server,
        ):
            queued(server, shape, plan, book)
        yield scenario.name


def passing(server: Server, plan: Plan, book: Book) -> None:
    """Published and consumed at the same time, with acks: the queue is short all the while."""
    total = number(PASSING.name, plan)
    load = ["--durable", "--sizes", "100", "--confirm-window", "1000"]
    load += ["--prefetch", "1000", "--ack-every", "1"]
    passed = 0
    peaks = {}
    for stop in (int(share * total) for share in STOPS):
        generate(server, "throughput", "--messages", str(stop - passed), *load, seconds=SECONDS)
        passed = stop
        peaks[f"peak_at_{stop}"] = peak_megabytes(server.pid)
    first, *_, last = peaks.values()
    enter(PASSING, last - first, total, peaks, plan, book)


def queued(server: Server, shape: Shape, plan: Plan, book: Book) -> None:
    """All published before one is consumed; then all consumed, and none may be missing."""
    total = number(shape.name, plan)
    load = ("--durable", "--sizes", "100", "--messages", str(total), *shape.arguments)
    idle = peak_megabytes(server.pid)
    generate(server, "fill", *load, seconds=SECONDS)
    filled = peak_megabytes(server.pid)
    generate(server, "drain", *load, seconds=SECONDS)
    drained = peak_megabytes(server.pid)
    peaks = {"peak_idle": idle, "peak_filled": filled, "peak_drained": drained}
    enter(QUEUED[shape], drained, total, peaks, plan, book)


def number(name: str, plan: Plan) -> int:
    return QUICK_MESSAGES[name] if plan.quick else MESSAGES


def enter(
    scenario: Scenario, worst: float, total: int, peaks: dict[str, float], plan: Plan, book: Book
) -> None:
    details = {**peaks, **({"taken_at": total} if total < MESSAGES else {})}
    for _ in range(plan.rounds):
        book.enter(scenario.name, Side.RECADO, Sample(worst, details))
