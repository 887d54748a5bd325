"""Messages are sent, the job is killed again and again, and in the end all is counted.

A kill is one of
    driver   the whole job, at any moment: it is started again
    worker   one of the processes in which Spark runs our Python, at any moment
    spool    the source's, when rows are safe in the spool and not acknowledged
    sink     the sink's, when its messages are confirmed and Spark does not know
    lake     the whole job, when rows are in the lake and Spark does not know
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Final

import msgspec
import pyarrow.dataset as ds

from bench.feeds_crash.diary import lines
from bench.pipeline_crash import job
from bench.pipeline_crash.doomed import LAKE, SINK, SPOOL
from bench.pipeline_crash.job import ROUTES, Route, Task
from bench.pipeline_crash.judge import Arrived, Violation, judge
from bench.processes import children, family
from recado.amqp.properties import Properties
from recado.amqp.values import Table
from recado.client import blocking
from recado.feeds.archive.store import Store
from recado.feeds.block import Block
from recado.feeds.boundary import Batch
from recado.feeds.views import NO_VIEW
from workshop import peers

KINDS: Final = ("driver", "worker", "spool", "sink", "lake")
ONCE: Final = frozenset({job.ARCHIVE_LAKE, job.IDS_LAKE, job.ARCHIVE_RECADO})
"""Where each message is promised to be there once; on the others, at least once."""
PUBLISHER: Final = bytes(16)
AT_A_TIME: Final = 10
PACE: Final = 0.2  # seconds between two groups
PATIENCE: Final = 400.0  # seconds until a job must have done something
LOOK: Final = 0.05


class Stuck(RuntimeError):
    """The job did nothing for too long."""


@dataclass
class Outcome:
    violations: list[Violation]
    counts: Counter[str]


def besiege(
    folder: Path,
    kills: Sequence[str],
    seed: int,
    *,
    routes: Sequence[Route] = ROUTES,
    careful: bool = True,
) -> Outcome:
    """One run: so many kills, of these kinds in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        recado = stack.enter_context(peers.recado(data=folder / "recado"))
        rabbitmq = stack.enter_context(peers.rabbitmq())
        urls = {"recado": recado.url, "rabbitmq": rabbitmq.url}
        task = Task(recado.url, rabbitmq.url, [route.name for route in routes], careful)
        (folder / "task.json").write_bytes(msgspec.json.encode(task))
        declare(urls, careful=careful)
        sender = stack.enter_context(sending(folder, urls))
        running = stack.enter_context(Running(folder, {route.name for route in routes}))
        random = Random(seed)
        for kind in kills:
            running.wait_for_work()
            time.sleep(random.random() * 0.5)  # any moment
            running.kill(kind, random)
        running.wait_for_work()
        sender.stop()
        running.finish()
        arrived = {route: collect(route, folder, urls) for route in routes}
    found = [
        each
        for route, what in arrived.items()
        for each in judge(what, sender.sent, once=route in ONCE)
    ]
    counts = Counter({f"{kind} kills": count for kind, count in Counter(kills).items()})
    counts["sent"] = sender.sent
    for route, what in arrived.items():
        counts[f"{route.name} repeats"] = what.repeats
    return Outcome(found, counts)


def declare(urls: dict[str, str], *, careful: bool) -> None:
    for route in ROUTES:
        if route.broker:
            with blocking.connect(urls[route.broker]) as connection:
                channel = connection.channel()
                once: Table = {
                    "x-message-deduplication": True,
                    "x-cache-size": 100_000 if careful else 1,
                }
                arguments: Table = once if route.name == job.ARCHIVE_RECADO.name else {}
                channel.declare_queue(
                    route.target or route.source, durable=True, arguments=arguments
                )


# -- what is sent -------------------------------------------------------------------------------------


class Sender(Thread):
    """The numbers 0, 1, … to both queues and into the archive, until it is stopped."""

    def __init__(self, store: Store, channels: dict[str, blocking.Channel]) -> None:
        super().__init__(name="sender")
        self.sent = 0
        self._store = store
        self._channels = channels
        self._enough = Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._enough.wait(PACE):
                self._send(range(self.sent, self.sent + AT_A_TIME))
                self.sent += AT_A_TIME
        except Exception as error:  # noqa: BLE001 - raised where somebody waits for it
            self._error = error

    def _send(self, numbers: range) -> None:
        bodies = [b"%d" % number for number in numbers]
        self._store.append([Batch(PUBLISHER, numbers[0] + 1, Block.of(bodies), NO_VIEW)])
        self._store.sync()
        for route in (job.IDS_LAKE, job.PLAIN_LAKE):
            channel = self._channels[route.broker]
            for number, body in zip(numbers, bodies, strict=True):
                named = f"id-{number}" if route is job.IDS_LAKE else None
                channel.publish(
                    "", route.source, body, Properties(message_id=named, delivery_mode=2)
                )
            channel.flush()

    def stop(self) -> None:
        self._enough.set()
        self.join()
        if self._error is not None:
            raise self._error


@contextmanager
def sending(folder: Path, urls: dict[str, str]) -> Iterator[Sender]:
    with ExitStack() as stack:
        store = stack.enter_context(Store(folder / "archive", "numbers"))
        channels = {
            name: stack.enter_context(blocking.connect(url)).channel() for name, url in urls.items()
        }
        sender = Sender(store, channels)
        sender.start()
        try:
            yield sender
        finally:
            sender._enough.set()
            sender.join()


# -- who is killed ------------------------------------------------------------------------------------


class Running:
    """The job, whichever of its lives it is in."""

    def __init__(self, folder: Path, routes: set[str]) -> None:
        self._folder = folder
        self._routes = routes
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0  # lines of the diary

    def __enter__(self) -> Running:
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill_driver()

    def _start(self) -> None:
        self._read = len(self._diary())
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.pipeline_crash.job", str(self._folder)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _diary(self) -> list[list[str]]:
        return list(lines(self._folder / "diary"))

    def wait_for_work(self) -> None:
        """Until each query has done a batch since the last kill, or since it was started again."""
        begun = self._read

        def worked() -> bool:
            new = self._diary()[begun:]
            return self._routes <= {words[1] for words in new if words[0] == "batch"}

        self._wait(worked, "work")
        self._read = len(self._diary())

    def kill(self, kind: str, random: Random) -> None:
        match kind:
            case "driver":
                self._kill_driver()
                self._start()
            case "worker":
                workers = self._workers()
                if workers:
                    _kill(random.choice(workers))
            case "spool":
                self._doom(SPOOL)
            case "sink":
                self._doom(SINK)
            case _:
                self._doom(LAKE)

    def _doom(self, name: str) -> None:
        doom = self._folder / name
        doom.touch()
        self._wait(lambda: not doom.exists(), "die")

    def _workers(self) -> list[int]:
        """The processes in which Spark runs Python: those of the JVM, which is the job's only child."""
        assert self._process is not None
        found = []
        for machine in children(self._process.pid):
            found += family(machine)[1:]
        return found

    def _kill_driver(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        """A job that is gone, as the doomed are, is started again."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if self._process.poll() is not None:
                self._start()
            if time.monotonic() > deadline:
                tail = (self._folder / "log").read_text(errors="replace")[-3000:]
                raise Stuck(f"the job did not {what} within {PATIENCE:g} s: {tail}")
            time.sleep(LOOK)

    def finish(self) -> None:
        (self._folder / "finish").touch()
        self._wait(lambda: ["finished"] in self._diary(), "finish")
        assert self._process is not None
        self._process.wait()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# -- what arrived -------------------------------------------------------------------------------------


def collect(route: Route, folder: Path, urls: dict[str, str]) -> Arrived:
    if not route.target:
        found = ds.dataset(folder / "lake" / route.name, format="parquet", partitioning=None)
        return Arrived(route.name, found.to_table(["number"]).column("number").to_pylist())
    numbers: list[int] = []
    ids: list[str] = []
    with blocking.connect(urls[route.broker]) as connection:
        channel = connection.channel()
        left = channel.declare_queue(route.target, passive=True).messages
        with channel.consume(route.target, no_ack=True) as consumer:
            while len(numbers) < left:
                for delivery in consumer.next_batch(timeout=60):
                    numbers.append(int(delivery.body))
                    ids.append(delivery.properties.message_id or "")
    return Arrived(route.name, numbers, ids)
