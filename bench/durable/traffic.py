"""Rates of persistent messages with confirms, and the latency of a confirm for one publisher.

Fifty publishers share one queue. That is the best case for RabbitMQ with publishers that wait for each confirm:
with separate queues each would need its own fsync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from itertools import product

from bench.book import Book
from bench.broker.fresh_broker import sides
from bench.load import Load, measure, sample
from bench.plan import Plan
from bench.scenario import Comparison, Scenario, Side
from workshop.peers import Server

SAMPLE_S = 1.5
QUICK_SAMPLE_S = (0.08, 0.40)

# The time of a sample besides its traffic: connections, declarations, processes, removal.
OVERHEAD_S = 0.08

WINDOWS = (1, 20, 1000)
PUBLISHERS = (1, 50)
SIZES = {16: "16 B", 1024: "1 KiB"}

# A trial run must be short if each message waits for its own fsync.
TRIALS = (40, 4_000)


def load(publishers: int, window: int, size: int, consumed: bool) -> Load:
    scenarios = {"rate": rate_of(publishers, window, size, consumed)}
    arguments = f"--durable --sizes {size} --publishers {publishers} --confirm-window {window}"
    least, most = TRIALS
    trial = min(max(least, 10 * window * publishers), most)
    if consumed:
        arguments += " --prefetch 1000 --ack-every 1"
        return Load(scenarios, arguments, ("throughput",), trial)
    if (publishers, window) == (1, 1):
        scenarios["p50_us"] = wait_of(size)
        return Load(scenarios, arguments, ("serial",), trial)
    return Load(scenarios, arguments, ("publish",), trial)


def rate_of(publishers: int, window: int, size: int, consumed: bool) -> Scenario:
    name = f"{publishers}x-window-{window}-{size}b{'-consumed' * consumed}"
    title = f"{publishers} × window {window:,}, {SIZES[size]}{', consumed' * consumed}"
    # They have no aim, and RabbitMQ takes longest to prepare them.
    full_only = publishers > 1 and window > 1
    return Scenario(name, title, "messages/s", Comparison.TIMES_MORE, full_only)


def wait_of(size: int) -> Scenario:
    name, title = f"confirm-p50-{size}b", f"wait for a confirm, p50, {SIZES[size]}"
    return Scenario(name, title, "µs", Comparison.SHARE_OF_PEER)


LOADS = tuple(load(*each) for each in product(PUBLISHERS, WINDOWS, SIZES, (False, True)))
SCENARIOS = tuple(scenario for each in LOADS for scenario in each.scenarios.values())


def loads_of(plan: Plan) -> list[Load]:
    return [each for each in LOADS if any(map(plan.includes, each.scenarios.values()))]


def run(plan: Plan, book: Book, started: Mapping[Side, Future[Server]]) -> Iterator[str]:
    """The brokers were started before, and may have failed to."""
    loads = loads_of(plan)
    with book.measuring(*(name for each in loads for name in each.names)):
        servers = {side: future.result() for side, future in started.items()}
        # The very first durable queue costs RabbitMQ a second that belongs to no scenario.
        for server in servers.values():
            sample(LOADS[0], server, LOADS[0].trial)
        for done, each in enumerate(loads):
            with book.measuring(*each.names):
                measure(each, servers, sample_seconds(plan, len(loads) - done), plan, book)
            yield from (name for name in each.names if plan.wants(name))


def sample_seconds(plan: Plan, loads_left: int) -> float:
    """Return how long a sample may take, so that the quick form takes about a minute."""
    if not plan.quick:
        return SAMPLE_S
    runs = len(sides(plan)) * (plan.rounds + 1)  # the trials count as one round more
    fair_share = plan.seconds_left() / loads_left / runs - OVERHEAD_S
    least, most = QUICK_SAMPLE_S
    return min(max(fair_share, least), most)
