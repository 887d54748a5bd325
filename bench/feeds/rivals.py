"""Persistent publishing and replay through Python clients, compared with NATS JetStream and RabbitMQ streams.

The task is the same for all: bodies of 200 B, published with a window until the last is acknowledged, then all
of them read again by a program that has just connected. Rounds are interleaved, and each has a new feed or
stream. The number of messages is chosen so that each takes about the same time. The processor time of the
servers per message is a detail: for recado, that of the broker and the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.book import Book, NotMeasuredError
from bench.feeds.programs import Meter, pause, run_client, started
from bench.plan import Plan
from bench.program import Program
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers

SIZE = 200
QUICK_SHARE = 5

PROMISE = (
    "durability: recado confirms after an fsync, also of its archive before a message is stable; "
)
TASKS = {"publish": "published and stored", "replay": "replayed"}


@dataclass(frozen=True)
class Client:
    """One of clients/, and how many messages take it some seconds."""

    program: str
    messages: int


@dataclass(frozen=True)
class Rival:
    key: str
    title: str
    client: Client
    promise: str

    def scenario(self, task: str) -> Scenario:
        return Scenario(
            f"{task}-{self.key}",
            f"{TASKS[task]}, vs {self.title}",
            "messages/s",
            Comparison.TIMES_MORE,
            peer=self.title,
            note=PROMISE + self.promise,
        )


RECADO = Client("feed", 250_000)
JETSTREAM = Rival(
    "jetstream",
    "NATS JetStream",
    Client("jetstream", 100_000),
    "JetStream acknowledges after a write without fsync, and syncs from time to time",
)
RABBITMQ = Rival(
    "rabbitmq",
    "RabbitMQ streams",
    Client("rabbit_stream", 50_000),
    "a RabbitMQ stream confirms after a write without fsync, and never syncs",
)
RIVALS = (JETSTREAM, RABBITMQ)
SCENARIOS = tuple(rival.scenario(task) for task in TASKS for rival in RIVALS)


class Contestant:
    """A server that runs, and the client for it. A feed of recado has an archive from the beginning."""

    def __init__(self, client: Client, url: str, pid: int) -> None:
        self._client = client
        self._url = url
        self._pid = pid
        self._archives: dict[str, Program] = {}

    def keep(self, names: Sequence[str], folder: Path, stack: ExitStack) -> None:
        """Archives for these feeds."""
        for name in names:
            archive = started("archive", self._url, name, folder / name)
            self._archives[name] = stack.enter_context(archive)
        for program in self._archives.values():
            program.until_ready()

    def sample(self, name: str, share: int = 1) -> dict[str, Sample]:
        """Take samples of each task; first everything is published, then everything is replayed."""
        pids = [self._pid]
        if name in self._archives:
            pids.append(self._archives[name].pid)
        return {
            task: self._task(task, name, self._client.messages // share, pids) for task in TASKS
        }

    def _task(self, task: str, name: str, messages: int, pids: list[int]) -> Sample:
        meter = Meter(pids)
        figures = run_client(self._client.program, task, self._url, name, messages, SIZE)
        rate = messages / figures["seconds"]
        details = {
            "rate": rate,
            "messages": messages,
            "cpu_us": meter.microseconds_per(messages),
            "client_us": figures["own_cpu_seconds"] / messages * 1e6,
        }
        return Sample(rate, details)


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    rivals = [
        rival
        for rival in RIVALS
        if plan.wants(*(rival.scenario(task).name for task in TASKS)) and plan.with_peer
    ]
    names = [rival.scenario(task).name for rival in rivals for task in TASKS]
    if not names:
        return
    rounds = [f"round-{turn}" for turn in range(plan.rounds)]
    with book.measuring(*names), ExitStack() as stack:
        contestants = start(rivals, rounds, folder, stack)
        for name in rounds:
            take(name, contestants, rivals, plan, book)
    yield from (name for name in names if plan.wants(name))


def start(
    rivals: Sequence[Rival], rounds: Sequence[str], folder: Path, stack: ExitStack
) -> dict[Client, Contestant]:
    """All of them, warmed up."""
    contestants = {}
    try:
        recado = stack.enter_context(peers.recado(data=folder / "rivals-recado"))
        ours = contestants[RECADO] = Contestant(RECADO, recado.url, recado.pid)
        if JETSTREAM in rivals:
            nats = stack.enter_context(peers.nats(data=folder / "rivals-nats"))
            contestants[JETSTREAM.client] = Contestant(JETSTREAM.client, nats.nats_url, nats.pid)
        if RABBITMQ in rivals:
            rabbit = stack.enter_context(peers.rabbitmq(data=folder / "rivals-rabbitmq"))
            contestants[RABBITMQ.client] = Contestant(RABBITMQ.client, rabbit.url, rabbit.pid)
    except peers.PeerStartError as error:
        raise NotMeasuredError(str(error).splitlines()[0]) from error
    ours.keep(["warm-up", *rounds], folder / "rivals-archives", stack)
    for contestant in contestants.values():
        contestant.sample("warm-up", share=50)
    return contestants


def take(
    name: str,
    contestants: dict[Client, Contestant],
    rivals: Sequence[Rival],
    plan: Plan,
    book: Book,
) -> None:
    """Run one round: each client once. The sample of recado counts for the comparison with every peer."""
    samples = {}
    for client, contestant in contestants.items():
        pause(plan)
        samples[client] = contestant.sample(name, QUICK_SHARE if plan.quick else 1)
    for rival in rivals:
        for task in TASKS:
            scenario = rival.scenario(task).name
            book.enter(scenario, Side.RECADO, samples[RECADO][task])
            book.enter(scenario, Side.PEER, samples[rival.client][task])
