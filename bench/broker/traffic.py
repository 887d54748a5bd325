"""Processor time per message under many kinds of load, and the time of a round trip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from bench.book import Book
from bench.broker.fresh_broker import fresh, sides
from bench.load import Load, measure
from bench.plan import Plan
from bench.scenario import Comparison, Scenario

SAMPLE_S = 1.0
QUICK_SAMPLE_S = (0.10, 0.40)

# The time of a sample besides its traffic: connections, declarations, processes.
OVERHEAD_S = 0.06


def processor(name: str, title: str, arguments: str = "", **more: Any) -> Load:
    scenario = Scenario(name, title, "CPU µs/message", Comparison.TIMES_LESS)
    return Load({"cpu_us": scenario}, arguments, **more)


def round_trip(share: str) -> Scenario:
    title = f"round trip, {share}"
    return Scenario(f"round-trip-{share}", title, "µs", Comparison.SHARE_OF_PEER)


LOADS = (
    processor("auto-ack-16b", "16 B, auto-ack"),
    processor("auto-ack-1k", "1 KiB, auto-ack", "--sizes 1024"),
    processor("auto-ack-16k", "16 KiB, auto-ack", "--sizes 16384"),
    processor("acks", "an ack each, prefetch 1,000", "--prefetch 1000 --ack-every 1"),
    processor("confirms", "confirms, window 1,000", "--confirm-window 1000"),
    processor(
        "confirm-each",
        "50 publishers, one confirm at a time",
        "--publishers 50 --queues 50 --confirm-window 1",
    ),
    processor("changing-routes", "another route every message", "--queues 10 --rotate"),
    processor("rich-properties", "rich properties, a message-id each", "--rich"),
    processor("fan-out-10", "fan-out to 10, per delivery", "--queues 10 --fan-out"),
    processor("consumers-4", "4 consumers on a queue", "--consumers 4"),
    # The rest is not in the friendly shape that a broker working on runs of messages hopes for.
    processor("mixed-sizes", "bodies of 16 B to 16 KiB", "--sizes 16,64,256,1024,4096,16384"),
    processor(
        "two-channels",
        "another channel number to consume",
        "--publish-channel 3 --consume-channel 7",
    ),
    processor(
        "one-by-one",
        "one message per write, acks",
        "--per-send 1 --prefetch 100 --ack-every 1",
    ),
    processor(
        "backlog",
        "published first, consumed later",
        "--confirm-window 1000",
        modes=("fill", "drain"),
    ),
    Load(
        {"p50_us": round_trip("p50"), "p99_us": round_trip("p99")},
        modes=("ping",),
        trial=200,
    ),
)
SCENARIOS = tuple(scenario for load in LOADS for scenario in load.scenarios.values())


def run(plan: Plan, book: Book) -> Iterator[str]:
    loads = [load for load in LOADS if plan.wants(*load.names)]
    if not loads:
        return
    with ExitStack() as stack, book.measuring(*(name for load in loads for name in load.names)):
        servers = {side: stack.enter_context(fresh(side, book)) for side in sides(plan)}
        for done, load in enumerate(loads):
            with book.measuring(*load.names):
                measure(load, servers, sample_seconds(plan, len(loads) - done), plan, book)
            yield from (name for name in load.names if plan.wants(name))


def sample_seconds(plan: Plan, loads_left: int) -> float:
    """Return how long a sample may take, so that the quick form takes about a minute."""
    if not plan.quick:
        return SAMPLE_S
    runs = len(sides(plan)) * (plan.rounds + 1)  # the trials count as one round more
    fair_share = plan.seconds_left() / loads_left / runs - OVERHEAD_S
    least, most = QUICK_SAMPLE_S
    return min(max(fair_share, least), most)
