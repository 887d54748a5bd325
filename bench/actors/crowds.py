"""Many actors: the time to start one, the time of a tell to one of them, and how both grow with their number.

Each size is measured in a new process. Pykka's actors are threads, so it is measured with a thousand of them;
larger sizes are compared with recado's own smallest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.actors.local import OURS, PYKKA, QUICK_SHARE, THEIRS
from bench.actors.workers import pause, started
from bench.book import Book
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

SMALLEST = "recado with 1,000 actors"
TELLS, TELLS_OF_PEER = 400_000, 20_000
SECONDS = Scenario("live-100k-time", "100,000 live actors, all started", "s", Comparison.AT_MOST)
MEMORY = Scenario("live-100k-memory", "100,000 live actors, the process", "MB", Comparison.AT_MOST)


@dataclass(frozen=True)
class Crowd:
    key: str
    actors: int
    peer: str = SMALLEST
    full_only: bool = False

    @property
    def spawn(self) -> Scenario:
        return self._scenario(f"spawn-{self.key}", f"spawn, {self.actors:,} actors")

    @property
    def tell(self) -> Scenario:
        return self._scenario(f"crowd-{self.key}", f"tell one of {self.actors:,} actors")

    def _scenario(self, name: str, title: str) -> Scenario:
        return Scenario(name, title, "µs", Comparison.SHARE_OF_PEER, self.full_only, self.peer)


FEW = Crowd("1k", 1_000, PYKKA)
SOME = Crowd("10k", 10_000, full_only=True)
MANY = Crowd("100k", 100_000)
CROWDS = (FEW, SOME, MANY)
SCENARIOS = (*(each for crowd in CROWDS for each in (crowd.spawn, crowd.tell)), SECONDS, MEMORY)


@dataclass(frozen=True)
class Seen:
    """The time to start one actor and of one tell, and the seconds and the memory of all actors."""

    spawned: Sample
    told: Sample
    seconds: Sample
    megabytes: Sample


def run(plan: Plan, book: Book) -> Iterator[str]:
    names = [scenario.name for scenario in SCENARIOS if plan.includes(scenario)]
    if names:
        with book.measuring(*names):
            for _ in range(plan.rounds):
                one_round(names, plan, book)
        yield from names


def one_round(names: list[str], plan: Plan, book: Book) -> None:
    share = QUICK_SHARE if plan.quick else 1
    tells = TELLS // share
    few = look(OURS, FEW, tells, plan)
    enter(FEW, Side.RECADO, few, book)
    if plan.with_peer:
        enter(FEW, Side.PEER, look(THEIRS, FEW, TELLS_OF_PEER // share, plan), book)
    for crowd in (SOME, MANY):
        if crowd is SOME and SOME.tell.name not in names and SOME.spawn.name not in names:
            continue
        seen = look(OURS, crowd, tells, plan)
        enter(crowd, Side.RECADO, seen, book)
        enter(crowd, Side.PEER, few, book)
        if crowd is MANY:
            book.enter(SECONDS.name, Side.RECADO, seen.seconds)
            book.enter(MEMORY.name, Side.RECADO, seen.megabytes)


def enter(crowd: Crowd, side: Side, seen: Seen, book: Book) -> None:
    book.enter(crowd.spawn.name, side, seen.spawned)
    book.enter(crowd.tell.name, side, seen.told)


def look(program: str, crowd: Crowd, tells: int, plan: Plan) -> Seen:
    pause(plan)
    with started(program) as running:
        figures = running.do("crowd", crowd.actors, tells)
    told = 1e6 * figures["seconds"] / tells
    processor = figures["spawned_cpu"]
    return Seen(
        Sample(1e6 * figures["spawned"] / crowd.actors, {"cpu_us": 1e6 * processor / crowd.actors}),
        Sample(told, {"rate": 1e6 / told}),
        Sample(figures["spawned"], {"cpu_s": processor}),
        Sample(figures["megabytes"]),
    )
