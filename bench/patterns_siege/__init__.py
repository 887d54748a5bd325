"""Patterns under siege: workers and broker are killed, and what they have promised is checked from outside.

    worker.py      the programs under siege, on the public API only, and what they note
    collector.py   the observer at the end of the queues, with another client
    roles.py       what these have agreed upon: files, queues, points
    schedule.py    what is done to which program when: pure, decided by a seed
    processes.py   the programs and the broker as processes
    siege.py       one siege from the start to the verdict
    attempts.py    whether the numbers of attempts are exact: pure
    judge.py       whether the notes are consistent with the guarantees: pure

On recado and on RabbitMQ, at the same time: a subscription with retries and a limit of time, whose messages fail, hang,
kill their workers or cannot be decoded; split and aggregate; a saga with payments that are accepted, declined or never
answered; an outbox; a resequencer; and ledgers behind them, in which each message counts once. Each role has two
programs. They are killed at random moments, and at the points that matter: inside a transaction, after its commit,
before an acknowledgement. The broker is killed as well, also while a program is held at such a point; and programs
are frozen for longer than their leases. recado is killed with its data folder. RabbitMQ is restarted in order,
because quorum queues of 3.10 that are not empty find no leader after a kill.

Control runs without a mechanism must violate the guarantees that it gives.

The kills are divided into sieges of twenty. Their outcomes are recorded in `bench/results/patterns-siege.jsonl`: a run
with the same `--seed` on the same commit continues after the last one. The seed repeats what is done in which order,
but not the scheduling of processes. Notes and logs of a siege with a violation are kept. One siege by itself:

    python -m bench.patterns_siege BROKER --seed N --kills N
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bench.book import Book, NotMeasuredError
from bench.patterns_siege.judge import Kind
from bench.patterns_siege.roles import Control
from bench.patterns_siege.siege import Outcome, besiege
from bench.plan import Plan
from bench.report import commit
from bench.scenario import Sample, Side, limit
from workshop import peers
from workshop.peers import PeerStartError

RECORD: Final = Path(__file__).parents[1] / "results" / "patterns-siege.jsonl"
SHOWN_COUNT: Final = 10
PLAIN_INTERVAL_S: Final = 15.0
"""How often progress is printed if there is no terminal."""

VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "confirmed, and neither handled nor parked", "messages"),
    Kind.ATTEMPTS: limit("attempts", "with a wrong number of an attempt", "messages"),
    Kind.PARKED: limit("parked", "parked too early, too late or not", "messages"),
    Kind.AGGREGATES: limit("aggregates", "not combined and booked once from all parts", "groups"),
    Kind.SAGAS: limit("sagas", "without one outcome, the right one", "processes"),
    Kind.OUTBOX: limit("outbox", "sales not published and booked once, in order", "messages"),
    Kind.ORDER: limit("order", "resequenced with a gap or out of order", "sequences"),
    Kind.LEFT: limit("left", "queues and tables that are not empty in the end", "places"),
}
FAULTS: Final = limit(
    "faults", "programs that ended by themselves, and internal errors", "programs"
)
CONTROLS: Final = limit("controls", "mechanisms whose absence was not found", "mechanisms")
SCENARIOS: Final = (*VIOLATIONS.values(), FAULTS, CONTROLS)

EXPECTED: Final = {
    Control.STORES: (
        *("attempts", "parked", "aggregates", "sagas", "outbox", "order"),
        *("attempts with id", "attempts without id"),
    ),
    Control.IDS: ("lost", "aggregates"),
}
"""The violations that must be found in each control."""


class Part(msgspec.Struct, frozen=True):
    """One siege of a run."""

    broker: str
    number: int
    kills_count: int
    control: Control = Control.NONE

    def __str__(self) -> str:
        if self.control is Control.NONE:
            return f"{self.broker} {self.number}"
        return f"{self.broker} without {self.control.value}"


class Entry(msgspec.Struct):
    """A line of the record."""

    commit: str
    seed: int
    part: Part
    outcome: Outcome


QUICK: Final = (
    Part("recado", 1, 5),
    Part("recado", 1, 2, Control.STORES),
    Part("recado", 1, 3, Control.IDS),
)
FULL: Final = (
    *(Part("recado", number, 20) for number in range(1, 11)),
    *(Part("rabbitmq", number, 20) for number in range(1, 6)),
    *(Part(broker, 1, 12, control) for broker in ("recado", "rabbitmq") for control in EXPECTED),
)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS]
    seed = plan.choose_seed()
    version = commit()
    known = read_record(seed, version) if plan.seed is not None and not plan.quick else {}
    outcomes = {}
    with book.measuring(*names):
        for part in QUICK if plan.quick else FULL:
            outcome = known.get(part)
            if outcome is None:
                try:
                    outcome = one_siege(part, Random(f"{seed} {part}").randrange(2**32))
                except PeerStartError as error:
                    raise NotMeasuredError(str(error)) from error
                if not plan.quick:
                    append_record(Entry(version, seed, part, outcome))
            print(f"  {part}: {outcome.summary}", file=sys.stderr, flush=True)
            outcomes[part] = outcome
        enter(outcomes, plan.rounds, book)
    yield from names


def read_record(seed: int, version: str, file: Path = RECORD) -> dict[Part, Outcome]:
    """Return the outcomes of an earlier run with the same seed on the same commit."""
    if not file.exists():
        return {}
    decode = msgspec.json.Decoder(Entry).decode
    entries = [decode(line) for line in file.read_bytes().splitlines()]
    return {
        each.part: each.outcome for each in entries if (each.commit, each.seed) == (version, seed)
    }


def append_record(entry: Entry, file: Path = RECORD) -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as lines:
        lines.write(msgspec.json.encode(entry) + b"\n")


def one_siege(part: Part, seed: int) -> Outcome:
    """Run one siege, in a folder that is deleted unless there is a violation to examine."""
    with peers.temporary_folder("patterns-siege") as folder:
        progress = Progress(str(part))
        outcome = besiege(
            part.broker,
            folder,
            seed,
            part.kills_count,
            control=part.control,
            report=progress.show,
        )
        progress.end()
        if part.control is Control.NONE and not outcome.is_sound:
            for fault in outcome.texts[:SHOWN_COUNT]:
                print(f"FAULT {fault:.1000}", file=sys.stderr)
            kept = Path(tempfile.gettempdir()) / f"patterns-siege-{part.broker}-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            print(f"  the notes are in {kept}", file=sys.stderr)
    return outcome


class Progress:
    """One line on a terminal, else a line now and then."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = time.monotonic()

    def show(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K  {self._title}: {text:.90}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self._shown_at + PLAIN_INTERVAL_S:
            print(f"  {self._title}: {text:.150}", file=sys.stderr, flush=True)
            self._shown_at = time.monotonic()

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def find_missed(control: Control, outcome: Outcome) -> list[str]:
    """Return what the judge did not find although its mechanism was off."""
    found = {kind.value for kind, texts in outcome.verdict.violations.items() if texts}
    found |= {name for name, count in outcome.verdict.counts.items() if count}
    return [name for name in EXPECTED[control] if name not in found]


def enter(outcomes: dict[Part, Outcome], rounds: int, book: Book) -> None:
    """Enter the sum over all sieges as the sample of each round: a limit counts the total."""
    sieges = [each for part, each in outcomes.items() if part.control is Control.NONE]
    missed = [
        f"{part}: {name}"
        for part, each in outcomes.items()
        if part.control is not Control.NONE
        for name in find_missed(part.control, each)
    ]
    for each in missed:
        print(f"FAULT not found: {each}", file=sys.stderr)
    details = describe(sieges)
    for _ in range(rounds):
        for kind, scenario in VIOLATIONS.items():
            count = sum(len(each.verdict.violations[kind]) for each in sieges)
            book.enter(scenario.name, Side.RECADO, Sample(count, details))
        faults = sum(len(each.faults) for each in sieges)
        book.enter(FAULTS.name, Side.RECADO, Sample(faults, details))
        book.enter(CONTROLS.name, Side.RECADO, Sample(len(missed)))


def describe(sieges: Sequence[Outcome]) -> dict[str, float]:
    """Return how much was done, for the JSON file."""
    details: dict[str, float] = {
        "kills": sum(each.kills_count for each in sieges),
        "broker_kills": sum(each.broker_kills_count for each in sieges),
    }
    for each in sieges:
        for name, count in [*each.published.items(), *each.strikes.items()]:
            details[name] = details.get(name, 0) + count
        key = f"kills on {each.broker}"
        details[key] = details.get(key, 0) + each.kills_count
    return details
