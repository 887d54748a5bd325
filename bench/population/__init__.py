"""The population benchmark: CPU, memory, bytes and packets with 0 to 10,000 clients.

    published.py  the figures of the slides "Servidor AMQP", which this benchmark repeats
    crowd.py      one run of the load generator, whose lines come while it runs
    clients.py    30 % consumers and 70 % publishers, which stay connected or arrive one by one
    consumers.py  many consumers of one queue, which the server of the slides did not support
    tables.py     the tables beside those of the slides
    plots.py      the plots

Every sample of one broker is followed by one of the other. Bytes and packets are counted by the kernel for each
socket of the clients (TCP_INFO) instead of by a capture: the counters include every segment of these
connections, nothing else on the loopback interface, and cost no CPU time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import processes
from bench.aims import Result
from bench.book import Book
from bench.broker.fresh_broker import fresh, sides
from bench.plan import Plan
from bench.population import clients, consumers, plots, tables

SCENARIOS = (*clients.SCENARIOS, *consumers.SCENARIOS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished.

    The full form starts new brokers for each round. Within a round the populations grow, because brokers do not
    return all memory of a larger one.
    """
    processes.allow_many_open_files()
    names = [scenario.name for scenario in SCENARIOS if plan.includes(scenario)]
    starts, rounds = (1, plan.rounds) if plan.quick else (plan.rounds, 1)
    for start in range(starts):
        with ExitStack() as stack, book.measuring(*names):
            servers = {side: stack.enter_context(fresh(side, book)) for side in sides(plan)}
            for part in (clients, consumers):
                for finished in part.run(servers, plan, book, rounds):
                    if start == starts - 1:
                        yield finished


def illustrate(peer: str, results: Sequence[Result], plan: Plan, file: Path) -> list[Path]:
    """Write tables and plots beside the JSON file; return their paths."""
    written = [tables.write(peer, results, plan, file.with_suffix(".md"))]
    return written + plots.draw_all(peer, results, plan, file)
