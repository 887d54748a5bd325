"""Loads, and how samples of them are taken: alternately on both brokers, each for about the same time.

A fixed number of messages would be too short on the one broker or too long on the other, so a trial run
determines the number of messages of a sample.
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

# In shorter trials the first messages, which are slower than the rest, would dominate.
TRIAL_S = 0.05

LONGEST_S = 100  # of a run

SETTLE_S = 3.0
QUICK_SETTLE_S = 0.3

# The figures of a run that are reported besides the one that the scenario is about.
DETAILS = ("messages", "seconds", "rate", "cpu_us", "generator_us", "generator_share")


@dataclass(frozen=True)
class Load:
    """Arguments of the load generator. Several modes run one after the other, as one sample."""

    scenarios: Mapping[str, Scenario]  # by the name of their figure
    arguments: str = ""
    modes: tuple[str, ...] = ("throughput",)
    trial: int = 2_000  # messages of the first trial run

    @property
    def names(self) -> list[str]:
        return [scenario.name for scenario in self.scenarios.values()]


def measure(
    load: Load, servers: Mapping[Side, Server], seconds: float, plan: Plan, book: Book
) -> None:
    counts = {side: count_for(load, server, seconds) for side, server in servers.items()}
    for _ in range(plan.rounds):
        for side, server in servers.items():
            settle(QUICK_SETTLE_S if plan.quick else SETTLE_S)
            figures = sample(load, server, counts[side])
            details = {key: figures[key] for key in DETAILS if key in figures}
            for figure, scenario in load.scenarios.items():
                book.enter(scenario.name, side, Sample(figures[figure], details))


def count_for(load: Load, server: Server, seconds: float) -> int:
    """Return the number of messages that keep this broker busy for `seconds`, found by trial runs."""
    count = load.trial
    trial = min(TRIAL_S, seconds / 2)
    while True:
        spent = sample(load, server, count)["seconds"]
        if spent >= trial:
            return max(int(count * seconds / spent), load.trial // 10)
        # The first messages take longer than the rest, so increase the count by more than the rate suggests.
        count = int(count * max(2.0, 1.5 * trial / spent))


def sample(load: Load, server: Server, messages: int, seconds: int = LONGEST_S) -> Figures:
    """Take one sample: add up the figures of its runs, and divide them by the messages.

    A run takes at most `seconds`. Raises NotMeasuredError.
    """
    total: Figures = {}
    for mode in load.modes:
        arguments = ("--messages", str(messages), *load.arguments.split())
        total |= added(total, generate(server, mode, *arguments, seconds=seconds))
    moved = total.get("deliveries") or total["messages"]
    total["messages"] = messages
    total["rate"] = moved / total["seconds"]
    total["cpu_us"] = total["broker_cpu_seconds"] / moved * 1e6
    total["generator_us"] = total["own_cpu_seconds"] / moved * 1e6
    total["generator_share"] = total["own_cpu_seconds"] / total["seconds"]
    return total


def added(total: Figures, more: Figures) -> Figures:
    return {key: total.get(key, 0.0) + value for key, value in more.items()}
