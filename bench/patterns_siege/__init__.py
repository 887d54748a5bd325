"""Patterns under siege: workers and broker are killed at random, and what they have promised is checked from outside.

    worker.py    the programs under siege, on the public API only, and what they note
    judge.py     whether the notes are consistent with the guarantees: pure
    siege.py     one siege from the start to the verdict

On recado and on RabbitMQ, at the same time: a subscription with retries, split and aggregate, a saga, an outbox and
a resequencer, each with two workers. recado is killed with its data folder; RabbitMQ is restarted in order. A
control run with all mechanisms off must violate each guarantee of theirs.
`--seed` repeats what is killed and when, but not the scheduling of processes. Notes and logs of a run with a
violation are kept.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.book import Book, NotMeasuredError
from bench.patterns_siege.judge import Kind
from bench.patterns_siege.siege import Outcome, besiege
from bench.plan import Plan
from bench.scenario import Sample, Side, limit
from workshop import peers
from workshop.peers import PeerStartError

BROKERS = ("recado", "rabbitmq")
KILLS_COUNT = 100  # on each broker
QUICK_KILLS_COUNT = 8
CONTROL_KILLS_COUNT = 20
QUICK_CONTROL_KILLS_COUNT = 13
SHOWN_COUNT = 10

VIOLATIONS = {
    Kind.LOST: limit("lost", "confirmed, and neither handled nor parked", "messages"),
    Kind.ATTEMPTS: limit("attempts", "with a wrong number of an attempt", "messages"),
    Kind.PARKED: limit("parked", "parked too early, too late or not", "messages"),
    Kind.AGGREGATES: limit("aggregates", "not combined once from all parts", "groups"),
    Kind.SAGAS: limit("sagas", "without one outcome, the right one", "processes"),
    Kind.OUTBOX: limit("outbox", "sales without message, or messages without sale", "messages"),
    Kind.ORDER: limit("order", "resequenced with a gap or out of order", "sequences"),
}
FAULTS = limit("faults", "programs that ended by themselves", "programs")
CONTROLS = limit("controls", "mechanisms whose absence was not found", "mechanisms")
SCENARIOS = (*VIOLATIONS.values(), FAULTS, CONTROLS)

WITHOUT_MECHANISMS = (Kind.ATTEMPTS, Kind.AGGREGATES, Kind.SAGAS, Kind.OUTBOX, Kind.ORDER)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS]
    random = Random(plan.choose_seed())
    kills_count = QUICK_KILLS_COUNT if plan.quick else KILLS_COUNT
    control_kills_count = QUICK_CONTROL_KILLS_COUNT if plan.quick else CONTROL_KILLS_COUNT
    with book.measuring(*names):
        try:
            outcomes = [
                one_siege(broker, random.randrange(2**32), kills_count) for broker in BROKERS
            ]
            missed = find_missed(random.randrange(2**32), control_kills_count)
        except PeerStartError as error:
            raise NotMeasuredError(str(error)) from error
        enter(outcomes, missed, plan.rounds, book)
    yield from names


def one_siege(broker: str, seed: int, kills_count: int) -> Outcome:
    """Run one siege, in a folder that is deleted unless there is a violation to examine."""
    with peers.temporary_folder("patterns-siege") as folder:
        outcome = besiege(broker, folder, seed, kills_count)
        print(f"  {outcome.summary}", file=sys.stderr, flush=True)
        if outcome.faults or not outcome.verdict.is_sound:
            for fault in [*outcome.verdict.texts, *outcome.faults][:SHOWN_COUNT]:
                print(f"FAULT {fault:.1000}", file=sys.stderr)
            kept = Path(tempfile.gettempdir()) / f"patterns-siege-{broker}-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            print(f"  the notes are in {kept}", file=sys.stderr)
    return outcome


def find_missed(seed: int, kills_count: int) -> list[Kind]:
    """Run the controls; return what the judge did not find although its mechanism was off."""
    with peers.temporary_folder("patterns-siege") as folder:
        off = besiege("recado", folder, seed, kills_count, is_on=False)
    print(f"  without mechanisms: {off.summary}", file=sys.stderr, flush=True)
    return [kind for kind in WITHOUT_MECHANISMS if not off.verdict.violations[kind]]


def enter(outcomes: list[Outcome], missed: list[Kind], rounds: int, book: Book) -> None:
    """Enter the sum over the brokers as the sample of each round: a limit counts the total."""
    details = {
        "kills": float(sum(each.kills_count for each in outcomes)),
        "broker_kills": float(sum(each.broker_kills_count for each in outcomes)),
        "tasks": float(sum(each.published["tasks"] for each in outcomes)),
    }
    for _ in range(rounds):
        for kind, scenario in VIOLATIONS.items():
            count = sum(len(each.verdict.violations[kind]) for each in outcomes)
            book.enter(scenario.name, Side.RECADO, Sample(count, details))
        faults = sum(len(each.faults) for each in outcomes)
        book.enter(FAULTS.name, Side.RECADO, Sample(faults, details))
        book.enter(CONTROLS.name, Side.RECADO, Sample(len(missed)))
