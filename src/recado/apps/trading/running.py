"""The benchmark: run after run, each with processes of its own, and all of it on a feed with an archive.

    broker     a recado that has the feed; also what runs over AMQP go through, unless another is named
    server     the exchange: books, engines, receivers, receptionist
    clients    all clients of a run; they publish every ask on the feed when the run is over
    network    if round trips are to be longer: one in front of the server, or of the broker for each of the two

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

import recado
from recado.feeds.archivist import Archivist
from recado.feeds.feed import Feed

from .figures import Transport
from .measurement import FEED, RUN, Run, encode
from .plan import Plan, Trial
from .programs import Program, ProgramFailed, program

LISTENING: Final = re.compile(r"listening on amqp://(\S+)")
ARCHIVE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.02


class Told:
    """Whom progress is told; by itself it tells nobody."""

    def begun(self, number: int, trial: Trial) -> None: ...

    def asked(self, count: int) -> None: ...

    def ended(self, run: Run) -> None: ...


@dataclass(frozen=True)
class Recording:
    """Where measurements go."""

    url: str
    feed: Feed
    archive: Archivist

    async def add(self, run: Run, publisher: bytes, asked: int) -> None:
        """The run, when all of its asks are in the archive; and until it is there, too."""
        await self._until(publisher, asked)
        last = await self.feed.publish(encode(run), key=RUN)
        await self.feed.flush()
        await self._until(self.feed.publisher, last)

    async def _until(self, publisher: bytes, sequence: int) -> None:
        async with asyncio.timeout(ARCHIVE_SECONDS):
            while self.archive.vector.of(publisher) < sequence:  # noqa: ASYNC110 - it tells its feed, not us
                await asyncio.sleep(LOOK_SECONDS)


async def run_all(plan: Plan, folder: Path, told: Told) -> None:
    """All runs of a plan; what is measured goes into the archive in the folder, behind what is there."""
    async with AsyncExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="recado-trading-"))
        own = await stack.enter_async_context(own_broker(Path(scratch) / "broker"))
        link = await stack.enter_async_context(recado.connect(own.url))
        archive = await stack.enter_async_context(link.archive(FEED, folder))
        recording = Recording(own.url, await link.feed(FEED), archive)
        for number, trial in enumerate(plan.trials(), 1):
            told.begun(number, trial)
            url = plan.brokers.get(trial.broker or "")
            stage = Stage(trial, own if url is None else Broker(url, None), recording)
            told.ended(await stage.run(told.asked))


@dataclass(frozen=True)
class Broker:
    url: str
    program: Program | None
    """None if somebody else has started it."""


@asynccontextmanager
async def own_broker(data: Path) -> AsyncIterator[Broker]:
    async with program("broker", "serve", "--port", "0", "--data", str(data)) as server:
        found = None
        while found is None:
            found = LISTENING.search(await server.line())
        yield Broker(f"amqp://guest:guest@{found[1]}", server)


class Stage:
    """One run: its processes, started one after the other, and what they say."""

    def __init__(self, trial: Trial, broker: Broker, recording: Recording) -> None:
        self._trial = trial
        self._broker = broker
        self._recording = recording
        self._name = uuid.uuid4().hex[:12]
        self._programs: dict[str, list[Program]] = {}

    async def run(self, asked: Callable[[int], None]) -> Run:
        async with AsyncExitStack() as stack:
            self._stack = stack
            if (used := self._broker.program) is not None and self._is_amqp:
                self._programs["broker"] = [used]
            clients = await self._start("clients", *await self._place())
            return await self._watch(clients, asked)

    @property
    def _is_amqp(self) -> bool:
        return self._trial.transport is Transport.AMQP

    async def _start(self, kind: str, *words: str) -> Program:
        started = await self._stack.enter_async_context(program(kind, *words))
        if kind != "clients":  # who tell their processor time themselves
            self._programs.setdefault(kind, []).append(started)
        return started

    async def _place(self) -> list[str]:
        """Starts all but the clients; gives the words to start those with."""
        trial = self._trial
        transport = trial.transport.value
        match trial.transport:
            case Transport.TCP:
                server = await self._start("server", "trading", "serve", "--transport", transport)
                address = (await server.told())["listening"]
                at = await self._slower(f"tcp://{address}")
            case Transport.AMQP:
                away = await self._slower(self._broker.url)
                words = ("trading", "serve", "--transport", transport, "--url", away)
                server = await self._start("server", *words)
                await server.told()
                at = await self._slower(self._broker.url)
        words = ("--clients", str(trial.clients), "--asks", str(trial.asks), "--run", self._name)
        feed = ("--feed-url", self._recording.url)
        return ["trading", "trade", "--transport", transport, "--url", at, *words, *feed]

    async def _slower(self, url: str) -> str:
        """The same address, through a network of the latency that is wanted."""
        if not self._trial.latency_us:
            return url
        parts = urlsplit(url)
        words = ("--latency", f"{self._trial.latency_us}us")
        behind = f"{parts.hostname}:{parts.port}"
        way = await self._start("network", "trading", "network", behind, *words)
        port = (await way.told())["port"]
        login, found, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{login}{found}127.0.0.1:{port}").geturl()

    async def _watch(self, clients: Program, asked: Callable[[int], None]) -> Run:
        before: dict[str, float] = {}
        processor: dict[str, float] = {}
        traded = 0
        while True:
            match await clients.told():
                case {"begun": _}:
                    before = self._processor()
                case {"asked": int(count)}:
                    asked(count)
                case {"done": _, "processor": float(used), "traded": int(traded)}:
                    after = self._processor()
                    processor = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
                    processor["clients"] = used
                case {"published": int(count), "publisher": str(publisher)}:
                    break
                case other:
                    raise ProgramFailed(f"the clients said {other}")
        trial = self._trial
        run = Run(
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

    def _processor(self) -> dict[str, float]:
        """Seconds so far, by kind of process."""
        return {
            kind: sum(each.processor_seconds() for each in started)
            for kind, started in self._programs.items()
        }
