"""The processes of a feed, who of them is killed when, and the end in which all that is left settles.

start     the broker, the archives, the subscribers, the publishers
terror    somebody is killed, and comes back a little later; several may be away at a time
end       publishers are killed for good, everybody else returns; done when each has all, or time is up
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Protocol

from bench.feeds_crash import diary
from bench.feeds_crash.diary import Published
from bench.feeds_crash.judge import Verdict, judge_lives, judge_output, missing
from workshop import peers
from workshop.peers import Server

ROOT: Final = Path(__file__).resolve().parents[2]
BROKERS: Final = ("recado", "rabbitmq")
PEOPLE: Final = {
    "archive-1": "archive",
    "archive-2": "archive",
    "desk-commit": "commit",
    "desk-save": "save",
    "desk-trust": "trust",
    "desk-await": "await",
    "publisher-1": "publish",
    "publisher-2": "publish",
}
BROKER: Final = "broker"
LIVES: Final = {"archive": 2, "commit": 3, "save": 3, "trust": 3, "await": 3, "publish": 2}
"""How often who is killed, compared with the others; the broker's is 1."""
PAUSE: Final = (0.02, 0.8)
AWAY: Final = (0.0, 1.0)
SETTLE_SECONDS: Final = 90.0
LOOK_SECONDS: Final = 0.3


@dataclass
class Outcome:
    verdict: Verdict
    faults: list[str]
    counts: Counter[str] = field(default_factory=Counter)


class Citizen(Protocol):
    def start(self) -> None: ...

    def kill(self) -> None: ...

    @property
    def is_away(self) -> bool: ...


class Person:
    def __init__(self, name: str, url: str, folder: Path, rng: Random) -> None:
        self.name = name
        self.role = PEOPLE[name]
        self._url = url
        self._folder = folder
        self._rng = rng
        self._process: subprocess.Popen[bytes] | None = None
        self.faults: list[str] = []

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    @property
    def is_away(self) -> bool:
        return self._process is None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "bench.feeds_crash.people",
            self.role,
            self.name,
            self._url,
        ]
        command += [str(self._folder), str(self._rng.randrange(2**32))]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """A child that nobody has waited for: its id is still its own."""
        if self._process is None:
            return
        ended = self._process.poll()
        if ended is not None:
            self.faults.append(f"{self.name} ended by itself ({ended}):\n{peers.tail(self.log)}")
        else:
            self._process.kill()
            self._process.wait()
        self._process = None


class Broker:
    """On one folder and one port, whatever happens to it. Others are killed while it starts."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        (self._port,) = peers.free_ports(1)
        self._life = ExitStack()
        self._thread = ThreadPoolExecutor(1)
        self._starting: Future[Server] | None = None
        folder.mkdir()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{peers.HOST}:{self._port}/%2F"

    @property
    def is_away(self) -> bool:
        return self._starting is None or not self._starting.done()

    def start(self) -> None:
        if self._starting is None:
            self._starting = self._thread.submit(self._life.enter_context, self._started())

    def until_started(self) -> None:
        assert self._starting is not None
        self._starting.result()

    def _started(self) -> AbstractContextManager[Server]:
        if self._kind == "recado":
            return peers.recado(port=self._port, data=self._folder, stop=signal.SIGKILL)
        return peers.rabbitmq(port=self._port, data=self._folder)

    def kill(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            os.kill(starting.result().pid, signal.SIGKILL)
            self._life.close()

    def close(self) -> None:
        self.kill()
        self._thread.shutdown()


def live_through(kind: str, folder: Path, seed: int, seconds: float) -> Outcome:
    rng = Random(seed)
    broker = Broker(kind, folder / BROKER)
    people = [Person(name, broker.url, folder, rng) for name in PEOPLE]
    everybody: dict[str, Citizen] = {BROKER: broker, **{each.name: each for each in people}}
    kills: Counter[str] = Counter()
    with ExitStack() as stack:
        stack.callback(broker.close)
        for person in people:
            stack.callback(person.kill)
        broker.start()
        broker.until_started()
        for person in people:
            person.start()
            until_born(person, folder)
        terrorise(everybody, kills, rng, seconds)
        for person in people:
            if person.role == "publish":
                person.kill()
        for citizen in everybody.values():
            if citizen.is_away and not is_publisher(citizen):
                citizen.start()
        settle(folder)
    published = read_published(folder)
    verdict = judged(folder, published)
    counts = Counter({f"{what} killed": count for what, count in kills.items()})
    counts["confirmed"] = sum(published.confirmed.values())
    counts["tried"] = sum(published.tried.values())
    return Outcome(verdict, [fault for person in people for fault in person.faults], counts)


def until_born(person: Person, folder: Path) -> None:
    """Until it takes part: an archive has its queue, a subscriber its place. So nobody misses the beginning."""
    deadline = time.monotonic() + SETTLE_SECONDS
    ready = folder / f"{person.name}.ready"
    while person.role != "publish" and not ready.exists():
        if time.monotonic() > deadline:
            person.kill()
            raise peers.DidNotStart(f"{person.name} did not start:\n{peers.tail(person.log)}")
        time.sleep(0.02)


def is_publisher(citizen: Citizen) -> bool:
    return isinstance(citizen, Person) and citizen.role == "publish"


def terrorise(
    everybody: dict[str, Citizen], kills: Counter[str], rng: Random, seconds: float
) -> None:
    """Kill, and let come back; each at its time."""
    names = list(everybody)
    weights = [LIVES.get(PEOPLE.get(name, ""), 1) for name in names]
    end = time.monotonic() + seconds
    returns: list[tuple[float, str]] = []
    while (now := time.monotonic()) < end:
        for at, name in [each for each in returns if each[0] <= now]:
            everybody[name].start()
            returns.remove((at, name))
        (name,) = rng.choices(names, weights)
        if not everybody[name].is_away:
            everybody[name].kill()
            kills[PEOPLE.get(name, BROKER)] += 1
            returns.append((time.monotonic() + rng.uniform(*AWAY), name))
        time.sleep(rng.uniform(*PAUSE))  # chance decides when, not a condition


def settle(folder: Path) -> None:
    """Until every subscriber has all that was confirmed; whoever has not by then is judged."""
    published = read_published(folder)
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        if not any(any(missing(published, got)) for got in everything_got(folder)):
            return
        time.sleep(LOOK_SECONDS)


def read_published(folder: Path) -> Published:
    published = Published()
    for file in files(folder, *PUBLISHERS):
        diary.read_publisher(file, published)
    return published


def everything_got(folder: Path) -> list[set[diary.Name]]:
    """Of each subscriber."""
    found = [{got.name for got in diary.read_output(file)} for file in files(folder, *COMMITTERS)]
    for file in files(folder, *NOTERS):
        found.append({got.name for life in diary.read_subscriber(file) for got in life.got})
    return found


def judged(folder: Path, published: Published) -> Verdict:
    verdict = Verdict()
    for file in files(folder, *COMMITTERS):
        output = diary.read_output(file)
        verdict.violations += judge_output(file.stem, output, published).violations
    for file in files(folder, *NOTERS):
        lives, marks = diary.read_subscriber(file), PEOPLE[file.stem] != "save"
        verdict.violations += judge_lives(file.stem, lives, published, marks=marks).violations
    return verdict


COMMITTERS: Final = (".sqlite", "commit")
NOTERS: Final = (".diary", "save", "trust", "await")
PUBLISHERS: Final = (".diary", "publish")


def files(folder: Path, suffix: str, *roles: str) -> list[Path]:
    """Of all who have one of these roles."""
    return [folder / f"{name}{suffix}" for name, role in PEOPLE.items() if role in roles]
