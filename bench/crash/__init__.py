"""The crash benchmark: a broker is killed a thousand times, and its clients check its guarantees.

    message.py     a body that identifies its message and has a checksum
    topology.py    queues of every kind that must survive a crash
    client.py      a small AMQP client
    publishers.py  publishers, each with another behaviour
    consumers.py   consumers, each with another behaviour
    surveyor.py    declares everything, and checks whether it still exists
    drain.py       empties all queues at the end
    history.py     what all of them did and observed
    checker.py     whether that is consistent with the guarantees: pure, with its own tests
    subject.py     the broker, and how it is killed
    era.py         many incarnations on one data folder

Each aim is a limit that must never be exceeded, so every round has the total of all rounds: a median would hide
a loss. There is no peer. `--seed` repeats the choices of the clients and the moments of the kills, but not the
scheduling of processes: a fault may need several runs to occur again. The history of an era with a fault is
retained, and `python -m bench.crash FILE` checks it again.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from bench.book import Book, NotMeasuredError
from bench.crash import history
from bench.crash.era import Outcome, live_through
from bench.crash.subject import durable
from bench.crash.verdict import Kind
from bench.plan import Plan
from bench.scenario import Sample, Side, limit
from workshop import peers
from workshop.peers import PeerStartError

CYCLES: Final = 1_000
QUICK_CYCLES: Final = 120
CYCLES_PER_ERA: Final = 70
SHOWN: Final = 10  # violations of an era


VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "confirmed or committed, and lost", "messages"),
    Kind.PHANTOM: limit("phantom", "delivered, and never published", "messages"),
    Kind.DAMAGED: limit("damaged", "delivered with changed bytes", "messages"),
    Kind.DISORDER: limit("disorder", "out of their publisher's order", "messages"),
    Kind.DUPLICATE: limit("duplicate", "twice, without a reason", "messages"),
    Kind.FLAG: limit("flag", "redelivered, and not marked", "messages"),
    Kind.TORN: limit("torn", "missing of a transaction", "messages"),
    Kind.TOPOLOGY: limit("topology", "queues and exchanges gone or back", "things"),
}
FAULTS = limit("faults", "traces, broken connections", "faults")
AGAIN = limit("again", "acked, and redelivered after a crash", "per 1,000 acks")
RESTART = limit("restart", "median restart after a crash", "ms")
SCENARIOS = (*VIOLATIONS.values(), FAULTS, AGAIN, RESTART)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    seed = plan.choose_seed()
    with book.measuring(*names):
        try:
            enter(rounds(plan, seed), seed, book)
        except PeerStartError as error:
            # It must start with any state that a crash left behind.
            raise NotMeasuredError(str(error)) from error
    yield from names


def rounds(plan: Plan, seed: int) -> list[list[Outcome]]:
    """The eras of each round."""
    rng = Random(seed)
    total = QUICK_CYCLES if plan.quick else CYCLES
    done = 0
    result = []
    for turn in range(plan.rounds):
        goal = total * (turn + 1) // plan.rounds
        eras: list[Outcome] = []
        while done < goal:
            outcome = one_era(plan, rng.randrange(2**32), min(CYCLES_PER_ERA, goal - done))
            eras.append(outcome)
            if outcome.cycles == 0:
                break  # the quick form is out of time
            done += outcome.cycles
            print(f"  {done:,} of {total:,} cycles, {told(outcome)}", file=sys.stderr, flush=True)
        result.append(eras)
    return result


def one_era(plan: Plan, seed: int, cycles: int) -> Outcome:
    """Run one era, in a folder that is deleted unless there is a fault to examine."""
    with peers.temporary_folder("crash") as folder:
        outcome = live_through(
            durable(folder), cycles, seed, lambda: not plan.quick or plan.seconds_left() > 0
        )
    found = [*map(str, outcome.verdict.violations), *outcome.faults]
    for fault in found[:SHOWN]:
        print(f"FAULT {fault}", file=sys.stderr)
    if found:
        file = Path(tempfile.gettempdir()) / f"crash-{seed}.jsonl"
        history.write(outcome.events, file)
        print(f"{len(found)} faults in the era of {seed}; its history: {file}", file=sys.stderr)
    # A thousand cycles of them would not fit into memory.
    outcome.events.clear()
    return outcome


def told(outcome: Outcome) -> str:
    counts = outcome.verdict.counts
    share = outcome.seconds / max(outcome.cycles, 1)
    return f"{share:.2f} s each: {counts['sent']:,} sent, {counts['delivered']:,} delivered"


def enter(eras: list[list[Outcome]], seed: int, book: Book) -> None:
    """Enter the totals of all rounds as the sample of each round, with its own counts as details."""
    everything = [outcome for each in eras for outcome in each]
    totals = figures(everything)
    for outcomes in eras:
        own = figures(outcomes)
        counts: Counter[str] = sum((each.verdict.counts for each in outcomes), Counter())
        details = {"seed": seed, "cycles": sum(each.cycles for each in outcomes), **counts}
        for name, value in totals.items():
            sample = Sample(value, {"of_this_round": own[name], **details})
            book.enter(name, Side.RECADO, sample)


def figures(outcomes: list[Outcome]) -> dict[str, float]:
    counts: Counter[str] = sum((each.verdict.counts for each in outcomes), Counter())
    starts = [seconds for each in outcomes for seconds in each.starts]
    result: dict[str, float] = {
        scenario.name: sum(len(each.verdict.of(kind)) for each in outcomes)
        for kind, scenario in VIOLATIONS.items()
    }
    result[FAULTS.name] = sum(len(each.faults) for each in outcomes)
    result[AGAIN.name] = counts["again"] * 1e3 / max(counts["acked"], 1)
    result[RESTART.name] = median(starts) * 1e3 if starts else 0.0
    return result
