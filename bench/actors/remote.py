"""Asks to an actor of another process on this machine: recado over TCP, compared with other libraries and a raw
echo.

Each program is started once, and has an asking and an answering process. Each peer is measured alternately with
recado. The raw echo sends 64 bytes and gets them back through asyncio protocols, without serialization, checks
or lookups: the lower bound for any ask over asyncio.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.actors.workers import Worker, pause, started
from bench.book import Book
from bench.peer_environment import python_of_peers
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

OURS = "recado_remote"
ASKS, QUICK_ASKS = 10_000, 2_000
WARM_UP = 300
WINDOW = 64


@dataclass(frozen=True)
class Peer:
    key: str
    title: str
    share: int = 1  # of the asks of recado
    large: bool = False  # in an environment of its own
    slow_start: bool = False
    has_flight: bool = True

    @property
    def program(self) -> str:
        return f"{self.key}_remote"

    def scenario(self, task: str) -> Scenario:
        title, unit, comparison = TASKS[task]
        return Scenario(
            f"{task}-{self.key}",
            f"{title}, vs {self.title}",
            unit,
            comparison,
            full_only=self.slow_start or task == "flight",
            peer=self.title,
        )

    @property
    def scenarios(self) -> list[Scenario]:
        tasks = [task for task in TASKS if task != "flight" or self.has_flight]
        return [self.scenario(task) for task in tasks]


TASKS = {
    "remote": ("remote ask", "asks/s", Comparison.TIMES_MORE),
    "remote-cpu": ("its CPU", "µs", Comparison.TIMES_LESS),
    "flight": (f"{WINDOW} remote asks at a time", "asks/s", Comparison.TIMES_MORE),
}
PEERS = (
    Peer("echo", "a raw echo"),
    Peer("xoscar", "xoscar", share=3, large=True),
    Peer("thespian", "Thespian", share=10, large=True, has_flight=False),
    Peer("ray", "Ray", share=5, large=True, slow_start=True),
)
SCENARIOS = tuple(scenario for peer in PEERS for scenario in peer.scenarios)

PINS = Path(__file__).with_name("peers.txt")


def run(
    plan: Plan, book: Book, python: Callable[[], Path] = lambda: python_of_peers(PINS)
) -> Iterator[str]:
    for peer in PEERS:
        names = [scenario.name for scenario in peer.scenarios if plan.includes(scenario)]
        if names:
            with book.measuring(*names):
                compare_with(peer, names, plan, book, python)
            yield from names


def compare_with(
    peer: Peer, names: list[str], plan: Plan, book: Book, python: Callable[[], Path]
) -> None:
    interpreter = python() if peer.large and plan.with_peer else Path(sys.executable)
    asks = QUICK_ASKS if plan.quick else ASKS
    with started(OURS) as ours:
        if not plan.with_peer:
            rounds(peer, names, {Side.RECADO: (ours, asks)}, plan, book)
            return
        with started(peer.program, python=interpreter) as theirs:
            sides = {Side.RECADO: (ours, asks), Side.PEER: (theirs, asks // peer.share)}
            rounds(peer, names, sides, plan, book)


def rounds(
    peer: Peer,
    names: list[str],
    sides: dict[Side, tuple[Worker, int]],
    plan: Plan,
    book: Book,
) -> None:
    for program, _ in sides.values():
        program.do("ask", WARM_UP)
    for _ in range(plan.rounds):
        for side, (program, asks) in sides.items():
            pause(plan)
            one_by_one(peer, side, program, asks, book)
            if f"flight-{peer.key}" in names:
                pause(plan)
                in_flight(peer, side, program, asks // WINDOW * WINDOW, book)


def one_by_one(peer: Peer, side: Side, program: Worker, asks: int, book: Book) -> None:
    figures = program.do("ask", asks)
    rate, processor = asks / figures["seconds"], 1e6 * figures["cpu"] / asks
    details = {"rate": rate, "cpu_us": processor, "count": float(asks)}
    book.enter(peer.scenario("remote").name, side, Sample(rate, details))
    book.enter(peer.scenario("remote-cpu").name, side, Sample(processor, details))


def in_flight(peer: Peer, side: Side, program: Worker, asks: int, book: Book) -> None:
    figures = program.do("flight", asks, WINDOW)
    rate = asks / figures["seconds"]
    details = {"rate": rate, "cpu_us": 1e6 * figures["cpu"] / asks, "count": float(asks)}
    book.enter(peer.scenario("flight").name, side, Sample(rate, details))
