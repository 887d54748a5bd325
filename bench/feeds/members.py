"""The cost of membership: subscribers that join at the same time, and then idle.

Ten processes have a tenth of the subscribers each, on one broker. They join at the same moment; the sample ends
when every one of them is in a view with all the others. Processor time is that of the broker and of the ten
processes together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.book import Book, NotMeasuredError
from bench.feeds.programs import pause, started
from bench.plan import Plan
from bench.processes import processor_seconds, resident_megabytes
from bench.program import Program
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers
from workshop.peers import Server

PROCESSES = 10
SIZES = (50, 500)
START_S = 6.0
"""For ten processes to start."""
SETTLE_S = 2.0
IDLE_S = 10.0


def _scenario(name: str, title: str, unit: str) -> Scenario:
    return Scenario(name, title, unit, Comparison.AT_MOST, full_only=True)


JOIN = {
    size: _scenario(f"members-join-{size}", f"{size} subscribers join at once", "s")
    for size in SIZES
}
JOIN_CPU = {
    size: _scenario(f"members-cpu-{size}", f"{size} subscribers join, processor time", "s")
    for size in SIZES
}
IDLE = {
    size: _scenario(f"members-idle-{size}", f"{size} idle subscribers", "% of a core")
    for size in SIZES
}
MEMORY = {
    size: _scenario(f"members-memory-{size}", f"a process with {size // PROCESSES} of {size}", "MB")
    for size in SIZES
}
SCENARIOS = tuple(kind[size] for size in SIZES for kind in (JOIN, JOIN_CPU, IDLE, MEMORY))


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    for size in SIZES:
        wanted = [kind[size] for kind in (JOIN, JOIN_CPU, IDLE, MEMORY)]
        names = [scenario.name for scenario in wanted if plan.includes(scenario)]
        if not names:
            continue
        with book.measuring(*names):
            try:
                with peers.recado(data=folder / f"members-broker-{size}") as server:
                    for turn in range(plan.rounds):
                        pause(plan)
                        sample = take(server, f"feed-{turn}", size)
                        for name in names:
                            book.enter(name, Side.RECADO, Sample(sample[name], sample))
            except peers.PeerStartError as error:
                raise NotMeasuredError(str(error).splitlines()[0]) from error
        yield from names


def take(server: Server, feed: str, size: int) -> dict[str, float]:
    """One figure for each scenario, by its name."""
    with ExitStack() as stack:
        moment = time.monotonic() + START_S
        each = size // PROCESSES
        programs = [
            stack.enter_context(
                started("members", server.url, feed, f"process-{number}", each, size, moment)
            )
            for number in range(PROCESSES)
        ]
        for program in programs:
            program.until_ready()
        if time.monotonic() > moment:
            raise NotMeasuredError(f"{PROCESSES} processes did not start within {START_S:g} s")
        time.sleep(moment - time.monotonic())
        before = used(server, programs)
        seconds = max(program.figures()["seconds"] for program in programs)
        joining = used(server, programs) - before
        time.sleep(SETTLE_S)
        before, begun = used(server, programs), time.monotonic()
        time.sleep(IDLE_S)
        idle = 100 * (used(server, programs) - before) / (time.monotonic() - begun)
        memory = sum(resident_megabytes(program.pid) for program in programs) / PROCESSES
    kinds = ((JOIN, seconds), (JOIN_CPU, joining), (IDLE, idle), (MEMORY, memory))
    return {kind[size].name: value for kind, value in kinds}


def used(server: Server, programs: list[Program]) -> float:
    """Processor seconds of all."""
    return sum(map(processor_seconds, (server.pid, *(program.pid for program in programs))))
