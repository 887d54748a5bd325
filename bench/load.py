"""A load, and how its samples are taken: on both brokers in turns, each for about as long.

A fixed number of messages would be over too soon on the one broker or take too long on the other,
so a trial run tells how many make a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.book import Book
from bench.generator import Figures, generate
from bench.plan import Plan
from bench.quiet import settle
from bench.scenario import Sample, Scenario, Side
from workshop.peers import Server

# Shorter trials are mostly the first messages, which are slower than the rest.
TRIAL_SECONDS = 0.05

SETTLE_SECONDS = 3.0
QUICK_SETTLE_SECONDS = 0.3

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


def measure(
    load: Load, servers: Mapping[Side, Server], seconds: float, plan: Plan, book: Book
) -> None:
    counts = {side: count_for(load, server, seconds) for side, server in servers.items()}
    for _ in range(plan.rounds):
        for side, server in servers.items():
            settle(QUICK_SETTLE_SECONDS if plan.quick else SETTLE_SECONDS)
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
    moved = total.get("deliveries") or total["messages"]
    total["messages"] = messages
    total["rate"] = moved / total["seconds"]
    total["cpu_us"] = total["broker_cpu_seconds"] / moved * 1e6
    total["generator_us"] = total["own_cpu_seconds"] / moved * 1e6
    total["generator_share"] = total["own_cpu_seconds"] / total["seconds"]
    return total


def added(total: Figures, more: Figures) -> Figures:
    return {key: total.get(key, 0.0) + value for key, value in more.items()}
