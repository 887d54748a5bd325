"""The tasks of a process, and their results.

There are three kinds: eras by their seeds; one era with a power loss at each of its moments; one small folder
with each of its bits flipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from bench.crash.verdict import Kind

from .era import Era, Outcome, Script, live_through
from .flips import Folder, Result
from .node import Shape
from .topology import DISTRICTS

FLIPS: Final = 2
NEVER: Final = 1 << 60

# A little of everything: topology, transactions with acks, dead letters, a stream, compaction.
SCRIPTED_SEED: Final = 181
SCRIPTED: Final = Script(
    tuple(each for each in DISTRICTS if each.name in ("books", "picked", "tapes", "attic")),
    Shape(900, 300, 300),
    incarnations=1,
    turns=30,
)
FOLDER_SEED: Final = 3
SMALL: Final = Script(
    tuple(each for each in DISTRICTS if each.name in ("orders", "tapes")),
    Shape(900, 300, 300),
    turns=8,
    moment=NEVER,
)


class Tally(msgspec.Struct):
    """Of one piece of work, or of many."""

    eras: int = 0
    violations: Counter[Kind] = msgspec.field(default_factory=Counter)
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    flipped: Counter[Result] = msgspec.field(default_factory=Counter)
    faults: int = 0
    strays: int = 0
    traces: dict[str, str] = msgspec.field(default_factory=dict)
    problems: list[str] = msgspec.field(default_factory=list)
    """As text, with the command that reproduces them."""

    def add(self, other: Tally) -> None:
        self.eras += other.eras
        self.violations += other.violations
        self.counts += other.counts
        self.flipped += other.flipped
        self.faults += other.faults
        self.strays += other.strays
        self.traces |= other.traces
        self.problems += other.problems

    def enter(self, name: str, outcome: Outcome) -> None:
        self.eras += 1
        self.violations.update(each.kind for each in outcome.verdict.violations)
        self.counts.update(outcome.verdict.counts)
        self.flipped.update(outcome.flipped)
        self.faults += len(outcome.faults)
        self.traces[name] = outcome.trace
        self.problems += [f"{name}: {problem}" for problem in outcome.problems]


def eras(seeds: Iterable[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.enter(str(seed), live_through(seed, Script(flips=FLIPS)))
    return tally


def count_moments() -> int:
    return at_moment(NEVER).moments


def at_moment(moment: int) -> Outcome:
    return live_through(SCRIPTED_SEED, msgspec.structs.replace(SCRIPTED, moment=moment))


def moments(which: Iterable[int]) -> Tally:
    tally = Tally()
    for moment in which:
        tally.enter(f"--moment {moment}", at_moment(moment))
    return tally


def small_folder() -> Folder:
    return Era(FOLDER_SEED, SMALL).populate()


def count_bits() -> int:
    return sum(1 for _ in small_folder().bits())


def bits(which: range) -> Tally:
    """Every so-many-th bit of the folder."""
    tally = Tally()
    folder = small_folder()
    for index, (file, bit) in enumerate(folder.bits()):
        if index in which:
            result = folder.flip(file, bit)
            tally.flipped[result] += 1
            if result is Result.SILENT:
                tally.problems.append(f"bit {bit} of {file} is wrong, and was not detected")
    return tally
