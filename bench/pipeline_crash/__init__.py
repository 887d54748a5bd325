"""Pipelines under kill -9: drivers, workers, sources and sinks die at random, and at the worst of moments.

    job.py      the job that is killed, on the public formats: feeds and queues into a lake and to both brokers
    doomed.py   the formats, which die when they are told to
    siege.py    what is sent, who is killed when, and what arrived
    judge.py    whether that may be: pure, and tested by itself

What is promised: from an archive to the lake once; from a queue to the lake once with ids, at least once
without; from Spark to recado once, within the window of the queue; to RabbitMQ at least once, with the same
ids. An aim here is a limit that must never be passed.

With the mechanisms switched off (no window in the source, one of a single id in the queue, files that are
simply appended) the same siege must find repeats, or it would see nothing: `unseen` counts the routes on which
it did not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from bench.book import Book, NotMeasured
from bench.pipeline_crash.job import (
    ARCHIVE_LAKE,
    ARCHIVE_RABBITMQ,
    ARCHIVE_RECADO,
    IDS_LAKE,
    PLAIN_LAKE,
    Route,
)
from bench.pipeline_crash.judge import Kind
from bench.pipeline_crash.siege import KINDS, Outcome, Stuck, besiege
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side, limit
from workshop import peers
from workshop.peers import DidNotStart

KILLS: Final = 50
QUICK_KILLS: Final = 10
GROUPS: Final[tuple[tuple[Route, ...], ...]] = (
    (ARCHIVE_LAKE, ARCHIVE_RECADO),
    (IDS_LAKE, ARCHIVE_RABBITMQ),
    (PLAIN_LAKE, ARCHIVE_RECADO),
)
"""Two queries at a time: two cores have no time for more. Each group has a source and a sink of messages."""
CONTROLLED: Final = (IDS_LAKE, ARCHIVE_RECADO)
SHOWN: Final = 10

VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "sent, and not there", "messages"),
    Kind.PHANTOM: limit("phantom", "there, and never sent", "messages"),
    Kind.TWICE: limit("twice", "twice, where once is promised", "messages"),
    Kind.STRANGE: limit("strange", "with another id the second time", "messages"),
}
UNSEEN: Final = limit("unseen", "repeats that were not seen, without the mechanisms", "routes")
SURVIVED: Final = Scenario(
    "kills", "kills that it went through", "kills", Comparison.AT_LEAST, full_only=True
)
SCENARIOS: Final = (*VIOLATIONS.values(), UNSEEN, SURVIVED)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.includes(scenario)]
    random = Random(plan.told_seed())
    kills = QUICK_KILLS if plan.quick else KILLS
    with book.measuring(*names):
        try:
            shares = dealt(kills, random)
            outcomes = [
                one_siege(kinds, routes, random)
                for routes, kinds in zip(GROUPS, shares, strict=True)
            ]
            control = one_siege(("spool", "sink", "lake"), CONTROLLED, random, careful=False)
        except (DidNotStart, Stuck) as error:
            raise NotMeasured(str(error)) from error
        enter(outcomes, control, plan.rounds, book)
    yield from names


def dealt(kills: int, random: Random) -> list[list[str]]:
    """So many kills for all groups together, each kind about as often, in any order; `spool` needs a queue."""
    shares: list[list[str]] = []
    left = kills
    for number, group in enumerate(GROUPS):
        count = left // (len(GROUPS) - number)
        left -= count
        fit = [kind for kind in KINDS if kind != "spool" or any(route.source for route in group)]
        fit = [kind for kind in fit if kind != "lake" or any(not route.target for route in group)]
        kinds = [fit[each % len(fit)] for each in range(count)]
        random.shuffle(kinds)
        shares.append(kinds)
    return shares


def one_siege(
    kills: Sequence[str], routes: Sequence[Route], random: Random, *, careful: bool = True
) -> Outcome:
    with peers.temporary_folder("pipeline-crash") as folder:
        outcome = besiege(folder, kills, random.randrange(2**32), routes=routes, careful=careful)
    told = ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items()))
    mode = "" if careful else " (without the mechanisms)"
    print(
        f"  {', '.join(route.name for route in routes)}{mode}: {told}", file=sys.stderr, flush=True
    )
    if careful:
        for fault in outcome.violations[:SHOWN]:
            print(f"FAULT {fault}", file=sys.stderr, flush=True)
    return outcome


def unseen(control: Outcome) -> int:
    """The routes on which nothing was found, though the mechanisms were off."""
    caught = {each.route for each in control.violations if each.kind is Kind.TWICE}
    return sum(route.name not in caught for route in CONTROLLED)


def enter(outcomes: Sequence[Outcome], control: Outcome, rounds: int, book: Book) -> None:
    """Every round's sample is the figure of all, with the counts of all beside it."""
    counts: Counter[str] = sum((each.counts for each in outcomes), Counter())
    found = [each for outcome in outcomes for each in outcome.violations]
    kills = sum(counts[f"{kind} kills"] for kind in KINDS)
    for _ in range(rounds):
        for kind, scenario in VIOLATIONS.items():
            value = sum(each.kind is kind for each in found)
            book.enter(scenario.name, Side.RECADO, Sample(value, dict(counts)))
        book.enter(UNSEEN.name, Side.RECADO, Sample(unseen(control), dict(control.counts)))
        book.enter(SURVIVED.name, Side.RECADO, Sample(kills, dict(counts)))
