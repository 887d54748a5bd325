"""A million texts at random. An aim here is a limit that must never be passed, so each figure is the worst."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from bench.book import Book
from bench.plan import Plan
from bench.scenario import Sample, Side, limit
from bench.selector.texts import Outcome, Texts, try_one

COUNT: Final = 1_000_000
QUICK_COUNT: Final = 100_000
PROGRESS_S: Final = 5.0
SHOWN: Final = 10  # faults

FAULTS = limit("faults", "texts with another effect", "texts")
SLOWEST = limit("slowest", "the slowest text", "ms")
SCENARIOS: Final = (FAULTS, SLOWEST)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS]
    if not plan.wants(*names):
        return
    seed = plan.choose_seed()
    each = (QUICK_COUNT if plan.quick else COUNT) // plan.rounds + 1
    laps = [lap(plan, seed, first, each) for first in range(0, each * plan.rounds, each)]
    faults, slowest = sum(own.faults for own in laps), max(own.slowest for own in laps)
    texts = sum(own.texts for own in laps)
    for own in laps:
        details = {"seed": seed, "taken_at": texts, "understood": own.understood}
        book.enter(FAULTS.name, Side.RECADO, Sample(faults, details))
        book.enter(SLOWEST.name, Side.RECADO, Sample(slowest * 1e3, details))
    yield from names


def make(seed: int, number: int) -> str:
    """One text of a run."""
    return Texts(f"{seed}/{number}").make()


class Lap(NamedTuple):
    texts: int
    understood: int
    faults: int
    slowest: float
    """In seconds."""


def lap(plan: Plan, seed: int, first: int, count: int) -> Lap:
    """Check so many texts; in the quick form fewer, if its time is over."""
    texts = understood = faults = 0
    slowest = 0.0
    begun = told = time.monotonic()
    for number in range(first, first + count):
        if plan.quick and plan.seconds_left() < 0:
            break
        texts += 1
        outcome = try_one(make(seed, number))
        understood += outcome.understood
        slowest = max(slowest, outcome.seconds)
        if outcome.fault is not None:
            faults += 1
            if faults <= SHOWN:
                tell(seed, number, outcome)
        now = time.monotonic()
        if now - told > PROGRESS_S:
            told = now
            rate = (number - first) / (now - begun)
            print(f"  {number:,} texts, {rate:,.0f} a second", file=sys.stderr, flush=True)
    return Lap(texts, understood, faults, slowest)


def tell(seed: int, number: int, outcome: Outcome) -> None:
    print(
        f"FAULT {seed} {number}: {outcome.fault}\n  {outcome.text!r}", file=sys.stderr, flush=True
    )
