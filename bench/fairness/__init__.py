"""The fairness benchmark: how long an idle client waits while another client keeps the broker busy.

    attacks.py      the loads of the busy client; attacker.py runs one in its own process
    wire.py         its AMQP client
    uvloop.py       the location of uvloop, for brokers that run on it
    measurement.py  a sample: the attack, and concurrently the probe (loadgen/probe.c)

The probe sends a small request every millisecond, a basic.qos and a publish with confirm, and its longest wait
is the figure with an aim; as in all benchmarks, the median of the rounds counts. The table also has the 99th
percentile, and as `cpu` the largest processor time that the broker used during one wait: if that is small and
the wait is long, the machine was busy with something else. The first rows are the waits on an idle broker.

recado is restarted for each sample, RabbitMQ runs through all attacks except those that it does not survive. It
needs minutes for the larger ones, and has no aim here, so it has one round. The quick form takes about a
minute, without uvloop, and without RabbitMQ where it takes long. If RabbitMQ does not finish an attack in time,
for instance on a busy machine, its figure is missing, and it is restarted for the next one.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from bench import processes
from bench.book import Book, NotMeasuredError
from bench.broker.fresh_broker import fresh
from bench.fairness import uvloop
from bench.fairness.attacks import ATTACKS, BY_NAME, PATIENCE_S
from bench.fairness.measurement import attack, waits_during
from bench.generator import generate
from bench.plan import Plan
from bench.quiet import settle
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers
from workshop.peers import Server

LOOPS = ("asyncio", "uvloop")
SUFFIX = MappingProxyType({"asyncio": "", "uvloop": "-uvloop"})

RECOVERY = "recovery"
RECOVERY_MESSAGES = (50_000, 1_000_000)  # quick, full
RECOVERY_LOAD = ("--durable", "--sizes", "1024", "--confirm-window", "1000")
RECOVERY_S = 1800

SETTLE_S = (0.3, 3.0)
CACHE = Path(__file__).parents[2] / ".cache"

TITLES = {each.name: each.title for each in ATTACKS} | {RECOVERY: "1 M messages after a restart"}
NAMES = tuple(TITLES)


def scenario(name: str, figure: str, loop: str) -> Scenario:
    title = f"{TITLES[name]}{', uvloop' * (loop == 'uvloop')}: {figure}"
    full_only = loop == "uvloop"
    return Scenario(f"{name}-{figure}{SUFFIX[loop]}", title, "ms", Comparison.AT_MOST, full_only)


FIGURES = MappingProxyType({"max": "max_ms", "p99": "p99_ms", "cpu": "cpu_max_ms"})
BY_KEY = {
    (name, figure, loop): scenario(name, figure, loop)
    for loop in LOOPS
    for name in NAMES
    for figure in FIGURES
}
SCENARIOS = tuple(BY_KEY.values())


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    seed = plan.choose_seed()
    CACHE.mkdir(exist_ok=True)
    with peers.temporary_folder("bench-fairness", CACHE) as folder, ExitStack() as stack:
        peer: Server | None = None
        for name in NAMES:
            loops = loops_of(plan, name)
            names = [BY_KEY[name, figure, loop].name for loop in loops for figure in FIGURES]
            if not loops:
                continue
            with book.measuring(*names):
                for turn in range(plan.rounds):
                    work = partial(sample, name, seed + turn, plan, book, folder / f"{name}-{turn}")
                    for loop in loops:
                        enter(book, name, Side.RECADO, [loop], work(loop, None))
            try:
                if peer is None and shares_peer(plan, name):
                    peer = stack.enter_context(fresh(Side.PEER, book, folder / f"peer-{name}"))
                if suits_peer(plan, name):
                    taken = sample(name, seed, plan, book, folder / f"{name}-peer", "", peer)
                    enter(book, name, Side.PEER, loops, taken)
            except NotMeasuredError as error:
                print(f"no figures of RabbitMQ ({name}): {error}", flush=True)
                stack.close()
                peer = None
            yield from (each for each in names if plan.wants(each))


def loops_of(plan: Plan, name: str) -> list[str]:
    """The event loops under which an attack is measured."""
    return [
        loop
        for loop in LOOPS
        if any(plan.includes(BY_KEY[name, figure, loop]) for figure in FIGURES)
    ]


def suits_peer(plan: Plan, name: str) -> bool:
    if not plan.with_peer:
        return False
    if plan.quick and (name == RECOVERY or BY_NAME[name].ruins_peer):
        return False  # it would have to be started once more
    if plan.quick and BY_NAME[name].takes_peer_long:
        return False
    return name == RECOVERY or BY_NAME[name].suits_peer


def shares_peer(plan: Plan, name: str) -> bool:
    """Whether one RabbitMQ can be used for this and other attacks."""
    return name != RECOVERY and suits_peer(plan, name) and not BY_NAME[name].ruins_peer


def enter(book: Book, name: str, side: Side, loops: list[str], taken: Sample) -> None:
    for loop in loops:
        for figure, key in FIGURES.items():
            named = BY_KEY[name, figure, loop].name
            book.enter(named, side, Sample(taken.details[key], taken.details))


def sample(
    name: str, seed: int, plan: Plan, book: Book, folder: Path, loop: str, peer: Server | None
) -> Sample:
    settle(SETTLE_S[0] if plan.quick else SETTLE_S[1])
    data = folder / (loop or "peer")
    if name == RECOVERY:
        return recovery(loop, plan, book, data)
    kind = BY_NAME[name]
    if not loop and kind.ruins_peer:
        with broker(loop, book, data) as ruined:
            patience = PATIENCE_S[0] if plan.quick else PATIENCE_S[1]
            return attack(ruined, name, seed, quick=plan.quick, patience=patience)
    if peer is not None:
        return attack(peer, name, seed, quick=plan.quick)
    with broker(loop, book, data if kind.needs_disk else None) as server:
        return attack(server, name, seed, quick=plan.quick)


def recovery(loop: str, plan: Plan, book: Book, data: Path) -> Sample:
    """The waits while a long queue is consumed that was recovered after a kill."""
    count = RECOVERY_MESSAGES[0] if plan.quick else RECOVERY_MESSAGES[1]
    load = ("--messages", str(count), *RECOVERY_LOAD)
    with broker(loop, book, data) as server:
        generate(server, "fill", *load, seconds=RECOVERY_S)
    with broker(loop, book, data) as server:
        drain = partial(generate, server, "drain", *load, seconds=RECOVERY_S)
        taken = waits_during(server, drain)
    return Sample(taken.value, {**taken.details, "taken_at": count}) if plan.quick else taken


@contextmanager
def broker(loop: str, book: Book, data: Path | None) -> Iterator[Server]:
    """recado with one of the event loops, or, without one, RabbitMQ; killed in the end."""
    if not loop:
        with fresh(Side.PEER, book, data) as server:
            yield server
        return
    environment = {"RECADO_NODE_LOOP": loop}
    if loop == "uvloop":
        environment |= uvloop.environment()
    try:
        with peers.recado(data=data, environment=environment, stop=signal.SIGKILL) as server:
            yield server
    except peers.PeerStartError as error:
        raise NotMeasuredError(str(error).strip().splitlines()[-1]) from error
