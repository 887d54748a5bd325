"""Feeds under siege: publishers, subscribers, archives and broker are killed, stopped and cut off at random.

    programs.py    the programs under siege, on the public API only, and what they write to their diaries
    diary.py       the diaries, read again: the evidence
    judge.py       whether the evidence is consistent with the guarantees: pure, each rule with a test
    schedule.py    which fault happens to which program when: pure, decided by a seed
    processes.py   the programs and the broker as processes
    proxy.py       their connections to the broker, which can be cut
    partition.py   the same on UDP, where packets are lost instead
    siege.py       one siege from the start to the verdict

Ten minutes each on recado, RabbitMQ and UDP. Each scenario is a limit that must never be exceeded, so every
round has the sum of all transports: a median would forgive a loss. `--seed` repeats the schedule of faults,
but not the scheduling of processes: a fault of the protocol may need several runs to show again. Diaries, logs
and archives of a run with a violation are kept. One siege by itself, of any length:

    python -m bench.feeds_siege TRANSPORT --seed N --seconds S
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from bench.book import Book, NotMeasuredError
from bench.feeds_siege.judge import Kind, Verdict
from bench.feeds_siege.schedule import FULL, QUICK, Intensity
from bench.feeds_siege.siege import TRANSPORTS, Outcome, besiege
from bench.plan import Plan
from bench.scenario import Sample, Side, limit
from workshop import peers
from workshop.peers import PeerStartError

SECONDS: Final = 600.0
QUICK_S: Final = 6.0
SHOWN_COUNT: Final = 10
BAR_WIDTH: Final = 30
PLAIN_INTERVAL_S: Final = 30.0
"""How often progress is printed if there is no terminal for a progress bar."""


VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "owed to a subscriber and never received", "messages"),
    Kind.PHANTOM: limit("phantom", "never published, or changed bytes", "messages"),
    Kind.DISORDER: limit("disorder", "out of their publisher's order", "messages"),
    Kind.GAP: limit("gap", "left out within an incarnation, not reported as lost", "messages"),
    Kind.TWICE: limit("twice", "twice, though committed with the vector", "messages"),
    Kind.REPEATED: limit("repeated", "again, though the saved vector covers it", "messages"),
    Kind.UNMARKED: limit("unmarked", "again, and not marked as uncertain", "messages"),
    Kind.STALE: limit("stale", "older than a subscriber without recovery", "messages"),
    Kind.FALSE: limit("false-loss", "reported as lost, and not lost", "messages"),
    Kind.HOLE: limit("hole", "missing in an archive in the end", "messages"),
    Kind.CLASS: limit("class", "wrongly classified by an archive", "messages"),
    Kind.VIEWS: limit("views", "views on which members disagree", "views"),
}
FAULTS = limit("faults", "programs that ended by themselves", "programs")
SCENARIOS = (*VIOLATIONS.values(), FAULTS)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    rng = Random(plan.choose_seed())
    seconds, intensity = (QUICK_S, QUICK) if plan.quick else (SECONDS, FULL)
    with book.measuring(*names):
        try:
            outcomes = [
                one_siege(transport, rng.randrange(2**32), seconds, intensity)
                for transport in TRANSPORTS
            ]
        except PeerStartError as error:
            raise NotMeasuredError(str(error)) from error
        enter(outcomes, plan.rounds, book)
    yield from names


def one_siege(transport: str, seed: int, seconds: float, intensity: Intensity) -> Outcome:
    """Run one siege, in a folder that is deleted unless there is a violation to examine."""
    with peers.temporary_folder("feeds-siege") as folder:
        progress = Progress(transport)
        outcome = besiege(
            transport, folder, seed, seconds, intensity=intensity, report=progress.show
        )
        progress.end()
        for problem in outcome.problems[:SHOWN_COUNT]:
            print(f"FAULT {problem}", file=sys.stderr)
        if outcome.problems:
            kept = Path(tempfile.gettempdir()) / f"feeds-siege-{transport}-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            print(f"  the diaries are in {kept}", file=sys.stderr)
    print(f"  {summary(outcome)}", file=sys.stderr, flush=True)
    return outcome


def summary(outcome: Outcome) -> str:
    """The verdict in a line."""
    figures = {kind.value: outcome.verdict.count(kind) for kind in Kind}
    figures["faults"] = len(outcome.faults)
    found = ", ".join(f"{count:,} {name}" for name, count in figures.items() if count)
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items()))
    verdict = f"VIOLATED ({found})" if found else "held"
    return f"{outcome.transport}, seed {outcome.seed}: {verdict}; {counts}"


class Progress:
    """A bar on a terminal, else a line now and then."""

    def __init__(self, transport: str) -> None:
        self._transport = transport
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = -PLAIN_INTERVAL_S

    def show(self, share: float, phase: str) -> None:
        if self._is_terminal:
            done = round(share * BAR_WIDTH)
            bar = "█" * done + "░" * (BAR_WIDTH - done)
            print(f"\r\x1b[K  {self._transport} {bar} {phase[:60]}", end="", file=sys.stderr)
        elif time.monotonic() >= self._shown_at + PLAIN_INTERVAL_S:
            print(f"  {self._transport} {share:4.0%} {phase}", file=sys.stderr)
            self._shown_at = time.monotonic()
        sys.stderr.flush()

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def enter(outcomes: list[Outcome], rounds: int, book: Book) -> None:
    """Enter the sum over all transports as the sample of each round, with all counts as details."""
    counts: Counter[str] = sum((each.counts for each in outcomes), Counter())
    verdict = Verdict([each for outcome in outcomes for each in outcome.verdict.violations])
    faults = sum(len(each.faults) for each in outcomes)
    for _ in range(rounds):
        for kind, scenario in VIOLATIONS.items():
            book.enter(scenario.name, Side.RECADO, Sample(verdict.count(kind), dict(counts)))
        book.enter(FAULTS.name, Side.RECADO, Sample(faults, dict(counts)))
