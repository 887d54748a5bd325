"""Actors within one process, compared with Pykka: the time of a tell and of an ask.

Tells are measured from the first one until the last was handled, which a final ask shows. All asks have a
timeout. The processor time is that of all threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.actors.workers import Worker, pause, started
from bench.book import Book
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

OURS, THEIRS = "recado_local", "pykka_local"
PYKKA = "Pykka"
QUICK_SHARE = 4
WARM_UP_SHARE = 40


@dataclass(frozen=True)
class Work:
    """A task of both programs, and how many operations take each of them about a second."""

    task: str
    title: str
    ours: int
    theirs: int
    full_only: bool = False

    @property
    def scenario(self) -> Scenario:
        return self._scenario(self.task, self.title)

    @property
    def of_processor(self) -> Scenario:
        return self._scenario(f"{self.task}-cpu", f"{self.title}, CPU")

    def _scenario(self, name: str, title: str) -> Scenario:
        return Scenario(name, title, "µs", Comparison.SHARE_OF_PEER, self.full_only, PYKKA)


WORKS = (
    Work("tell", "tell, until it is handled", 1_000_000, 200_000),
    Work("ask", "ask, until it is answered", 100_000, 40_000),
    Work("ask-awaiting", "ask an actor that awaits", 80_000, 40_000, full_only=True),
    Work("ask-blocking", "ask and block the thread", 20_000, 40_000, full_only=True),
    Work("pong", "two actors that tell each other", 200_000, 40_000, full_only=True),
)

SCENARIOS = tuple(each for work in WORKS for each in (work.scenario, work.of_processor))


def run(plan: Plan, book: Book) -> Iterator[str]:
    for work in WORKS:
        pair = (work.scenario, work.of_processor)
        names = [scenario.name for scenario in pair if plan.includes(scenario)]
        if names:
            with book.measuring(*names):
                compare_with_pykka(work, plan, book)
            yield from names


def compare_with_pykka(work: Work, plan: Plan, book: Book) -> None:
    share = QUICK_SHARE if plan.quick else 1
    with started(OURS) as ours, started(THEIRS) as theirs:
        for program, count in ((ours, work.ours), (theirs, work.theirs)):
            program.do(work.task, count // WARM_UP_SHARE)
        for _ in range(plan.rounds):
            take(work, Side.RECADO, ours, work.ours // share, plan, book)
            if plan.with_peer:
                take(work, Side.PEER, theirs, work.theirs // share, plan, book)


def take(work: Work, side: Side, program: Worker, count: int, plan: Plan, book: Book) -> None:
    pause(plan)
    figures = program.do(work.task, count)
    took, processor = (1e6 * figures[key] / count for key in ("seconds", "cpu"))
    details = {"rate": 1e6 / took, "cpu_us": processor, "count": float(count)}
    book.enter(work.scenario.name, side, Sample(took, details))
    book.enter(work.of_processor.name, side, Sample(processor, details))
