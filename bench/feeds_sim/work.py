"""The tasks of a process, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from .verdict import Rule
from .world import Outcome, live_through


class Tally(msgspec.Struct):
    """Of one piece of work, or of many."""

    worlds: int = 0
    known: int = 0
    """Seeds that an earlier run found clean."""
    violations: Counter[Rule] = msgspec.field(default_factory=Counter)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    faults: int = 0
    strays: int = 0
    traces: dict[int, str] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    """One for each world with a violation, as text, with the command that reproduces it."""

    def add(self, other: Tally) -> None:
        self.worlds += other.worlds
        self.known += other.known
        self.violations += other.violations
        self.counts += other.counts
        self.faults += other.faults
        self.strays += other.strays
        self.traces |= other.traces
        self.problems += other.problems

    def enter(self, outcome: Outcome) -> None:
        self.worlds += 1
        self.violations.update(each.rule for each in outcome.verdict.violations)
        self.counts.update(outcome.verdict.counts)
        self.faults += len(outcome.faults)
        self.traces[outcome.seed] = outcome.trace
        if outcome.problems:
            first, *more = outcome.problems
            also = f", and {len(more)} more" if more else ""
            self.problems.append(f"{again(outcome.seed)}: {first}{also}")


def again(seed: int) -> str:
    """Return the command that reproduces a world."""
    return f"python -m bench.feeds_sim {seed}"


def worlds(seeds: Iterable[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.enter(live_through(seed))
    return tally
