"""Feeds under kill -9: publishers, subscribers, archives and the broker die at random, and return.

    people.py      the programs that are killed, on the public API only, and what they write down
    diary.py       what was written down, read again
    judge.py       whether that may be: pure, and tested by itself
    town.py        the processes, who is killed when, and the end in which all settles

A minute of it on recado, and one on RabbitMQ. An aim here is a limit that must never be passed, so every
round has the figure of both together: a median would forgive a loss. `--seed` repeats who dies when, but
not the scheduling of processes: a fault may need several runs to show again. The diaries of a run with a fault
are kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from bench.book import Book, NotMeasured
from bench.feeds_crash.judge import Kind, Verdict
from bench.feeds_crash.town import BROKERS, Outcome, live_through
from bench.plan import Plan
from bench.scenario import Sample, Side, limit
from workshop import peers
from workshop.peers import DidNotStart

SECONDS: Final = 60.0
QUICK_SECONDS: Final = 5.0
SHOWN: Final = 10


VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "confirmed, and missed by a subscriber", "messages"),
    Kind.PHANTOM: limit("phantom", "never published, or other bytes", "messages"),
    Kind.DISORDER: limit("disorder", "out of their publisher's order", "messages"),
    Kind.TWICE: limit("twice", "twice, though committed with the vector", "messages"),
    Kind.REPEATED: limit("repeated", "again, though the saved vector had it", "messages"),
    Kind.UNMARKED: limit("unmarked", "again, and not marked as uncertain", "messages"),
}
FAULTS = limit("faults", "programs that ended by themselves", "faults")
SCENARIOS = (*VIOLATIONS.values(), FAULTS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    seed = plan.told_seed()
    rng = Random(seed)
    seconds = QUICK_SECONDS if plan.quick else SECONDS
    with book.measuring(*names):
        try:
            outcomes = [one_run(broker, rng.randrange(2**32), seconds) for broker in BROKERS]
        except DidNotStart as error:
            raise NotMeasured(str(error)) from error
        enter(outcomes, plan.rounds, book)
    yield from names


def one_run(broker: str, seed: int, seconds: float) -> Outcome:
    """One town, in a folder that goes away unless there is something to look at."""
    with peers.temporary_folder("feeds-crash") as folder:
        outcome = live_through(broker, folder, seed, seconds)
        found = [*map(str, outcome.verdict.violations), *outcome.faults]
        for fault in found[:SHOWN]:
            print(f"FAULT {fault}", file=sys.stderr)
        if found:
            kept = Path(tempfile.gettempdir()) / f"feeds-crash-{broker}-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            print(f"{len(found)} faults on {broker}; the diaries are in {kept}", file=sys.stderr)
    print(f"  {broker}: {told(outcome)}", file=sys.stderr, flush=True)
    return outcome


def told(outcome: Outcome) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items()))


def enter(outcomes: list[Outcome], rounds: int, book: Book) -> None:
    """Every round's sample is the figure of all, with the counts of all beside it."""
    counts: Counter[str] = sum((each.counts for each in outcomes), Counter())
    verdict = Verdict([each for outcome in outcomes for each in outcome.verdict.violations])
    faults = sum(len(each.faults) for each in outcomes)
    for _ in range(rounds):
        for kind, scenario in VIOLATIONS.items():
            book.enter(scenario.name, Side.RECADO, Sample(len(verdict.of(kind)), dict(counts)))
        book.enter(FAULTS.name, Side.RECADO, Sample(faults, dict(counts)))
