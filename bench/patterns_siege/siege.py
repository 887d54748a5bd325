"""One siege from the start to the verdict: the programs work while they and their broker are killed."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.patterns import Message, Messaging
from recado.patterns.publisher import EncodedPublish
from workshop import peers
from workshop.peers import HOST, Server

from .judge import Evidence, Kill, Published, Verdict, judge
from .worker import (
    COLLECTED_FILE,
    HALT_FILE,
    ITEMS_PER_LIST_COUNT,
    LISTS_PER_PAIR_COUNT,
    SHOP_FILE,
    TASKS_FILE,
)

ROOT: Final = Path(__file__).resolve().parents[2]
KILL_INTERVAL_S: Final = (0.2, 1.0)
BROKER_KILL_SHARE: Final = 0.1
PUBLISH_INTERVAL_S: Final = 0.1
TEND_INTERVAL_S: Final = 0.02
DRAIN_S: Final = 60.0
CONTROL_DRAIN_S: Final = 8.0
KINDS: Final = ("fine", "fine", "fine", "flaky", "fine", "bad")
POISON_EVERY_COUNT: Final = 40
SHUFFLED_COUNT: Final = 8  # messages of the resequencer that are published at once

WORKERS: Final = ("tasks", "tasks", "flows", "flows", "outbox", "outbox")


class Worker:
    """A program in a process of its own, started again whenever it was killed."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.faults: list[str] = []
        self.poisoned: list[Kill] = []
        self._command = command
        self._log = log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def tend(self) -> None:
        """Start the program again if a poisonous message has killed it; anything else is a fault."""
        status = self.process.poll()
        if status is None:
            return
        now = time.time()
        if status == -signal.SIGKILL:
            self.poisoned.append(Kill("poison", self.process.pid, now, now))
        else:
            self.faults.append(f"{self.name} ended ({status}):\n{peers.tail(self._log)}")
        self.process = self._start()

    def kill(self) -> Kill:
        """Kill the program and start it again, without a moment in which `tend` would start another one."""
        began, pid = time.time(), self.process.pid
        self.end()
        kill = Kill(self.name, pid, began, time.time())
        self.process = self._start()
        return kill

    def end(self) -> None:
        """A child that was not waited for: its process id is still its own."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Broker:
    """Uses one data folder and one port in all its incarnations."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        (self.port,) = peers.free_ports(1)
        self._incarnation = ExitStack()
        folder.mkdir()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"

    def start(self) -> None:
        self._incarnation.enter_context(self._started())

    def _started(self) -> AbstractContextManager[Server]:
        if self._kind == "recado":
            return peers.recado(port=self.port, data=self._folder, stop=signal.SIGKILL)
        # Quorum queues of 3.10 that are not empty find no leader after a kill.
        return peers.rabbitmq(port=self.port, data=self._folder, stop=signal.SIGTERM)

    async def restart(self) -> Kill:
        began = time.time()
        await asyncio.to_thread(self.close)
        await asyncio.to_thread(self.start)
        return Kill("broker", 0, began, time.time())

    def close(self) -> None:
        self._incarnation.close()


class Outcome(msgspec.Struct):
    """The verdict of a siege, and what happened in it."""

    broker: str
    verdict: Verdict
    faults: list[str]
    kills_count: int
    broker_kills_count: int
    published: dict[str, int]
    recovery_s: float

    @property
    def summary(self) -> str:
        found = {kind.value: len(each) for kind, each in self.verdict.violations.items() if each}
        return (
            f"{self.broker}: {self.kills_count} kills, {self.broker_kills_count} of the broker;"
            f" published {self.published}; {dict(self.verdict.counts)};"
            f" drained in {self.recovery_s:.1f} s;"
            f" violations {found or 'none'}, faults {len(self.faults)}"
        )


class Siege:
    """One siege; with `is_on` false the mechanisms are off."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        seed: int,
        kills_count: int,
        *,
        is_on: bool = True,
    ) -> None:
        self._kind = kind
        self._folder = folder
        self._random = Random(seed)
        self._kills_count = kills_count
        self._is_on = is_on
        self._tasks: dict[int, Published] = {}
        self._counts = {"lists": 0, "orders": 0, "shuffled": 0}
        self._kills: list[Kill] = []
        self._broker = Broker(kind, folder / "data")
        self._workers: list[Worker] = []
        self._publishing = True

    async def run(self) -> Outcome:
        await asyncio.to_thread(self._broker.start)
        try:
            self._workers = [
                self._worker(role, number) for number, role in enumerate((*WORKERS, "collector"))
            ]
            driver = Messaging(self._broker.url, name="driver")
            async with driver:
                await self._declare(driver)
                tending = asyncio.create_task(self._tend())
                publishing = [
                    asyncio.create_task(self._repeat(publish, driver))
                    for publish in (
                        self._publish_task,
                        self._publish_lists,
                        self._publish_order,
                        self._publish_shuffled,
                    )
                ]
                await self._kill_all()
                self._publishing = False
                (self._folder / HALT_FILE).touch()
                await asyncio.gather(*publishing)
                verdict, recovery_s = await self._drain()
                tending.cancel()
                await asyncio.wait([tending])
        finally:
            for worker in self._workers:
                worker.end()
            await asyncio.to_thread(self._broker.close)
        return Outcome(
            self._kind,
            verdict,
            [fault for worker in self._workers for fault in worker.faults],
            len(self._kills),
            sum(kill.name == "broker" for kill in self._kills),
            {"tasks": len(self._tasks), **self._counts, "sales": len(self._read_sales())},
            recovery_s,
        )

    def _worker(self, role: str, number: int) -> Worker:
        command = [sys.executable, "-m", "bench.patterns_siege.worker", role, self._broker.url]
        command += [str(self._folder), "on" if self._is_on else "off"]
        return Worker(role, command, self._folder / f"{role}-{number}.log")

    async def _declare(self, driver: Messaging) -> None:
        """Declare the queues before the workers do: here it is known which type they have."""
        async with await driver.open_channel() as channel:
            await channel.declare_queue(
                "tasks",
                durable=True,
                arguments={
                    "x-queue-type": "quorum" if self._is_on else "classic",
                    **({"x-delivery-limit": 1_000_000} if self._is_on else {}),
                },
            )
        await driver.declare("lists", "orders", "shuffled")

    # ── what happens meanwhile ────────────────────────────────────────────────────────────────────────────

    async def _tend(self) -> None:
        while True:
            for worker in self._workers:
                worker.tend()
            await asyncio.sleep(TEND_INTERVAL_S)

    async def _kill_all(self) -> None:
        victims = [each for each in self._workers if each.name != "collector"]
        deck: list[Worker] = []  # so that each is killed equally often
        await asyncio.sleep(1.5)  # so that the first kills meet programs that work
        for number in range(self._kills_count):
            await asyncio.sleep(self._random.uniform(*KILL_INTERVAL_S))
            if self._random.random() < BROKER_KILL_SHARE or number == self._kills_count // 2:
                self._kills.append(await self._broker.restart())
            else:
                if not deck:
                    deck = self._random.sample(victims, len(victims))
                worker = deck.pop()
                worker.tend()
                self._kills.append(worker.kill())

    async def _repeat(
        self, publish: Callable[[Messaging], Awaitable[None]], driver: Messaging
    ) -> None:
        while self._publishing:
            await publish(driver)
            await asyncio.sleep(PUBLISH_INTERVAL_S)

    async def _publish_task(self, driver: Messaging) -> None:
        number = len(self._tasks)
        kind = KINDS[number % len(KINDS)]
        if number % POISON_EVERY_COUNT == 3:
            kind = "poison"
        body = {"number": number, "kind": kind, "seconds": self._random.uniform(0, 0.1)}
        began = time.time()
        if number % 2:
            await driver.publish("tasks", body)
        else:  # a producer that sets no message id
            properties = encode_properties(Properties(delivery_mode=2))
            encoded = EncodedPublish("", "tasks", json.dumps(body).encode(), properties, "")
            await driver.publish_encoded(encoded)
        self._tasks[number] = Published(number, kind, began, time.time())

    async def _publish_lists(self, driver: Messaging) -> None:
        pair = self._counts["lists"] // LISTS_PER_PAIR_COUNT
        first = pair * LISTS_PER_PAIR_COUNT * ITEMS_PER_LIST_COUNT
        for number in range(LISTS_PER_PAIR_COUNT):
            items = [first + number * ITEMS_PER_LIST_COUNT + n for n in range(ITEMS_PER_LIST_COUNT)]
            body = {"pair": pair, "items": items}
            await driver.publish("lists", body)
            await asyncio.sleep(PUBLISH_INTERVAL_S)
        self._counts["lists"] += LISTS_PER_PAIR_COUNT

    async def _publish_order(self, driver: Messaging) -> None:
        order = self._counts["orders"]
        await driver.publish("orders", Message(body={"order": order}, type="placed"))
        self._counts["orders"] += 1

    async def _publish_shuffled(self, driver: Messaging) -> None:
        first = self._counts["shuffled"] + 1
        numbers = list(range(first, first + SHUFFLED_COUNT))
        self._random.shuffle(numbers)
        for number in numbers:
            await driver.publish("shuffled", {"group": 1, "number": number})
            await asyncio.sleep(PUBLISH_INTERVAL_S / 4)
        self._counts["shuffled"] += SHUFFLED_COUNT

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────

    async def _drain(self) -> tuple[Verdict, float]:
        """Wait until all is well, or until nothing can be expected any more."""
        began = time.monotonic()
        limit_s = DRAIN_S if self._is_on else CONTROL_DRAIN_S
        while True:
            verdict = judge(self._evidence())
            elapsed = time.monotonic() - began
            if verdict.is_sound or elapsed > limit_s:
                return verdict, elapsed
            await asyncio.sleep(0.25)

    def _evidence(self) -> Evidence:
        return Evidence(
            tasks=self._tasks,
            lists_count=self._counts["lists"],
            orders_count=self._counts["orders"],
            shuffled_count=self._counts["shuffled"],
            sales=self._read_sales(),
            notes=_read(self._folder / TASKS_FILE),
            collected=_read(self._folder / COLLECTED_FILE),
            kills=[*self._kills, *(each for worker in self._workers for each in worker.poisoned)],
        )

    def _read_sales(self) -> set[tuple[int, int]]:
        file = self._folder / SHOP_FILE
        if not file.exists():
            return set()
        shop = sqlite3.connect(file, timeout=30)
        try:
            return set(shop.execute("SELECT account, number FROM sales_made").fetchall())
        finally:
            shop.close()


def _read(file: Path) -> list[dict[str, Any]]:
    """Return the notes of a file; a line that is being written is left out."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_bytes().splitlines(True) if line.endswith(b"\n")]


def besiege(kind: str, folder: Path, seed: int, kills_count: int, *, is_on: bool = True) -> Outcome:
    """Run one siege in an empty folder."""
    return asyncio.run(Siege(kind, folder, seed, kills_count, is_on=is_on).run())
