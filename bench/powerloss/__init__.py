"""The power-loss benchmark: complete brokers on simulated disks that lose, tear and reorder unsynced writes.

    machine.py    the disks of a computer, and the moment of the power loss
    node.py       a broker on it, without sockets or threads; the commits are executed step by step
    client.py     a client
    topology.py   queues of every kind, and their clients
    people.py     clients that publish, consume, read, purge
    landlord.py   clients that declare and delete
    era.py        several incarnations of a broker, and the end
    drain.py      empties all queues at the end
    history.py    what all of them did and observed
    judge.py      checks the guarantees: the checker of `bench.crash`, and further rules
    flips.py      data folders with one wrong bit
    work.py       the tasks of the processes of this benchmark

Everything is determined by a seed: `python -m bench.powerloss SEED` repeats an era, and the quick form runs
each one twice, in two processes, to check that the results are equal. Each aim is a limit that must never be
exceeded, so every round has the total of all rounds. There is no peer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final, TypeAlias

from bench import pair as processes
from bench.book import Book
from bench.crash.verdict import Kind
from bench.plan import Plan
from bench.powerloss import work
from bench.powerloss.flips import Result
from bench.powerloss.work import Tally
from bench.scenario import Sample, Side, limit

SEEDS: Final = 10_000
AT_A_TIME: Final = 20
QUICK_SHARE: Final = 12
"""The quick form tries one of so many moments and bits."""
QUICK_RESERVE: Final = 10.0
"""Seconds of the quick form that eras leave to those."""
PROGRESS_S: Final = 5.0
SHOWN: Final = 10  # problems


VIOLATIONS: Final = {
    Kind.LOST: limit("lost", "confirmed, committed or shown, and lost", "messages"),
    Kind.PHANTOM: limit("phantom", "never published, refused, rolled back", "messages"),
    Kind.DAMAGED: limit("damaged", "delivered with changed bytes", "messages"),
    Kind.DISORDER: limit("disorder", "out of their publisher's order", "messages"),
    Kind.DUPLICATE: limit("duplicate", "twice, without a reason", "messages"),
    Kind.FLAG: limit("flag", "wrongly marked as redelivered, or not", "messages"),
    Kind.TORN: limit("torn", "missing of a transaction", "messages"),
    Kind.TOPOLOGY: limit("topology", "declared or deleted, gone or back", "things"),
}
FAULTS = limit("faults", "places given twice, invariants broken", "faults")
SILENT = limit("silent", "flipped bits served, or missed in silence", "bits")
STRAY = limit("stray", "eras that differ when they are repeated", "eras")
AGAIN = limit("again", "acked, and redelivered after a crash", "per 1,000 acks")
SCENARIOS = (*VIOLATIONS.values(), FAULTS, SILENT, STRAY, AGAIN)

Job: TypeAlias = processes.Job[Tally]


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    seed = plan.choose_seed()
    enter(rounds(plan, seed), seed, book)
    yield from names


class Pair(processes.Pair[Tally]):
    def twice(self, job: Job) -> Tally:
        """The same by both; eras that differ are strays."""
        first, second = self.both(job)
        strays = [name for name, trace in first.traces.items() if second.traces[name] != trace]
        first.strays = len(strays)
        first.problems += [f"{name}: differs when it is repeated" for name in strays]
        return first


def rounds(plan: Plan, seed: int) -> list[Tally]:
    moments, bits = work.count_moments() + 1, work.count_bits()
    result = []
    progress = Progress()
    with Pair() as pair:
        for turn in range(plan.rounds):
            tally = Tally()
            result.append(tally)
            if plan.quick:
                done = quick_round(plan, pair, seed, turn, (moments, bits))
            else:
                done = full_round(plan, pair, seed, turn, (moments, bits))
            for each in done:
                tally.add(each)
                progress.tell(each)
    return result


def full_round(
    plan: Plan, pair: Pair, seed: int, turn: int, sizes: tuple[int, int]
) -> Iterator[Tally]:
    """Its share of the seeds, the moments and the bits."""
    first, last = (seed + SEEDS * each // plan.rounds for each in (turn, turn + 1))
    yield pair.twice(partial(work.eras, range(first, first + AT_A_TIME)))
    chunks = (
        partial(work.eras, range(start, min(start + AT_A_TIME, last)))
        for start in range(first + AT_A_TIME, last, AT_A_TIME)
    )
    yield from pair.once(chain(chunks, shares(sizes, turn, plan.rounds, plan.rounds)))


def quick_round(
    plan: Plan, pair: Pair, seed: int, turn: int, sizes: tuple[int, int]
) -> Iterator[Tally]:
    """Run as many eras as there is time for, each of them twice."""
    first = seed + SEEDS * turn // plan.rounds
    spent = plan.seconds_left()
    left = (spent - QUICK_RESERVE) / (plan.rounds - turn)
    while plan.seconds_left() > spent - left:
        yield pair.twice(partial(work.eras, range(first, first + AT_A_TIME // 2)))
        first += AT_A_TIME // 2
    for job in shares(sizes, turn, plan.rounds, plan.rounds * QUICK_SHARE):
        yield pair.twice(job)


def shares(sizes: tuple[int, int], turn: int, rounds: int, every: int) -> Iterator[Job]:
    """Moments and bits of one round: of each `every` of them one, in two jobs."""
    moments, bits = sizes
    for half in range(2):
        start = turn + half * rounds
        yield partial(work.moments, range(start, moments, 2 * every))
        yield partial(work.bits, range(start, bits, 2 * every))


class Progress:
    def __init__(self) -> None:
        self._begun = self._told = time.monotonic()
        self._total = Tally()
        self._shown = 0

    def tell(self, tally: Tally) -> None:
        total = self._total
        total.add(tally)
        for problem in total.problems[self._shown : SHOWN]:
            print(f"FAULT {problem}", file=sys.stderr, flush=True)
        self._shown = len(total.problems)
        now = time.monotonic()
        if now - self._told > PROGRESS_S:
            self._told = now
            rate = total.eras / (now - self._begun)
            print(
                f"  {total.eras:,} eras, {total.counts['sent']:,} messages, "
                f"{total.flipped.total():,} bits, {rate:.0f} eras/s",
                file=sys.stderr,
                flush=True,
            )


def enter(tallies: list[Tally], seed: int, book: Book) -> None:
    """Enter the totals of all rounds as the sample of each round, with its own counts as details."""
    total = Tally()
    for tally in tallies:
        total.add(tally)
    totals = figures(total)
    for tally in tallies:
        own = figures(tally)
        flipped = {f"flips_{result.value}": count for result, count in tally.flipped.items()}
        details = {"seed": seed, "eras": tally.eras, **tally.counts, **flipped}
        for name, value in totals.items():
            book.enter(name, Side.RECADO, Sample(value, {"of_this_round": own[name], **details}))


def figures(tally: Tally) -> dict[str, float]:
    result: dict[str, float] = {
        scenario.name: tally.violations[kind] for kind, scenario in VIOLATIONS.items()
    }
    result[FAULTS.name] = tally.faults
    result[SILENT.name] = tally.flipped[Result.SILENT]
    result[STRAY.name] = tally.strays
    result[AGAIN.name] = tally.counts["again"] * 1e3 / max(tally.counts["acked"], 1)
    return result
