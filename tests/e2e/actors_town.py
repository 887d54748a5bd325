"""Brokers and nodes that are started and stopped, and a client that asks all the time."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from recado.actors import ActorError, ActorRef, ActorSystem
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport, Storage
from recado.actors.remote.errors import RemoteError
from recado.actors.remote.events import LinkEvent, LinkLost
from recado.client import ConnectionParameters
from tests.feeds.io.loop import until
from workshop import peers
from workshop.peers import Server

from .actors_cast import Note, Twice

ROOT = Path(__file__).parents[2]
HEALS = 2.0  # seconds from the broker's return
PATIENCE = 60.0


class NodeProcess:
    """Successive incarnations of a node."""

    def __init__(self, role: str, url: str, name: str, folder: Path, storage: Storage) -> None:
        program = [sys.executable, "-m", "tests.e2e.actors_node"]
        self._command = [*program, role, url, name, str(folder), storage.value]
        self._running: subprocess.Popen[bytes] | None = None
        self._log = folder / f"{role}-{token_hex(4)}.log"

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log
            )
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        assert line == b"ready\n", self._log.read_text()[-4000:]

    def kill(self) -> None:
        """As kill -9 does."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.wait()
            assert running.stdout is not None
            running.stdout.close()

    def send(self, number: signal.Signals) -> None:
        assert self._running is not None
        self._running.send_signal(number)

    async def ends(self) -> str:
        """Return its log, when it has ended by itself."""
        assert self._running is not None
        await asyncio.to_thread(self._running.wait, PATIENCE)
        self.kill()
        return self._log.read_text()

    async def stop(self) -> None:
        """In order, by SIGTERM."""
        assert self._running is not None
        self._running.terminate()
        status = await asyncio.to_thread(self._running.wait, PATIENCE)
        assert status == 0, self._log.read_text()[-4000:]
        self.kill()


@contextmanager
def process(
    role: str, url: str, name: str, folder: Path, storage: Storage = Storage.DURABLE
) -> Iterator[NodeProcess]:
    node = NodeProcess(role, url, name, folder, storage)
    try:
        yield node
    finally:
        node.kill()


class BrokerLives:
    """Successive runs of one broker on one folder and port, each ended by kill -9."""

    def __init__(self, broker: str, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        folder.mkdir()
        self._now = ExitStack()
        (self.port,) = peers.free_ports(1)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    async def start(self) -> float:
        """When it was there."""
        await asyncio.to_thread(self._now.enter_context, self._life())
        return asyncio.get_running_loop().time()

    def _life(self) -> AbstractContextManager[Server]:
        if self._broker == "recado":
            return peers.recado(port=self.port, data=self._folder, stop=signal.SIGKILL)
        return peers.rabbitmq(port=self.port, data=self._folder)

    async def kill(self) -> None:
        await asyncio.to_thread(self._now.close)


@asynccontextmanager
async def broker_lives(broker: str, folder: Path) -> AsyncIterator[BrokerLives]:
    lives = BrokerLives(broker, folder)
    await lives.start()
    try:
        yield lives
    finally:
        await lives.kill()


class Desk:
    """A system of this process, with an actor that asks all the time and records the outcomes."""

    def __init__(self, system: ActorSystem, exchange: str, told: list[LinkEvent]) -> None:
        self.system = system
        self.told = told
        self.ledger: ActorRef[Any] = system.actor("ledger", node=exchange)
        self.calculator: ActorRef[Any] = system.actor("calculator", node=exchange)
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0
        # Of the last ask that was answered.
        self.asked_at = self.answered_at = 0.0
        self._enough = False

    async def ask_all_the_time(self) -> None:
        number = 0
        while not self._enough:
            number += 1
            began = asyncio.get_running_loop().time()
            try:
                answer = await self.calculator.ask(Twice(number), timeout=1.0)
                assert answer == 2 * number
                self.outcomes["answered"] += 1
                self.asked_at, self.answered_at = began, asyncio.get_running_loop().time()
            except (ActorError, RemoteError, TimeoutError) as error:
                self.outcomes[type(error).__name__] += 1
                await asyncio.sleep(0.01)  # an error may be raised at once, and again
            self.longest = max(self.longest, asyncio.get_running_loop().time() - began)

    def stop_asking(self) -> None:
        self._enough = True


@asynccontextmanager
async def desk(
    url: str | ConnectionParameters, exchange: str, **settings: Any
) -> AsyncIterator[Desk]:
    told: list[LinkEvent] = []
    transport = AmqpTransport(url, AmqpSettings(server_bridge=False, **settings))
    async with ActorSystem(f"desk of {exchange}", transport=transport) as system:

        def listen(event: object) -> None:
            if isinstance(event, LinkEvent):
                told.append(event)

        system._listeners.append(listen)
        yield Desk(system, exchange, told)


def noted(folder: Path, life: int = 0) -> list[int]:
    """Return what the ledger has written, in order."""
    file = folder / "ledger"
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = [line.split() for line in lines]
    return [int(number) for said, number in pairs if int(said) == life]


class Town:
    """A node in its own process, and a desk that tells it numbers while it asks all the time."""

    def __init__(self, node: NodeProcess, desk: Desk, folder: Path, storage: Storage) -> None:
        self.node, self.desk, self.folder, self.storage = node, desk, folder, storage
        self.sent = 0

    def tell(self, count: int) -> None:
        for _ in range(count):
            self.desk.ledger.tell(Note(0, self.sent))
            self.sent += 1

    def has_noted(self, count: int) -> bool:
        return len(set(noted(self.folder))) >= count

    def has_all_of(self, numbers: Iterable[int]) -> bool:
        return set(numbers) <= set(noted(self.folder))

    def is_lost(self) -> bool:
        return bool(self.desk.told) and isinstance(self.desk.told[-1], LinkLost)

    def answered_since(self, when: float) -> bool:
        """Asked since then: an answer to an earlier ask may have been in flight already."""
        return self.desk.asked_at > when


@asynccontextmanager
async def town(
    url: str,
    place: Path,
    storage: Storage = Storage.DURABLE,
    *,
    desk_url: str | None = None,
    **settings: Any,
) -> AsyncIterator[Town]:
    folder = place / storage.value
    folder.mkdir()
    exchange = f"exchange-{token_hex(4)}"
    with process("server", url, exchange, folder, storage) as node:
        await node.start()
        async with (
            desk(desk_url or url, exchange, storage=storage, **settings) as its_desk,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(its_desk.ask_all_the_time())
            await until(lambda: its_desk.outcomes["answered"] > 0)
            yield Town(node, its_desk, folder, storage)
            its_desk.stop_asking()
