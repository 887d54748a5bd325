"""The fuzz benchmark: a million mutated frames and handshakes.

    values.py        names, keys, patterns, tables, properties and bodies, also invalid ones
    handshakes.py    handshakes of hostile clients
    conversation.py  valid conversations
    mutation.py      mutations of their frames
    case.py          the bytes of one client, made from a seed and a number
    answers.py       checks the answers of the broker
    hostile.py       many concurrent hostile clients
    witness.py       a well-behaved client that is served meanwhile
    target.py        the broker, its log and its memory

One broker runs through half of the rounds, and one with a data folder through the other half. Each aim is a
limit that must never be exceeded, so every round has the worst figure of all rounds: a median would hide a
crash. There is no peer.

`--seed` repeats a run, and `python -m bench.fuzz SEED CASE` repeats one case of it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Final

from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from bench.book import Book, NotMeasuredError
from bench.fuzz import case, target
from bench.fuzz.hostile import Outcome, attack
from bench.fuzz.witness import Testimony, watching
from bench.plan import Plan
from bench.scenario import Sample, Side, limit
from workshop.peers import PeerStartError, Server

FRAMES: Final = 1_000_000
QUICK_FRAMES: Final = 200_000
WARM_UP_SHARE: Final = 0.1
PROGRESS_S: Final = 5.0
SHOWN: Final = 10  # faults
ENOUGH_FAULTS: Final = 100  # a broker that hangs would be waited for at every case


FAULTS = limit("faults", "crashes, traces, broken answers", "faults")
ANSWER = limit("answer", "slowest answer to an attacker", "ms")
ROUND_TRIP = limit("round-trip", "slowest round trip of a witness", "ms")
LOST = limit("lost", "messages of the witness lost or duplicated", "messages")
MEMORY = limit("memory", "growth of memory after warm-up", "MB")
SCENARIOS = (FAULTS, ANSWER, ROUND_TRIP, LOST, MEMORY)


@dataclass(frozen=True)
class Round:
    outcome: Outcome
    testimony: Testimony
    faults: int
    growth: float

    @property
    def figures(self) -> dict[str, float]:
        return {
            FAULTS.name: self.faults,
            ANSWER.name: self.outcome.slowest * 1e3,
            ROUND_TRIP.name: max(self.testimony.slowest, self.testimony.slowest_login) * 1e3,
            LOST.name: self.testimony.lost,
            MEMORY.name: self.growth,
        }

    @property
    def details(self) -> dict[str, float]:
        """The details of every sample."""
        counts = {f"closed_{code}": number for code, number in sorted(self.outcome.codes.items())}
        return {
            "frames": self.outcome.frames,
            "connections": self.outcome.connections,
            "round_trips": self.testimony.trips,
            **counts,
        }


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.wants(scenario.name)]
    seed = plan.choose_seed()
    with book.measuring(*names):
        try:
            enter(fuzz(plan, seed), seed, book)
        except PeerStartError as error:
            raise NotMeasuredError(str(error).splitlines()[0]) from error
    yield from names


def enter(rounds: list[Round], seed: int, book: Book) -> None:
    for scenario in SCENARIOS:
        worst = max(each.figures[scenario.name] for each in rounds)
        for each in rounds:
            own = {"seed": seed, "of_this_round": each.figures[scenario.name]}
            book.enter(scenario.name, Side.RECADO, Sample(worst, own | each.details))


def fuzz(plan: Plan, seed: int, frames: int | None = None) -> list[Round]:
    """Run all rounds, with so many frames in total; those of the second half against a broker with a data
    folder."""
    total = frames or (QUICK_FRAMES if plan.quick else FRAMES)
    numbers = count()
    turns = range(plan.rounds)
    half = (plan.rounds + 1) // 2
    rounds = siege(plan, seed, numbers, turns[:half], total, keeps=False)
    if turns[half:]:
        rounds += siege(plan, seed, numbers, turns[half:], total, keeps=True)
    return rounds


def siege(
    plan: Plan, seed: int, numbers: Iterator[int], turns: range, total: int, *, keeps: bool
) -> list[Round]:
    """Some of the rounds, against one broker."""
    rounds = []
    with target.target(keeps=keeps) as server:
        findings = Findings(server)
        warm_up = Lap(plan, "warm-up", seed, numbers, int(total * WARM_UP_SHARE / 2))
        findings.add(warm_up.run(server))
        before = target.memory_when_swept(server)
        for turn in turns:
            lap = Lap(plan, f"round {turn + 1}", seed, numbers, total // plan.rounds + 1)
            with watching(server) as watch:
                outcome = lap.run(server)
                findings.add(outcome)
                testimony = watch.ask()
            growth = target.memory_when_swept(server) - before
            rounds.append(Round(outcome, testimony, findings.faults, growth))
    return rounds


class Findings:
    """The faults so far. Each is printed when it is found, with the command that reproduces it."""

    def __init__(self, server: Server) -> None:
        self.faults = 0
        self._server = server
        self._traces = 0

    def add(self, outcome: Outcome) -> None:
        traces = target.traces(self._server)
        found = [*outcome.faults, *traces[self._traces :]]
        self._traces = len(traces)
        self.faults += len(found)
        for fault in found[:SHOWN]:
            print(f"FAULT {fault}", file=sys.stderr)
        if len(found) > SHOWN:
            print(f"and {len(found) - SHOWN} more faults", file=sys.stderr)
        if outcome.slowest > 1:
            print(f"slow: {outcome.slowest:.1f} s, {outcome.slowest_case}", file=sys.stderr)
        if not target.serves(self._server):
            raise NotMeasuredError("the broker died or hangs")


class Lap:
    """One stretch of cases, with its progress."""

    def __init__(self, plan: Plan, title: str, seed: int, numbers: Iterator[int], frames: int):
        self._plan = plan
        self._title = title
        self._cases = (case.make(seed, number) for number in numbers)
        self._frames = frames
        self._begun = self._told = time.monotonic()

    def run(self, server: Server) -> Outcome:
        def tidy_up() -> None:
            # The clients notice a broker that has ended.
            with suppress(AMQPError, AMQPConnectorException):
                target.sweep(server, renew=True)

        tidy_up()
        return asyncio.run(attack(server, self._cases, self._frames, self._watch, tidy_up))

    def _watch(self, outcome: Outcome) -> bool:
        now = time.monotonic()
        if now - self._told > PROGRESS_S:
            self._told = now
            rate = outcome.frames / (now - self._begun)
            print(
                f"  {self._title}: {outcome.frames:,} of {self._frames:,} frames, "
                f"{outcome.connections:,} connections, {rate:,.0f} frames/s",
                file=sys.stderr,
                flush=True,
            )
        out_of_time = self._plan.quick and self._plan.seconds_left() < 0
        return not out_of_time and len(outcome.faults) < ENOUGH_FAULTS
