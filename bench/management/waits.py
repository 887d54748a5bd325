"""Round trips and throughput of a broker with many objects, while it is administered.

Administration is Prometheus, which reads the metrics of each object every 15 s, and two clients that repeat
`GET /api/queues`, without pages, and an export of all definitions, without a pause in between. *Ping* is the worse of
two round trips of an otherwise idle client: basic.qos, and a publish with its confirm (loadgen/probe.c). The
throughput is measured alternately without and with administration.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from bench.book import Book
from bench.broker.fresh_broker import sides
from bench.fairness.measurement import waits_during
from bench.generator import Figures
from bench.load import QUICK_SETTLE_S, SETTLE_S, Load, count_for, sample
from bench.management.administration import administered
from bench.management.scene import FULL_SIZE, QUICK_SIZE, Node, populated
from bench.plan import Plan
from bench.quiet import settle
from bench.scenario import Comparison, Sample, Scenario, Side

# At least one scrape, which may begin 15 s after Prometheus has started, and takes some seconds.
PHASE_S, QUICK_PHASE_S = 25.0, 2.0
LONGEST_S = 300  # of a sample of the throughput

PING_P99, PING_MAX = (
    Scenario(f"ping-{figure}", f"round trip, {figure}", "ms", Comparison.AT_MOST)
    for figure in ("p99", "max")
)
LOSS = Scenario("throughput-loss", "throughput lost", "%", Comparison.AT_MOST)
LIST, EXPORT, SCRAPE = (
    Scenario(name, title, "s", Comparison.SHARE_OF_PEER, full_only=True)
    for name, title in (
        ("list", "GET /api/queues"),
        ("export", "GET /api/definitions"),
        ("scrape", "scrape of Prometheus"),
    )
)
SCENARIOS = (PING_P99, PING_MAX, LIST, EXPORT, SCRAPE, LOSS)
DURATIONS: Mapping[str, Scenario] = MappingProxyType(
    {"list_seconds": LIST, "export_seconds": EXPORT, "scrape_seconds": SCRAPE}
)
TRAFFIC = Load({"rate": LOSS}, "--sizes 100 --confirm-window 1000 --prefetch 1000 --ack-every 1")


def run(folder: Path, plan: Plan, book: Book) -> Iterator[str]:
    """Take the samples of both brokers, one after the other; yield the names of the finished scenarios.

    Two brokers with thousands of connections each would disturb one another.
    """
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    if not names:
        return
    size = QUICK_SIZE if plan.quick else FULL_SIZE
    for side in sides(plan):
        if side is Side.PEER and plan.quick:
            continue  # it needs a minute for its queues
        with (
            book.measuring(*names),
            populated(side, size, folder / side.value, book) as node,
        ):
            measure(side, node, plan, book)
    yield from (name for name in names if book.samples(name, Side.RECADO))


def measure(side: Side, node: Node, plan: Plan, book: Book) -> None:
    phase_s = QUICK_PHASE_S if plan.quick else PHASE_S
    details = {"taken_at": float(QUICK_SIZE.queues)} if plan.quick else {}
    for _ in range(plan.rounds):
        settle(QUICK_SETTLE_S if plan.quick else SETTLE_S)
        with administered(node) as work:
            waits = waits_during(node.server, lambda: time.sleep(phase_s)).details
            requests = work.figures()
        found = {**waits, **requests, **details}
        book.enter(PING_P99.name, side, Sample(waits["p99_ms"], found))
        book.enter(PING_MAX.name, side, Sample(waits["max_ms"], found))
        for figure, scenario in DURATIONS.items():
            if figure in requests:
                book.enter(scenario.name, side, Sample(requests[figure], details))
    count = count_for(TRAFFIC, node.server, phase_s)
    for _ in range(plan.rounds):
        plain = sample(TRAFFIC, node.server, count, LONGEST_S)
        with administered(node) as work:
            burdened = sample(TRAFFIC, node.server, count, LONGEST_S)
            requests = work.figures()
        book.enter(LOSS.name, side, loss(plain, burdened, requests | details))


def loss(plain: Figures, burdened: Figures, details: Figures) -> Sample:
    """Return how much of the throughput is lost, in percent."""
    rates = {"rate": burdened["rate"], "rate_without": plain["rate"]}
    return Sample(100 * (1 - burdened["rate"] / plain["rate"]), rates | details)
