"""Memory with idle connections, and memory with messages that wait in a queue.

The full form starts new brokers for each round and fills them to the number in the scenario's
name. The quick form has no time for 10,000 connections or a million messages in RabbitMQ: it fills
one pair of brokers step by step, a round at each, and takes what a step added as the slope of a
line to the full number. Memory of both brokers grows that way from the first thousand on; the
sample says at which number it was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bench.book import Book
from bench.broker.life import fresh, sides
from bench.generator import generate, idle_connections
from bench.plan import Plan
from bench.processes import resident_megabytes
from bench.scenario import Comparison, Sample, Scenario
from workshop.peers import Server


def memory(name: str, title: str) -> Scenario:
    return Scenario(name, title, "MB", Comparison.SHARE_OF_PEER)


def hold_connections(stack: ExitStack, server: Server, count: int) -> None:
    stack.enter_context(idle_connections(server, count))


def leave_messages(stack: ExitStack, server: Server, count: int) -> None:
    load = ("--messages", str(count), "--sizes", "100", "--confirm-window", "1000")
    generate(server, "fill", *load, seconds=300)


@dataclass(frozen=True)
class Growth:
    """Something that a broker holds, added in steps; and the numbers that scenarios ask for."""

    scenarios: dict[int, Scenario]
    add: Callable[[ExitStack, Server, int], None]
    steps: tuple[int, ...]
    quick_step: int

    @property
    def names(self) -> list[str]:
        return [scenario.name for scenario in self.scenarios.values()]


CONNECTIONS = Growth(
    scenarios={
        1_000: memory("connections-1000", "1,000 idle connections"),
        10_000: memory("connections-10000", "10,000 idle connections"),
    },
    add=hold_connections,
    steps=(1_000, 9_000),
    quick_step=1_000,
)
MESSAGES = Growth(
    scenarios={1_000_000: memory("messages-1m", "1 M messages of 100 B in a queue")},
    add=leave_messages,
    steps=(1_000_000,),
    quick_step=30_000,
)
SCENARIOS = (*CONNECTIONS.scenarios.values(), *MESSAGES.scenarios.values())


def run(plan: Plan, book: Book) -> Iterator[str]:
    for growth in (CONNECTIONS, MESSAGES):
        names = [name for name in growth.names if plan.wants(name)]
        if not names:
            continue
        with book.measuring(*names):
            if plan.quick:
                grow(growth, (growth.quick_step,) * plan.rounds, plan, book)
            else:
                for _ in range(plan.rounds):
                    grow(growth, growth.steps, plan, book)
        yield from names


def grow(growth: Growth, steps: tuple[int, ...], plan: Plan, book: Book) -> None:
    """One life of a broker on each side, step by step in turns."""
    with ExitStack() as stack:
        servers = {side: stack.enter_context(fresh(side, book)) for side in sides(plan)}
        empty = {side: resident_megabytes(server.pid) for side, server in servers.items()}
        held = 0
        for step in steps:
            held += step
            for side, server in servers.items():
                growth.add(stack, server, step)
                grown = resident_megabytes(server.pid)
                for wanted, scenario in growth.scenarios.items():
                    if plan.quick or held == wanted:
                        value = extended(empty[side], grown, held, wanted)
                        sample = Sample(value, {"measured_at": held, "measured": grown})
                        book.enter(scenario.name, side, sample)


def extended(empty: float, grown: float, held: int, wanted: int) -> float:
    """The memory at `wanted`, on the line through the empty broker and the one with `held`."""
    return empty + (grown - empty) * wanted / held
