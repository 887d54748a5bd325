"""Memory with idle connections, and memory with messages that wait in a queue.

The full form fills new brokers in each round, up to the number in the name of the scenario. RabbitMQ takes ten
seconds for 10,000 connections and half a minute for a million messages, so the quick form stops earlier and
takes its rounds there, each slightly above the previous one. Nothing is extrapolated, because the memory of
RabbitMQ does not grow linearly. A smaller number is also the harder case for recado, because the memory of both
idle brokers has more weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.book import Book
from bench.broker.fresh_broker import fresh, sides
from bench.generator import generate, idle_connections
from bench.plan import Plan
from bench.processes import resident_megabytes
from bench.scenario import Comparison, Sample, Scenario
from workshop.peers import Server


@dataclass(frozen=True)
class Mark:
    """A number of connections or messages at which memory is measured."""

    scenario: Scenario
    number: int
    quick_number: int

    def number_in(self, plan: Plan) -> int:
        return self.quick_number if plan.quick else self.number


@dataclass(frozen=True)
class Growth:
    """Something that a broker holds, added bit by bit from mark to mark."""

    add: Callable[[ExitStack, Server, int], None]
    marks: tuple[Mark, ...]


def mark(name: str, title: str, number: int, quick_number: int) -> Mark:
    scenario = Scenario(name, title, "MB", Comparison.SHARE_OF_PEER)
    return Mark(scenario, number, quick_number)


def hold_connections(stack: ExitStack, server: Server, count: int) -> None:
    stack.enter_context(idle_connections(server, count))


def leave_messages(stack: ExitStack, server: Server, count: int) -> None:
    load = ("--messages", str(count), "--sizes", "100", "--confirm-window", "1000")
    generate(server, "fill", *load, seconds=300)


CONNECTIONS = Growth(
    hold_connections,
    (
        mark("connections-1000", "1,000 idle connections", 1_000, 1_000),
        mark("connections-10000", "10,000 idle connections", 10_000, 3_000),
    ),
)
MESSAGES = Growth(
    leave_messages,
    (mark("messages-1m", "1 M messages of 100 B queued", 1_000_000, 100_000),),
)
SCENARIOS = tuple(each.scenario for growth in (CONNECTIONS, MESSAGES) for each in growth.marks)


def run(plan: Plan, book: Book) -> Iterator[str]:
    for growth in (CONNECTIONS, MESSAGES):
        marks = [each for each in growth.marks if plan.wants(each.scenario.name)]
        if not marks:
            continue
        names = [each.scenario.name for each in marks]
        with book.measuring(*names):
            for path in paths(marks, plan):
                grow(growth, path, plan, book)
        yield from names


def paths(marks: Sequence[Mark], plan: Plan) -> list[list[tuple[int, Mark]]]:
    """Return, for each run of a broker, the numbers at which to stop and take a sample."""
    if plan.quick:
        return [[(stop, each) for each in marks for stop in stops_near(each, plan)]]
    return [[(each.number_in(plan), each) for each in marks]] * plan.rounds


def stops_near(each: Mark, plan: Plan) -> list[int]:
    """One stop for each round, one percent apart."""
    number = each.number_in(plan)
    return [number + turn * number // 100 for turn in range(plan.rounds)]


def grow(growth: Growth, path: Sequence[tuple[int, Mark]], plan: Plan, book: Book) -> None:
    """Run one broker of each side through all stops, alternately."""
    with ExitStack() as stack:
        servers = {side: stack.enter_context(fresh(side, book)) for side in sides(plan)}
        held = 0
        for stop, each in path:
            for side, server in servers.items():
                growth.add(stack, server, stop - held)
                details = {"taken_at": stop} if stop < each.number else {}
                sample = Sample(resident_megabytes(server.pid), details)
                book.enter(each.scenario.name, side, sample)
            held = stop
