"""Pipelines under kill -9: drivers, workers, sources and sinks are killed at random, and at critical moments.
Some are restarted with an older checkpoint, as from a backup.

    routes.py      the routes of the messages
    job.py         the job that is killed, on the public formats: an archive and queues into a lake, to both
                   brokers and into feeds
    failpoints.py  the formats, which exit at a requested moment
    victim.py      the job as a process, and how it is killed
    sender.py      sends the messages
    listener.py    archives the feeds
    siege.py       one run, and what arrived
    judge.py       whether that is consistent with the guarantees: pure, with its own tests

Guarantees: from an archive to the lake exactly once; from a queue to the lake exactly once with ids, at least
once without; from Spark to recado exactly once, within the deduplication window of the queue; to a feed exactly
once; to RabbitMQ at least once, with the same ids; and a checkpoint that is older than its table is refused.
Each aim is a limit that must never be exceeded.

Some routes of the same siege are controls without deduplication, five of them because a mechanism is switched
off: there duplicates must be found, otherwise the siege proves nothing. `unseen` counts the routes on which
none were found. A job that ends without being killed is a fault as well (`died`). `--seed` repeats the kills,
but not the scheduling of processes. The data of a run with a fault is retained.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from bench.book import Book, NotMeasuredError
from bench.pipeline_crash.judge import Kind
from bench.pipeline_crash.listener import ListenerSilentError
from bench.pipeline_crash.siege import Outcome, besiege
from bench.pipeline_crash.victim import Kill, VictimStuckError
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side, limit
from workshop import peers
from workshop.peers import PeerStartError

KILLS: Final = 50
QUICK_KILLS: Final = 6
SHOWN: Final = 10

VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "sent, and not there", "messages"),
    Kind.PHANTOM: limit("phantom", "there, and never sent", "messages"),
    Kind.TWICE: limit("twice", "twice, where once is promised", "messages"),
    Kind.STRANGE: limit("strange", "with another id the second time", "messages"),
}
DIED: Final = limit("died", "exits of the job without a kill", "deaths")
UNSEEN: Final = limit("unseen", "control routes without duplicates", "routes")
SURVIVED: Final = Scenario(
    "kills", "kills that it went through", "kills", Comparison.AT_LEAST, full_only=True
)
SCENARIOS: Final = (*VIOLATIONS.values(), DIED, UNSEEN, SURVIVED)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.includes(scenario)]
    seed = plan.choose_seed()
    kills = dealt(QUICK_KILLS if plan.quick else KILLS, Random(seed))
    with book.measuring(*names):
        try:
            outcome = one_siege(kills, seed)
        except (ListenerSilentError, PeerStartError, VictimStuckError) as error:
            raise NotMeasuredError(str(error)) from error
        enter(outcome, plan.rounds, book)
    yield from names


def dealt(kills: int, random: Random) -> list[Kill]:
    """Each kind about as often, in any order."""
    kinds = list(Kill)
    dealt = [kinds[number % len(kinds)] for number in range(kills)]
    random.shuffle(dealt)
    return dealt


def one_siege(kills: list[Kill], seed: int) -> Outcome:
    """Run one siege, in a folder that is deleted unless there is a fault to examine."""
    with peers.temporary_folder("pipeline-crash") as folder:
        outcome = besiege(folder, kills, seed, tell)
        faults = [*map(str, outcome.violations), *outcome.own_deaths]
        for fault in faults[:SHOWN]:
            tell(f"FAULT {fault}")
        if faults:
            kept = Path(tempfile.gettempdir()) / f"pipeline-crash-{seed}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            tell(f"{len(faults)} faults; the data is in {kept}")
    for route in outcome.unseen:
        tell(f"no repeats on {route}")
    tell(", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items())))
    return outcome


def tell(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def enter(outcome: Outcome, rounds: int, book: Book) -> None:
    """Enter the total as the sample of each round, with all counts as details."""
    details = dict(outcome.counts)
    kills = sum(outcome.counts[f"{kind.value} kills"] for kind in Kill)
    for _ in range(rounds):
        for kind, scenario in VIOLATIONS.items():
            value = sum(each.kind is kind for each in outcome.violations)
            book.enter(scenario.name, Side.RECADO, Sample(value, details))
        book.enter(DIED.name, Side.RECADO, Sample(len(outcome.own_deaths), details))
        book.enter(UNSEEN.name, Side.RECADO, Sample(len(outcome.unseen), details))
        book.enter(SURVIVED.name, Side.RECADO, Sample(kills, details))
