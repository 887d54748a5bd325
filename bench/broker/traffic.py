"""Processor time per message under many kinds of load, and the time of a round trip.

A sample is a run of the load generator that lasts about as long on either broker, because a fixed
number of messages would be over too soon on the one or take too long on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.book import Book
from bench.broker.life import fresh, sides
from bench.generator import Figures, generate
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop.peers import Server

SAMPLE_SECONDS = 1.0
QUICK_SAMPLE_SECONDS = (0.10, 0.40)

# A trial run tells how many messages make a sample. Shorter ones are mostly the first messages,
# which are slower than the rest.
TRIAL_SECONDS = 0.05
# What a sample takes beyond its traffic: connections, declarations, processes.
OVERHEAD_SECONDS = 0.06

# What is kept of the figures of a run, beside the one that the scenario is about.
DETAILS = ("messages", "seconds", "rate", "cpu_us", "generator_us", "generator_share")


@dataclass(frozen=True)
class Load:
    """Arguments of the load generator. Several modes are run one after the other, as one sample."""

    scenarios: Mapping[str, Scenario]  # by the figure that they show
    arguments: str = ""
    modes: tuple[str, ...] = ("throughput",)
    trial: int = 2_000  # messages that are quick to send and yet tell the rate

    @property
    def names(self) -> list[str]:
        return [scenario.name for scenario in self.scenarios.values()]


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
    """How long a sample may take, so that the quick form keeps its minute."""
    if not plan.quick:
        return SAMPLE_SECONDS
    runs = len(sides(plan)) * (plan.rounds + 1)  # the trials count as one round more
    fair_share = plan.seconds_left() / loads_left / runs - OVERHEAD_SECONDS
    least, most = QUICK_SAMPLE_SECONDS
    return min(max(fair_share, least), most)


def measure(
    load: Load, servers: Mapping[Side, Server], seconds: float, plan: Plan, book: Book
) -> None:
    counts = {side: count_for(load, server, seconds) for side, server in servers.items()}
    for _ in range(plan.rounds):
        for side, server in servers.items():
            figures = sample(load, server, counts[side])
            details = {key: figures[key] for key in DETAILS if key in figures}
            for figure, scenario in load.scenarios.items():
                book.enter(scenario.name, side, Sample(figures[figure], details))


def count_for(load: Load, server: Server, seconds: float) -> int:
    """How many messages keep this broker busy for so long, from a trial run or two."""
    count = load.trial
    trial = min(TRIAL_SECONDS, seconds / 2)
    while True:
        spent = sample(load, server, count)["seconds"]
        if spent >= trial:
            return max(int(count * seconds / spent), load.trial // 10)
        # The first messages cost more than the rest, hence a little further than the rate says.
        count = int(count * max(2.0, 1.5 * trial / spent))


def sample(load: Load, server: Server, messages: int) -> Figures:
    """One sample: the figures of all its runs, added up and put in relation to the messages."""
    total: Figures = {}
    for mode in load.modes:
        arguments = ("--messages", str(messages), *load.arguments.split())
        total |= added(total, generate(server, mode, *arguments))
    moved = total.get("deliveries", total["messages"])
    total["messages"] = messages
    total["rate"] = moved / total["seconds"]
    total["cpu_us"] = total["broker_cpu_seconds"] / moved * 1e6
    total["generator_us"] = total["own_cpu_seconds"] / moved * 1e6
    total["generator_share"] = total["own_cpu_seconds"] / total["seconds"]
    return total


def added(total: Figures, more: Figures) -> Figures:
    return {key: total.get(key, 0.0) + value for key, value in more.items()}
