"""The simulation of feeds: publishers, subscribers and three archives, with all kinds of faults.

    script.py     everything that a seed determines: the members, the medium, the faults
    plots.py      combinations of faults; company.py has the names of all members
    world.py      the feed, from start to end
    nodes.py      the programs in it, each around one `Member`; archive.py has the archives
    store.py      the store of an archive, which loses unsynced entries
    media.py      a network of datagrams
    post.py       a broker, and the connections to it
    faults.py     crashes, stalls, partitions, storms, outages; fault.py defines them as values
    history.py    the complete history; facts.py the records of archives
    judge.py      whether it is consistent with the guarantees (with orders.py, archive_contents.py, patience.py);
                  verdict.py defines the rules
    record.py     the seeds without violations
    work.py       the tasks of the processes of this benchmark

Everything is determined by a seed: `python -m bench.feeds_sim SEED` repeats one. The full form runs 20,000 of
them, or those of `--seeds A-B`, and continues where an earlier run with the same sources was interrupted; the
quick form runs as many as fit in its time, each of them twice, in two processes, to check that the results are
equal. Each aim is a limit that must never be exceeded, so every round has the total of all. There is no peer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from bench.book import Book
from bench.pair import Job, Pair
from bench.plan import Plan
from bench.scenario import Sample, Side, limit

from . import work
from .record import Record
from .verdict import Rule
from .work import Tally

SEEDS: Final = range(1, 20_001)
AT_A_TIME: Final = 20
QUICK_RESERVE: Final = 3.0
"""Seconds of the quick form that are left for its end."""
PROGRESS_S: Final = 5.0
SHOWN: Final = 50  # worlds in which something was wrong

TITLES: Final = {
    Rule.INTACT: "never published so, and delivered or archived",
    Rule.FIFO: "out of their publisher's order",
    Rule.GAP: "left out",
    Rule.REPEAT: "given twice, or covered by the vector given",
    Rule.HISTORY: "of publishers that had ended, to subscribers without recovery",
    Rule.MARK: "repeated, and not marked as uncertain",
    Rule.CERTAINTY: "wrongly classified as delivered or missed",
    Rule.UNIFORM: "delivered before enough archives had them",
    Rule.TOTAL: "in different orders in one view",
    Rule.VIEWS: "on the wrong side of a view",
    Rule.ARCHIVE: "wrong on an archive's disk",
    Rule.CONVERGE: "archives that differ in the end",
    Rule.LOST: "safe, and gone",
    Rule.EARLY: "given up before the timeout",
    Rule.BEHIND: "subscribers that never caught up",
}


VIOLATIONS: Final = {rule: limit(rule.value, TITLES[rule], "cases") for rule in Rule}
FAULTS = limit("faults", "members that raised, or never rested", "faults")
STRAY = limit("stray", "worlds that differ when they are repeated", "worlds")
SCENARIOS = (*VIOLATIONS.values(), FAULTS, STRAY)


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    enter(rounds(plan, Record()), plan, book)
    yield from names


def rounds(plan: Plan, record: Record) -> Tally:
    total = Tally()
    progress = Progress(total)
    wanted = plan.seeds or SEEDS
    with Pair[Tally]() as pair:
        done = quick(plan, pair, wanted) if plan.quick else full(pair, wanted, record)
        for tally in done:
            total.add(tally)
            progress.tell()
    return total


def full(pair: Pair[Tally], wanted: range, record: Record) -> Iterator[Tally]:
    """Those that no earlier run found clean."""
    missing = record.missing(wanted)
    known = len(wanted) - sum(map(len, missing))
    if known:
        print(f"{known:,} seeds are known to be clean", flush=True)
        yield Tally(known=known)
    chunks = [
        range(start, min(start + AT_A_TIME, seeds.stop))
        for seeds in missing
        for start in range(seeds.start, seeds.stop, AT_A_TIME)
    ]
    for chunk in chunks[:1]:
        yield _entered(twice(pair, partial(work.worlds, chunk)), chunk, record)
    jobs: Iterator[Job[Tally]] = (partial(work.worlds, chunk) for chunk in chunks[1:])
    for chunk, tally in zip(chunks[1:], pair.once(jobs), strict=True):
        yield _entered(tally, chunk, record)


def _entered(tally: Tally, chunk: range, record: Record) -> Tally:
    if not tally.problems:
        record.add(chunk)
    return tally


def quick(plan: Plan, pair: Pair[Tally], wanted: range) -> Iterator[Tally]:
    for start in range(wanted.start, wanted.stop, AT_A_TIME):
        if plan.seconds_left() < QUICK_RESERVE:
            return
        chunk = range(start, min(start + AT_A_TIME, wanted.stop))
        yield twice(pair, partial(work.worlds, chunk))


def twice(pair: Pair[Tally], job: Job[Tally]) -> Tally:
    """The same in both processes; worlds that differ are strays."""
    first, second = pair.both(job)
    strays = [seed for seed, trace in first.traces.items() if second.traces[seed] != trace]
    first.strays = len(strays)
    first.problems += [f"{work.again(seed)}: differs when it is repeated" for seed in strays]
    return first


class Progress:
    def __init__(self, total: Tally) -> None:
        self._begun = self._told = time.monotonic()
        self._total = total
        self._shown = 0

    def tell(self) -> None:
        total = self._total
        for problem in total.problems[self._shown : SHOWN]:
            print(f"FAULT {problem}", file=sys.stderr, flush=True)
        self._shown = len(total.problems)
        now = time.monotonic()
        if now - self._told > PROGRESS_S:
            self._told = now
            rate = total.worlds / (now - self._begun)
            told = f"  {total.worlds:,} worlds, {total.counts['delivered']:,} deliveries"
            print(f"{told}, {rate:.1f} worlds/s", file=sys.stderr, flush=True)


def enter(tally: Tally, plan: Plan, book: Book) -> None:
    figures = {scenario.name: tally.violations[rule] for rule, scenario in VIOLATIONS.items()}
    figures |= {FAULTS.name: tally.faults, STRAY.name: tally.strays}
    details = {"worlds": tally.worlds, "known": tally.known, **tally.counts}
    for name, value in figures.items():
        for _ in range(plan.rounds):
            book.enter(name, Side.RECADO, Sample(value, details))
