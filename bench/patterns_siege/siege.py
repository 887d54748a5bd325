"""One siege from the start to the verdict: the programs work while they and their broker are killed."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.patterns import Messaging, PublishSubscribe
from recado.patterns.publisher import EncodedPublish
from workshop.time_limit import scale

from .attempts import BROKER, Kill
from .judge import GARBLED, Evidence, Published, Verdict, judge
from .processes import Broker, Worker
from .roles import (
    COLLECTED,
    COLLECTED_FILE,
    ENDS_FILE,
    HALT_FILE,
    ITEMS_PER_LIST_COUNT,
    LISTS_PER_PAIR_COUNT,
    POISON,
    SALES,
    SEEN,
    SHOP_FILE,
    STATE_FILE,
    TASKS_FILE,
    TRAPS_FOLDER,
    Control,
    Notes,
    Point,
)
from .schedule import Deed, Strike, make_strikes

PUBLISH_INTERVAL_S: Final = 0.05
TEND_INTERVAL_S: Final = 0.01
TRAP_S: Final = 15.0  # a program whose trap is not reached in so many seconds is killed where it is
CONTROL_TRAP_S: Final = 3.0
FREEZE_S: Final = 4.0  # a lease has 3
STALL_S: Final = 60.0  # without any progress, in which nothing more is expected
CONTROL_DRAIN_S: Final = 2.0
DRAIN_INTERVAL_S: Final = 0.5
TASK_INTERVAL_S: Final = 0.1  # the workers need less, with all their attempts
KINDS: Final = (
    *("fine", "fine", "flaky", "fine", "bad", "fine", "fine", "flaky"),
    *("fine", "fine", "stuck", "fine", "bad", "fine", "flaky", "fine"),
)
POISON_EVERY_COUNT: Final = 100
POISON_S: Final = 0.3  # before it kills: a control kills its workers again and again
GARBLED_EVERY_COUNT: Final = 17
SHUFFLED_COUNT: Final = 8  # messages of the resequencer that are published at once
SETTLED_QUEUES: Final = ("tasks", "lists", "sums", "orders", "payments", "shuffled", "sales")
PUBLISHED_FILE: Final = "published.jsonl"
STRIKES_FILE: Final = "strikes.jsonl"
EVIDENCE_FILE: Final = "evidence.json"

AGGREGATOR_TABLE: Final = "aggregator"

WORKERS: Final = ("tasks", "tasks", "flows", "flows", "outbox", "outbox")
CONTROL_WORKERS: Final = ("tasks", "tasks", "flows", "outbox")

Report = Callable[[str], None]
"""Called with what happens."""


class Outcome(msgspec.Struct):
    """The verdict of a siege, and what happened in it."""

    broker: str
    seed: int
    verdict: Verdict
    faults: list[str]
    kills_count: int
    broker_kills_count: int
    published: dict[str, int]
    strikes: dict[str, int]
    recovery_s: float

    @property
    def is_sound(self) -> bool:
        return self.verdict.is_sound and not self.faults

    @property
    def texts(self) -> list[str]:
        """What is wrong."""
        return [*self.verdict.texts, *self.faults]

    @property
    def summary(self) -> str:
        found = {kind.value: len(each) for kind, each in self.verdict.violations.items() if each}
        return (
            f"{self.broker}, seed {self.seed}: {self.kills_count} kills, {self.broker_kills_count} of the broker;"
            f" published {self.published}; {dict(self.verdict.counts)};"
            f" strikes {self.strikes};"
            f" drained in {self.recovery_s:.1f} s;"
            f" violations {found or 'none'}, faults {len(self.faults)}"
        )


class Siege:
    """One siege; `control` says which mechanisms are off."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        seed: int,
        kills_count: int,
        *,
        control: Control = Control.NONE,
        report: Report = lambda text: None,
    ) -> None:
        self._kind = kind
        self._folder = folder
        self._seed = seed
        self._random = Random(seed)
        self._kills_count = kills_count
        self._control = control
        self._report = report
        self._trap_s = CONTROL_TRAP_S if self._is_control else scale(TRAP_S)
        self._tasks: dict[int, Published] = {}
        self._counts = {"garbled": 0, "lists": 0, "orders": 0, "shuffled": 0}
        self._kills: list[Kill] = []
        self._strikes: dict[str, int] = {}
        self._broker = Broker(kind, folder / "data")
        self._workers: list[Worker] = []
        self._publishing = True
        (folder / TRAPS_FOLDER).mkdir()
        self._published = Notes(folder / PUBLISHED_FILE)
        self._struck = Notes(folder / STRIKES_FILE)

    @property
    def _is_control(self) -> bool:
        return self._control is not Control.NONE

    async def run(self) -> Outcome:
        await asyncio.to_thread(self._broker.start)
        try:
            driver = Messaging(self._broker.url, name="driver")
            async with driver:
                await self._declare(driver)
                self._start_workers()
                tending = asyncio.create_task(self._tend())
                try:
                    await self._attack(driver)
                    verdict, recovery_s = await self._drain(driver)
                finally:
                    tending.cancel()
                    await asyncio.wait([tending])
        finally:
            for worker in self._workers:
                worker.end()
            await asyncio.to_thread(self._broker.close)
        return Outcome(
            self._kind,
            self._seed,
            verdict,
            [
                fault
                for worker in self._workers
                for fault in [*worker.faults, *worker.internal_errors()]
            ],
            self._count_kills(),
            sum(kill.name == BROKER for kill in self._kills),
            {"tasks": len(self._tasks), **self._counts, "sales": len(self._read_sales())},
            self._strikes,
            recovery_s,
        )

    # ── the programs ──────────────────────────────────────────────────────────────────────────────────────

    async def _declare(self, driver: Messaging) -> None:
        """Declare the queues before the workers do: here it is known which type they have."""
        is_classic = self._control is Control.STORES
        async with await driver.open_channel() as channel:
            await channel.declare_queue(
                "tasks",
                durable=True,
                arguments={"x-queue-type": "classic"}
                if is_classic
                else {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
            )
        await driver.declare(*SETTLED_QUEUES[1:], *COLLECTED)
        for queue in ("sales", SEEN):
            await driver.bind(PublishSubscribe(SALES, "fanout"), queue)

    def _start_workers(self) -> None:
        for number, role in enumerate(CONTROL_WORKERS if self._is_control else WORKERS):
            arguments = [role, self._broker.url, str(self._folder), self._control.value]
            self._start_worker(role, "worker", arguments, number)
        self._start_worker("collector", "collector", [str(self._broker.port), str(self._folder)], 0)

    def _start_worker(self, role: str, module: str, arguments: list[str], number: int) -> None:
        command = [sys.executable, "-m", f"bench.patterns_siege.{module}", *arguments]
        log = self._folder / f"{role}-{number}.log"
        self._workers.append(Worker(role, command, log, self._folder))

    async def _tend(self) -> None:
        while True:
            for worker in self._workers:
                worker.tend()
            await asyncio.sleep(TEND_INTERVAL_S)

    # ── the attack ────────────────────────────────────────────────────────────────────────────────────────

    async def _attack(self, driver: Messaging) -> None:
        publishing = [
            asyncio.create_task(self._repeat(publish, driver))
            for publish in (
                self._publish_task,
                self._publish_lists,
                self._publish_order,
                self._publish_shuffled,
            )
        ]
        await self._wait_for_work()
        for strike in make_strikes(self._random):
            count = self._count_kills()
            if count >= self._kills_count:
                break
            self._report(f"{count} of {self._kills_count} kills: {strike}")
            await asyncio.sleep(strike.pause)
            await self._strike(strike)
        self._publishing = False
        (self._folder / HALT_FILE).touch()
        await asyncio.gather(*publishing)

    async def _wait_for_work(self) -> None:
        """Wait until everything works, so that the first kills meet programs that do something."""
        async with asyncio.timeout(scale(60)):
            while True:
                queues = {each["queue"] for each in _read(self._folder / COLLECTED_FILE)}
                if queues >= {"outcomes", "ordered", "sold"} and self._read_notes():
                    return
                await asyncio.sleep(TEND_INTERVAL_S)

    async def _strike(self, strike: Strike) -> None:
        self._struck.add(strike=str(strike))
        self._strikes[str(strike)] = self._strikes.get(str(strike), 0) + 1
        victims = [worker for worker in self._workers if worker.role == strike.role]
        chosen = self._random.choice(victims)
        match strike.deed:
            case Deed.KILL:
                chosen.tend()
                self._kills.append(chosen.kill())
            case Deed.KILL_BROKER:
                self._kills.append(await self._broker.restart())
            case Deed.FREEZE:
                chosen.send(signal.SIGSTOP)
                await asyncio.sleep(FREEZE_S)
                chosen.send(signal.SIGCONT)
            case Deed.KILL_AT_POINT:
                if not await self._kill_at_point(victims, strike):
                    chosen.tend()
                    self._kills.append(chosen.kill())
            case Deed.KILL_BROKER_AT_POINT | Deed.KILL_BOTH_AT_POINT:
                held = await self._hold_at_point(victims, strike)
                self._kills.append(await self._broker.restart())
                if strike.deed is Deed.KILL_BOTH_AT_POINT:
                    self._kills += [worker.kill() for worker in held if worker.is_held]
                for worker in victims:
                    worker.disarm()

    async def _kill_at_point(self, victims: Sequence[Worker], strike: Strike) -> bool:
        """Let the first program that passes the point kill itself; whether one has done so in time."""
        before = self._count_ends(strike.point)
        has_ended = await self._trap(
            victims, strike, "die", lambda: self._count_ends(strike.point) > before
        )
        for worker in victims:
            worker.disarm()
        return has_ended

    async def _hold_at_point(self, victims: Sequence[Worker], strike: Strike) -> list[Worker]:
        await self._trap(victims, strike, "hold", lambda: any(worker.is_held for worker in victims))
        return [worker for worker in victims if worker.is_held]

    async def _trap(
        self,
        victims: Sequence[Worker],
        strike: Strike,
        what: str,
        is_reached: Callable[[], bool],
    ) -> bool:
        """Arm the programs until one has reached the point; those that poison has killed are armed again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._trap_s):
                while not is_reached():
                    for worker in victims:
                        worker.arm(strike.point, strike.passages, what)
                    await asyncio.sleep(TEND_INTERVAL_S)
        if is_reached():
            return True
        self._struck.add(strike=str(strike), missed=True)
        self._strikes["missed"] = self._strikes.get("missed", 0) + 1
        return False

    def _count_ends(self, point: Point) -> int:
        return sum(each["reason"] == point.value for each in _read(self._folder / ENDS_FILE))

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────────

    async def _repeat(
        self, publish: Callable[[Messaging], Awaitable[None]], driver: Messaging
    ) -> None:
        while self._publishing:
            await publish(driver)
            await asyncio.sleep(PUBLISH_INTERVAL_S)

    async def _send(
        self, driver: Messaging, queue: str, body: str, *, has_id: bool = True, form: str = ""
    ) -> None:
        """Publish a message as any producer of AMQP may, with an id or without, and await its confirm."""
        has_id = has_id and self._control is not Control.IDS
        message_id = f"{self._random.getrandbits(64):x}" if has_id else None
        properties = Properties(
            delivery_mode=2,
            content_type="application/json",
            message_id=message_id,
            type=form or None,
        )
        encoded = encode_properties(properties)
        await driver.publish_encoded(
            EncodedPublish("", queue, body.encode(), encoded, message_id or "")
        )

    async def _publish_task(self, driver: Messaging) -> None:
        number = len(self._tasks)
        kind = KINDS[number % len(KINDS)]
        if number % POISON_EVERY_COUNT in (8, 9):
            kind = POISON
        seconds = POISON_S if kind == POISON else self._random.uniform(0, 0.05)
        body = {"number": number, "kind": kind, "seconds": seconds}
        has_id = number % 2 == 0 if number % 5 else self._random.random() < 0.5
        began = time.time()
        await self._send(driver, "tasks", json.dumps(body), has_id=has_id)
        task = Published(number, kind, began, time.time(), has_id)
        self._tasks[number] = task
        self._published.add(task=msgspec.to_builtins(task))
        await asyncio.sleep(TASK_INTERVAL_S - PUBLISH_INTERVAL_S)
        if number % GARBLED_EVERY_COUNT == 5:
            await self._send(driver, "tasks", f"{GARBLED}{self._counts['garbled']}")
            self._counts["garbled"] += 1

    async def _publish_lists(self, driver: Messaging) -> None:
        pair = self._counts["lists"] // LISTS_PER_PAIR_COUNT
        first = pair * LISTS_PER_PAIR_COUNT * ITEMS_PER_LIST_COUNT
        for number in range(LISTS_PER_PAIR_COUNT):
            items = [first + number * ITEMS_PER_LIST_COUNT + n for n in range(ITEMS_PER_LIST_COUNT)]
            body = {"number": self._counts["lists"] + number, "pair": pair, "items": items}
            await self._send(driver, "lists", json.dumps(body))
            await asyncio.sleep(PUBLISH_INTERVAL_S)
        self._counts["lists"] += LISTS_PER_PAIR_COUNT

    async def _publish_order(self, driver: Messaging) -> None:
        order = self._counts["orders"]
        await self._send(driver, "orders", json.dumps({"order": order}), form="placed")
        self._counts["orders"] += 1

    async def _publish_shuffled(self, driver: Messaging) -> None:
        first = self._counts["shuffled"] + 1
        numbers = list(range(first, first + SHUFFLED_COUNT))
        self._random.shuffle(numbers)
        for number in numbers:
            await self._send(driver, "shuffled", json.dumps({"group": 1, "number": number}))
            await asyncio.sleep(PUBLISH_INTERVAL_S / 4)
        self._counts["shuffled"] += SHUFFLED_COUNT

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────

    async def _drain(self, driver: Messaging) -> tuple[Verdict, float]:
        """Wait until all is well, or until nothing can be expected any more."""
        began = moved = time.monotonic()
        progress = -1
        while True:
            evidence = await self._evidence(driver)
            verdict = judge(evidence)
            now = time.monotonic()
            found = len(evidence.notes) + len(evidence.collected) - sum(evidence.left.values())
            if found != progress:
                progress, moved = found, now
            is_over = now - began > CONTROL_DRAIN_S if self._is_control else False
            if verdict.is_sound or is_over or now - moved > scale(STALL_S):
                (self._folder / EVIDENCE_FILE).write_bytes(msgspec.json.encode(evidence))
                return verdict, now - began
            self._report(f"draining: {len(verdict.texts)} left, such as {verdict.texts[0]:.100}")
            await asyncio.sleep(DRAIN_INTERVAL_S)

    async def _evidence(self, driver: Messaging) -> Evidence:
        return Evidence(
            tasks=self._tasks,
            garbled_count=self._counts["garbled"],
            lists_count=self._counts["lists"],
            orders_count=self._counts["orders"],
            shuffled_count=self._counts["shuffled"],
            sales=self._read_sales(),
            notes=self._read_notes(),
            collected=_read(self._folder / COLLECTED_FILE),
            kills=self._all_kills(),
            left=await self._count_left(driver),
            open_groups_count=self._count_open_groups(),
        )

    def _read_notes(self) -> list[dict[str, Any]]:
        return _read(self._folder / TASKS_FILE)

    def _count_kills(self) -> int:
        """Return how many processes the siege has killed; those that poisonous messages kill are not counted."""
        ends = _read(self._folder / ENDS_FILE)
        poisoned = {each["pid"] for each in ends if each["reason"] == POISON}
        return sum(kill.pid not in poisoned for kill in self._all_kills())

    def _all_kills(self) -> list[Kill]:
        """Return the kills, also those of programs that have killed themselves, which have noted when."""
        ended = {pid: at for worker in self._workers for pid, at in worker.ended}
        roles = {pid: worker.role for worker in self._workers for pid, _ in worker.ended}
        noted = {each["pid"]: each["at"] for each in _read(self._folder / ENDS_FILE)}
        moments = {pid: noted.get(pid, at) for pid, at in ended.items()}
        own = [Kill(roles[pid], pid, at, at) for pid, at in moments.items()]
        return [*self._kills, *own]

    async def _count_left(self, driver: Messaging) -> dict[str, int]:
        """Return what is still in queues and in tables of outputs, which must be empty in the end."""
        found = {}
        async with await driver.open_channel() as channel:
            for queue in SETTLED_QUEUES:
                info = await channel.declare_queue(queue, passive=True)
                found[queue] = int(info.message_count)
        for name in (STATE_FILE, SHOP_FILE):
            found[name] = sum(count for (count,) in self._query(name, "recado_output", "count(*)"))
        return found

    def _count_open_groups(self) -> int:
        """Return how many groups the aggregator has, which must all be complete in the end."""
        tables = [name for (name,) in self._query(STATE_FILE, "recado_state", "step")]
        return tables.count(AGGREGATOR_TABLE)

    def _read_sales(self) -> set[tuple[int, int]]:
        return set(self._query(SHOP_FILE, "sales_made", "account, number"))

    def _query(self, name: str, table: str, columns: str) -> list[Any]:
        """Read a table of a database; an empty one does not exist."""
        file = self._folder / name
        if not file.exists():
            return []
        connection = sqlite3.connect(file, timeout=60)
        try:
            return connection.execute(f"SELECT {columns} FROM {table}").fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        finally:
            connection.close()


def _read(file: Path) -> list[dict[str, Any]]:
    """Return the notes of a file; a line that is being written is left out."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_bytes().splitlines(True) if line.endswith(b"\n")]


def besiege(
    kind: str,
    folder: Path,
    seed: int,
    kills_count: int,
    *,
    control: Control = Control.NONE,
    report: Report = lambda text: None,
) -> Outcome:
    """Run one siege in an empty folder."""
    siege = Siege(kind, folder, seed, kills_count, control=control, report=report)
    return asyncio.run(siege.run())
