"""The benchmark: executes run after run, each in its own processes, and publishes the timings on a feed with an
archive.

    broker     a recado broker that has the feed; also used by runs over AMQP, unless another broker is named
    server     the exchange: books, engines, receivers, receptionist
    clients    all clients of a run; they publish every ask on the feed when the run is over
    network    for added latency: a delay proxy before the server, or two before the broker

Nothing is published or archived while asks are timed.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Final
from urllib.parse import urlsplit

import recado.feeds
from recado.feeds.archiver import Archiver
from recado.feeds.feed import Feed

from .figures import TransportKind
from .measurement import FEED_NAME, RUN_KEY, RunSummary, encode
from .plan import BenchmarkPlan, Trial
from .processes import ProcessFailedError, RecadoProcess, run_process

LISTENING_PATTERN: Final = re.compile(r"listening on amqp://(\S+)")
ARCHIVE_TIMEOUT_S: Final = 60.0
POLL_INTERVAL_S: Final = 0.02


class BenchmarkListener:
    """Is notified of the progress; the methods of this base class do nothing."""

    def run_started(self, number: int, trial: Trial) -> None: ...

    def asks_completed(self, count: int) -> None: ...

    def run_finished(self, run: RunSummary) -> None: ...


@dataclass(frozen=True)
class ArchiveRecorder:
    """Publishes the summary of a run after all its asks have reached the archive."""

    url: str
    feed: Feed
    archive: Archiver

    async def add(self, run: RunSummary, publisher: bytes, ask_count: int) -> None:
        """Wait until all asks of a run are archived, publish the run, and wait until that is archived."""
        await self._wait_archived(publisher, ask_count)
        last = await self.feed.publish(encode(run), key=RUN_KEY)
        await self.feed.flush()
        await self._wait_archived(self.feed.publisher, last)

    async def _wait_archived(self, publisher: bytes, sequence: int) -> None:
        async with asyncio.timeout(ARCHIVE_TIMEOUT_S):
            while self.archive.vector.last_of(publisher) < sequence:  # noqa: ASYNC110 - no event
                await asyncio.sleep(POLL_INTERVAL_S)


async def run_plan(plan: BenchmarkPlan, folder: Path, listener: BenchmarkListener) -> None:
    """Execute all runs of a plan, and append their results to the archive in a folder."""
    async with AsyncExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="recado-trading-"))
        own = await stack.enter_async_context(start_broker(Path(scratch) / "broker"))
        link = await stack.enter_async_context(recado.feeds.connect(own.url))
        archive = await stack.enter_async_context(link.archive(FEED_NAME, folder))
        recording = ArchiveRecorder(own.url, link.feed(FEED_NAME), archive)
        for number, trial in enumerate(plan.trials(), 1):
            listener.run_started(number, trial)
            url = plan.brokers.get(trial.broker or "")
            stage = BenchmarkRun(
                trial, own if url is None else BenchmarkBroker(url, None), recording
            )
            listener.run_finished(await stage.run(listener.asks_completed))


@dataclass(frozen=True)
class BenchmarkBroker:
    url: str
    process: RecadoProcess | None
    """None if the broker was not started by the benchmark."""


@asynccontextmanager
async def start_broker(data: Path) -> AsyncIterator[BenchmarkBroker]:
    async with run_process("broker", "serve", "--port", "0", "--data", str(data)) as server:
        found = None
        while found is None:
            found = LISTENING_PATTERN.search(await server.read_line())
        yield BenchmarkBroker(f"amqp://guest:guest@{found[1]}", server)


class BenchmarkRun:
    """One run: starts its processes one after the other, and follows their output."""

    def __init__(self, trial: Trial, broker: BenchmarkBroker, recording: ArchiveRecorder) -> None:
        self._trial = trial
        self._broker = broker
        self._recording = recording
        self._name = uuid.uuid4().hex[:12]
        self._processes: dict[str, list[RecadoProcess]] = {}

    async def run(self, on_asks_completed: Callable[[int], None]) -> RunSummary:
        async with AsyncExitStack() as stack:
            self._stack = stack
            if (used := self._broker.process) is not None and self._is_amqp:
                self._processes["broker"] = [used]
            clients = await self._start("clients", *await self._start_servers())
            return await self._follow_clients(clients, on_asks_completed)

    @property
    def _is_amqp(self) -> bool:
        return self._trial.transport is TransportKind.AMQP

    async def _start(self, kind: str, *arguments: str) -> RecadoProcess:
        started = await self._stack.enter_async_context(run_process(kind, *arguments))
        if kind != "clients":  # they report their CPU time themselves
            self._processes.setdefault(kind, []).append(started)
        return started

    async def _start_servers(self) -> list[str]:
        """Start all processes but the clients, and return the command line of the clients."""
        trial = self._trial
        transport = trial.transport.value
        match trial.transport:
            case TransportKind.TCP:
                server = await self._start("server", "trading", "serve", "--transport", transport)
                address = (await server.read_json())["listening"]
                clients_url = await self._start_delay_proxy(f"tcp://{address}")
            case TransportKind.AMQP:
                server_url = await self._start_delay_proxy(self._broker.url)
                command = ("trading", "serve", "--transport", transport, "--url", server_url)
                server = await self._start("server", *command)
                await server.read_json()
                clients_url = await self._start_delay_proxy(self._broker.url)
        options = ("--clients", str(trial.clients), "--asks", str(trial.asks), "--run", self._name)
        feed = ("--feed-url", self._recording.url)
        return ["trading", "trade", "--transport", transport, "--url", clients_url, *options, *feed]

    async def _start_delay_proxy(self, url: str) -> str:
        """Start a delay proxy to a URL if latency is to be added, and return the URL of the proxy."""
        if not self._trial.latency_us:
            return url
        parts = urlsplit(url)
        latency = ("--latency", f"{self._trial.latency_us}us")
        target = f"{parts.hostname}:{parts.port}"
        proxy = await self._start("network", "trading", "network", target, *latency)
        port = (await proxy.read_json())["port"]
        login, at_sign, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{at_sign}127.0.0.1:{port}").geturl()

    async def _follow_clients(
        self, clients: RecadoProcess, on_asks_completed: Callable[[int], None]
    ) -> RunSummary:
        before: dict[str, float] = {}
        processor: dict[str, float] = {}
        traded = 0
        while True:
            match await clients.read_json():
                case {"begun": _}:
                    before = self._cpu_seconds()
                case {"asked": int(count)}:
                    on_asks_completed(count)
                case {"done": _, "processor": float(used), "traded": int(traded)}:
                    after = self._cpu_seconds()
                    processor = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
                    processor["clients"] = used
                case {"published": int(count), "publisher": str(publisher)}:
                    break
                case other:
                    raise ProcessFailedError(f"unexpected output of the clients: {other}")
        trial = self._trial
        run = RunSummary(
            run=self._name,
            transport=trial.transport,
            broker=trial.broker,
            latency_us=trial.latency_us,
            clients=trial.clients,
            asks=trial.asks,
            at=round(time() * 1e6),
            traded=traded,
            processor={kind: round(used, 3) for kind, used in processor.items()},
        )
        await self._recording.add(run, bytes.fromhex(publisher), count)
        return run

    def _cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by kind of process."""
        return {
            kind: sum(each.cpu_seconds() for each in started)
            for kind, started in self._processes.items()
        }
