"""Many consumers of one queue, each on its own connection, and one publisher.

The server of the slides could not register 50. Every consumer must receive its turn: the spread is the difference
between the largest and the smallest number of messages that a consumer received.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.book import Book
from bench.load import QUICK_SETTLE_S, SETTLE_S
from bench.plan import Plan
from bench.population.crowd import END, JOINED, START, Course, Crowd, observe
from bench.population.published import CONSUMERS_REFUSED_COUNT
from bench.quiet import settle
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop.peers import Server

COUNTS = (30, 40, 50, 1_000, 10_000)
QUICK_LARGEST_COUNT = 1_000
TURNS_COUNT = 4
NOTE = (
    "the server of the slides supported something between 30 and 40 consumers, not"
    f" {CONSUMERS_REFUSED_COUNT}; a spread of 0: every consumer received its turn"
)
SECONDS, QUICK_SECONDS = 4.0, 0.4


def scenarios_of(count: int) -> dict[str, Scenario]:
    title = f"{count:,} consumers on a queue"
    too_many = count > QUICK_LARGEST_COUNT
    join = Scenario(
        f"consumers-join-{count}",
        f"{title}: joining",
        "ms",
        Comparison.SHARE_OF_PEER,
        full_only=too_many,
    )
    cpu = Scenario(
        f"consumers-cpu-{count}",
        f"{title}: CPU",
        "CPU µs/message",
        Comparison.TIMES_LESS,
        full_only=too_many,
    )
    spread = Scenario(
        f"consumers-spread-{count}",
        f"{title}: spread",
        "messages",
        Comparison.AT_MOST,
        full_only=too_many,
        note=NOTE if count >= CONSUMERS_REFUSED_COUNT else "",
    )
    return {"join": join, "cpu": cpu, "spread": spread}


SCENARIOS = tuple(each for count in COUNTS for each in scenarios_of(count).values())


def run(servers: Mapping[Side, Server], plan: Plan, book: Book, rounds: int) -> Iterator[str]:
    seconds = QUICK_SECONDS if plan.quick else SECONDS
    for count in COUNTS:
        scenarios = scenarios_of(count)
        names = [each.name for each in scenarios.values() if plan.includes(each)]
        if not names:
            continue
        crowd = Crowd(count, 1, TURNS_COUNT * count, seconds)
        with book.measuring(*names):
            for _ in range(rounds):
                for side, server in servers.items():
                    settle(QUICK_SETTLE_S if plan.quick else SETTLE_S)
                    course = observe(server, crowd)
                    for figure, value in values_of(course).items():
                        details = {"generator_share": course.generator_share}
                        book.enter(scenarios[figure].name, side, Sample(value, details))
        yield from names


def values_of(course: Course) -> dict[str, float]:
    end = course.marks[END]
    return {
        "join": course.between("seconds", START, JOINED) * 1e3,
        "cpu": course.between("broker_cpu_seconds", JOINED) / end["delivered"] * 1e6,
        "spread": end["most"] - end["fewest"],
    }
