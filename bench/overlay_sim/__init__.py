"""The simulation of the overlay: 3 to 60 nodes with users and topics, under all kinds of faults.

    script.py     everything that a seed determines: the nodes, the network, the faults, the number of commands
    world.py      a network of nodes, from start to end
    station.py    one node in its process: crashes, pauses, the drift of its clock
    history.py    what users and the network observe
    judge.py      whether that is consistent with the guarantees; verdict.py defines the rules

Everything is determined by a seed: `python -m bench.overlay_sim SEED` repeats one. The full form runs 5,000 of them, or
those of `--seeds A-B`, and continues where an earlier run with the same sources was interrupted; the quick form runs as
many as fit in its time, each of them in two processes with different hash seeds, whose traces must be equal. Each aim
is a limit that must never be exceeded, so every round has the total of all. There is no peer.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from bench.book import Book
from bench.feeds_sim.record import ROOT, Record, fingerprint
from bench.pair import Job, Pair
from bench.plan import Plan
from bench.scenario import Sample, Side, limit

from .verdict import Rule
from .world import live_through

SEEDS: Final = range(1, 5_001)
AT_A_TIME: Final = 20
QUICK_RESERVE_S: Final = 10.0
PROBLEMS_SHOWN: Final = 20
FILE: Final = ROOT / ".cache" / "overlay-sim" / "clean.json"
SOURCES: Final = ("src/recado/overlay", "src/recado/simulator", "bench/overlay_sim")

TITLES: Final = {
    Rule.OWNER: "two owners that acknowledge in one epoch",
    Rule.FIELD: "reads and writes that are not linearizable",
    Rule.LOST: "acknowledged, and lost",
    Rule.TWICE: "executed twice, or refused and executed",
    Rule.ORDER: "in another order than they were submitted",
    Rule.MISSED: "publishes that a subscription missed",
    Rule.REPEATED: "notifications given twice",
    Rule.PHANTOM: "notifications that should not have come",
    Rule.REPORT: "wrong reports of publishes",
    Rule.PERMISSION: "without a permission, or refused with one",
    Rule.PROGRESS: "not executed when all faults were over",
    Rule.PLACED: "ranges in the wrong place at the end",
    Rule.EVICTED: "healthy nodes taken for dead",
}
VIOLATIONS: Final = {rule: limit(rule.value, TITLES[rule], "cases") for rule in Rule}
FAULTS = limit("faults", "nodes that raised", "faults")
STRAY = limit("stray", "worlds that differ when they are repeated", "worlds")
DISTURBED = limit("disturbed", "of the topics by a failure, in (K + 1)/N", "")
SCENARIOS = (*VIOLATIONS.values(), FAULTS, STRAY, DISTURBED)


class Tally(Struct):
    worlds: int = 0
    known: int = 0
    """Seeds that an earlier run found clean."""
    violations: Counter[Rule] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    strays: int = 0
    traces: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.worlds += other.worlds
        self.known += other.known
        self.violations += other.violations
        self.counts += other.counts
        self.faults += other.faults
        self.strays += other.strays
        self.problems += other.problems

    @property
    def disturbed(self) -> float:
        return self.counts["disturbed ppm"] / 1_000_000 / max(1, self.counts["crashes alone"])


def worlds(seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        outcome = live_through(seed)
        tally.worlds += 1
        tally.violations.update(each.rule for each in outcome.verdict.violations)
        tally.counts.update(outcome.verdict.counts)
        tally.faults += len(outcome.faults)
        tally.traces[seed] = outcome.trace
        if outcome.problems:
            tally.problems.append(f"python -m bench.overlay_sim {seed}: {outcome.problems[0]}")
    return tally


def run(plan: Plan, book: Book) -> Iterator[str]:
    total = Tally()
    wanted = plan.seeds or SEEDS
    with Pair[Tally]() as pair:
        done = _quick(plan, pair, wanted) if plan.quick else _full(pair, wanted)
        for tally in done:
            total.add(tally)
    for problem in total.problems[:PROBLEMS_SHOWN]:
        print(problem, file=sys.stderr, flush=True)
    figures = {
        scenario.name: float(total.violations[rule]) for rule, scenario in VIOLATIONS.items()
    }
    figures |= {
        FAULTS.name: float(total.faults),
        STRAY.name: float(total.strays),
        DISTURBED.name: total.disturbed,
    }
    details = {"worlds": total.worlds, "known": total.known, **total.counts}
    for name, value in figures.items():
        if plan.wants(name):
            for _ in range(plan.rounds):
                book.enter(name, Side.RECADO, Sample(value, details))
            yield name


def _quick(plan: Plan, pair: Pair[Tally], wanted: range) -> Iterator[Tally]:
    for start in range(wanted.start, wanted.stop, AT_A_TIME):
        if plan.seconds_left() < QUICK_RESERVE_S:
            return
        yield _twice(pair, range(start, min(start + AT_A_TIME, wanted.stop)))


def _full(pair: Pair[Tally], wanted: range, file: Path = FILE) -> Iterator[Tally]:
    """Run the seeds that no earlier run found clean."""
    record = Record(file, fingerprint(ROOT, SOURCES))
    missing = record.missing(wanted)
    known = len(wanted) - sum(map(len, missing))
    if known:
        print(f"{known:,} seeds are known to be clean", flush=True)
        yield Tally(known=known)
    chunks = [
        range(start, min(start + AT_A_TIME, seeds.stop))
        for seeds in missing
        for start in range(seeds.start, seeds.stop, AT_A_TIME)
    ]
    jobs: Iterator[Job[Tally]] = (partial(worlds, chunk) for chunk in chunks[1:])
    for chunk in chunks[:1]:
        yield _enter(_twice(pair, chunk), chunk, record)
    for chunk, tally in zip(chunks[1:], pair.once(jobs), strict=True):
        yield _enter(tally, chunk, record)


def _enter(tally: Tally, chunk: range, record: Record) -> Tally:
    if not tally.problems:
        record.add(chunk)
    return tally


def _twice(pair: Pair[Tally], chunk: range) -> Tally:
    first, second = pair.both(partial(worlds, chunk))
    first.strays = sum(first.traces[seed] != second.traces[seed] for seed in chunk)
    return first
