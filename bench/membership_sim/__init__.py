"""The simulation of the overlay's membership: nodes that join, leave, fail, stall, lose packets and are cut off.

    script.py   everything that a seed determines: the nodes, their clocks, and the plots of faults
    world.py    a network of nodes, each around one `Membership`
    judge.py    the rules, and whether what the nodes report is consistent with what has happened

A seed determines a world: `python -m bench.membership_sim SEED` repeats one. The full form runs 2,000 of them, or those
of `--seeds A-B`; the quick form as many as fit in its time. Each is run in two processes with different hash seeds,
whose traces must be equal. There is no peer; times are simulated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Final

from msgspec import Struct, field

from bench.book import Book
from bench.pair import Pair
from bench.plan import Plan
from bench.scenario import Sample, Side, limit

from .judge import percentile
from .script import draw
from .world import World

SEEDS: Final = range(1, 2_001)
AT_A_TIME: Final = 10
QUICK_RESERVE_S: Final = 5.0
PROBLEMS_SHOWN: Final = 20

VIOLATIONS = limit("violations", "rules that a world breaks", "worlds")
STRAY = limit("stray", "worlds that differ when they are repeated", "worlds")
SILENT = limit("silent-p99", "a silent crash is noticed by every node", "s")
RESET = limit("reset-p99", "a crash with reset connections is noticed", "s")
SCENARIOS = (VIOLATIONS, STRAY, SILENT, RESET)


class Tally(Struct):
    worlds: int = 0
    strays: int = 0
    problems: list[str] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)
    reset: list[float] = field(default_factory=list)
    traces: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.worlds += other.worlds
        self.strays += other.strays
        self.problems += other.problems
        self.silent += other.silent
        self.reset += other.reset


def worlds(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        world = World(draw(seed))
        verdict = world.run()
        tally.worlds += 1
        tally.silent += verdict.silent
        tally.reset += verdict.reset
        tally.traces[seed] = world.trace()
        if verdict.violations:
            first = verdict.violations[0]
            tally.problems.append(f"python -m bench.membership_sim {seed}: {first}")
    return tally


def run(plan: Plan, book: Book) -> Iterator[str]:
    total = Tally()
    wanted = plan.seeds or SEEDS
    with Pair[Tally]() as pair:
        for start in range(wanted.start, wanted.stop, AT_A_TIME):
            if plan.quick and plan.seconds_left() < QUICK_RESERVE_S:
                break
            chunk = range(start, min(start + AT_A_TIME, wanted.stop))
            first, second = pair.both(partial(worlds, chunk))
            first.strays = sum(first.traces[seed] != second.traces[seed] for seed in chunk)
            total.add(first)
    for problem in total.problems[:PROBLEMS_SHOWN]:
        print(problem, file=sys.stderr, flush=True)
    figures = {
        VIOLATIONS.name: float(len(total.problems)),
        STRAY.name: float(total.strays),
        SILENT.name: percentile(total.silent, 99),
        RESET.name: percentile(total.reset, 99),
    }
    details = {
        "worlds": total.worlds,
        "silent": len(total.silent),
        "silent_p50": percentile(total.silent, 50),
        "silent_max": percentile(total.silent, 100),
        "reset": len(total.reset),
        "reset_p50": percentile(total.reset, 50),
        "reset_max": percentile(total.reset, 100),
    }
    for name, value in figures.items():
        if plan.wants(name):
            # The figure of all worlds: a round more would repeat it.
            for _ in range(plan.rounds):
                book.enter(name, Side.RECADO, Sample(value, details))
            yield name
