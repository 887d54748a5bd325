"""The programs under siege: `python -m bench.patterns_siege.worker ROLE URL FOLDER CONTROL`.

They use the public API only. Each notes what it does in a file of the folder before it goes on, synced to the disk:
with the notes of `siege.py` and `collector.py`, this is the truth that the judge reads. CONTROL is `none`, or the
name of a `Control`: then a mechanism that the siege tests is replaced by what programs do without it.

A program is killed from outside at a random moment, or it kills itself at a `Trap`, which the siege arms for one of the
points that matter: inside a transaction, after its commit, before an acknowledgement.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from bench.patterns_siege.roles import (
    ACCOUNTS_COUNT,
    ATTEMPTS_COUNT,
    ENDS_FILE,
    HALT_FILE,
    ITEMS_PER_LIST_COUNT,
    LISTS_PER_PAIR_COUNT,
    PAYMENTS,
    POISON,
    SALE_INTERVAL_S,
    SALES,
    SHOP_FILE,
    STATE_FILE,
    TASK_TIMEOUT_S,
    TASKS_FILE,
    TRAPS_FOLDER,
    Control,
    Notes,
    Point,
)
from recado.client import Delivery
from recado.patterns import (
    Aggregator,
    FlowStep,
    MemoryStore,
    Message,
    Messaging,
    PointToPoint,
    ProcessManager,
    PublishSubscribe,
    Resequencer,
    Retry,
    RunningProcess,
    Send,
    Splitter,
    SqliteStore,
    StatefulStep,
    StateTransaction,
    StoreTransaction,
)

T = TypeVar("T")

FLOW_RETRY: Final = Retry(1000, backoff=0.05, factor=1)
PAYMENT_TIMEOUT_S: Final = 0.5
HOLD_POLL_S: Final = 0.002
ACK_POINTS: Final = {"lists": Point.ACK_LIST, "orders": Point.ACK_ORDER}
LOSING_S: Final = (
    0.2  # longer than the interval of tasks, so that more and more of them wait in the worker
)


class Trap:
    """Ends or holds this process at a point.

    It is armed by a file with the name of the process id: `POINT COUNT die|hold`. At the count-th passage of the point
    the process kills itself, or waits until the file is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._pid = os.getpid()
        self._file = folder / TRAPS_FOLDER / str(self._pid)
        self._notes = Notes(folder / ENDS_FILE)
        self._passed_count = 0

    def __call__(self, point: Point) -> None:
        try:
            armed, count, what = self._file.read_text().split()
        except FileNotFoundError:
            self._passed_count = 0
            return
        if armed != point.value:
            return
        self._passed_count += 1
        if self._passed_count < int(count):
            return
        if what == "die":
            self.kill(point.value)
        self._file.with_suffix(".held").touch()
        while self._file.exists():
            time.sleep(HOLD_POLL_S)

    def kill(self, reason: str) -> None:
        """Note that this process ends now, and end it."""
        self._notes.add(pid=self._pid, reason=reason)
        os.kill(self._pid, signal.SIGKILL)


class TrappedStore(SqliteStore):
    """A store with traps before and after its commits."""

    def __init__(self, file: Path, trap: Trap) -> None:
        super().__init__(file)
        self._trap = trap

    async def run(
        self, function: Callable[[StoreTransaction], T], *, locks: Iterable[str] = ()
    ) -> T:
        def run(transaction: StoreTransaction) -> T:
            result = function(transaction)
            self._trap(Point.TRANSACTION)
            return result

        found = await super().run(run, locks=locks)
        self._trap(Point.COMMITTED)
        return found


def trap_acknowledgements(trap: Trap) -> None:
    """Pass a trap before each acknowledgement."""
    acknowledge = Delivery.ack

    def ack(self: Delivery, *, multiple: bool = False) -> bool:
        trap(Point.ACK)
        if (point := ACK_POINTS.get(self.routing_key)) is not None:
            trap(point)
        return acknowledge(self, multiple=multiple)

    Delivery.ack = ack  # type: ignore[method-assign]


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────


class Task(msgspec.Struct):
    """What a handler does.

    `fine` ends, `flaky` raises at its first attempt, `bad` raises always, `stuck` exceeds the limit of time, and
    `poison` kills its worker.
    """

    number: int
    kind: str
    seconds: float


def add_tasks(app: Messaging, folder: Path, trap: Trap, control: Control) -> None:
    notes, pid = Notes(folder / TASKS_FILE), os.getpid()
    queue_type: Any = "classic" if control is Control.STORES else "quorum"

    @app.subscribe(
        PointToPoint("tasks", queue_type=queue_type),
        retry=Retry(ATTEMPTS_COUNT, backoff=0.05, factor=1),
        timeout=TASK_TIMEOUT_S,
        dead_letter="tasks.dead",
        invalid="tasks.invalid",
    )
    async def work(message: Message[Task]) -> None:
        task = message.body
        about: dict[str, Any] = {"n": task.number, "attempt": message.attempt, "pid": pid}
        notes.add(event="begin", **about)
        try:
            trap(Point.BEGUN)
            await asyncio.sleep(task.seconds if task.kind != "stuck" else 3600)
            if task.kind == POISON:
                trap.kill(POISON)
            if task.kind == "bad" or (task.kind == "flaky" and message.attempt == 1):
                trap(Point.FAILING)
                raise ValueError(task.kind)
            trap(Point.ENDED)
        except BaseException:
            notes.add(event="fail", **about)
            raise
        notes.add(event="end", **about)


async def lose_tasks(app: Messaging, folder: Path, trap: Trap) -> None:
    """The control: tasks are acknowledged when they are delivered, and not attempted again."""
    notes, pid = Notes(folder / TASKS_FILE), os.getpid()
    async with app, await app.open_channel() as channel:
        async for delivery in await channel.consume("tasks", no_ack=True):
            try:
                task = msgspec.json.decode(delivery.body, type=Task)
            except msgspec.DecodeError:
                continue
            about: dict[str, Any] = {"n": task.number, "attempt": 1, "pid": pid}
            notes.add(event="begin", **about)
            trap(Point.ACK)
            await asyncio.sleep(LOSING_S)
            notes.add(event="end", **about)


# ── flows ─────────────────────────────────────────────────────────────────────────────────────────────────


class Unsteady(FlowStep):
    """Fails at the first attempt of every third message."""

    def __init__(self, trap: Trap) -> None:
        self._trap = trap

    def process(self, message: Message[Any]) -> Sequence[Message[Any]]:
        self._trap(Point.STEP)
        if message.attempt == 1 and message.body["number"] % 3 == 0:
            raise ConnectionError("not now")
        return [message]


class Ledger(StatefulStep):
    """Numbers the messages of each account: an effect that must happen once."""

    def __init__(self, account: Callable[[Any], str], table: str) -> None:
        self.table = table
        self._account = account

    def process(self, message: Message[Any], state: StateTransaction) -> Sequence[Message[Any]]:
        account = self._account(message.body)
        booked = int(state.get(self.table, account) or b"0") + 1
        state.put(self.table, account, b"%d" % booked)
        return [message.replace(body={**message.body, "booked": booked}, message_id=None)]


class Payment(FlowStep):
    """Accepts the payments of some orders, declines others, and does not respond to the rest."""

    def process(self, message: Message[Any]) -> Sequence[Message[Any]]:
        answer = PAYMENTS[message.body["order"] % len(PAYMENTS)]
        return [] if answer is None else [message.replace(type=answer)]


class OrderState(msgspec.Struct):
    placed_at: float = 0.0


def order_process() -> ProcessManager[OrderState]:
    orders = ProcessManager(OrderState, by="json.order", sends_to=["payments", "outcomes"])

    @orders.on("placed", starts=True)
    def place(order: RunningProcess[OrderState], message: Message[Any]) -> list[Send]:
        order.state.placed_at = order.now
        order.compensate(
            Send("outcomes", Message(body={**message.body, "outcome": "refunded"}, key=order.key))
        )
        # An order that is answered in the end needs more time than the slowest recovery.
        is_answered = PAYMENTS[message.body["order"] % len(PAYMENTS)] is not None
        order.set_timeout("payment", 3600 if is_answered else PAYMENT_TIMEOUT_S)
        return [Send("payments", Message(body=message.body))]

    @orders.on("paid")
    def pay(order: RunningProcess[OrderState], message: Message[Any]) -> list[Send]:
        order.end()
        return [Send("outcomes", Message(body={**message.body, "outcome": "paid"}))]

    @orders.on("declined")
    def decline(order: RunningProcess[OrderState], _: Message[Any]) -> None:
        order.fail()

    @orders.on_timeout("payment")
    def give_up(order: RunningProcess[OrderState]) -> None:
        order.fail()

    return orders


def join(parts: Sequence[Message[Any]]) -> dict[str, Any]:
    first = parts[0].body
    return {"pair": first["pair"], "items": sorted(part.body["item"] for part in parts)}


def add_flows(app: Messaging, trap: Trap) -> None:
    app.flow(
        "lists",
        Unsteady(trap),
        Splitter(lambda body: [{"pair": body["pair"], "item": item} for item in body["items"]]),
        Aggregator(join, by="json.pair", count=LISTS_PER_PAIR_COUNT * ITEMS_PER_LIST_COUNT),
        to="sums",
        retry=FLOW_RETRY,
    )
    app.flow("sums", Ledger(lambda body: "all", "pairs"), to="booked")
    app.flow("orders", order_process(), retry=FLOW_RETRY)
    app.flow("payments", Payment(), to="orders", retry=FLOW_RETRY)
    app.flow(
        "shuffled",
        Resequencer(by="json.group", sequence="json.number", wait=3600.0),
        to="ordered",
    )
    app.flow("sales", Ledger(lambda body: str(body["account"]), "sales"), to="sold")


# ── sales ─────────────────────────────────────────────────────────────────────────────────────────────────


async def sell(app: Messaging, folder: Path, trap: Trap, control: Control) -> None:
    """Make sales until this process is killed; a sale is a row and a message."""
    outbox, made = app.outbox(), PublishSubscribe(SALES, "fanout")
    async with app:
        with sqlite3.connect(folder / SHOP_FILE, timeout=60, isolation_level=None) as shop:
            shop.execute("CREATE TABLE IF NOT EXISTS sales_made (account INT, number INT)")
            while True:
                await asyncio.sleep(SALE_INTERVAL_S)
                if (folder / HALT_FILE).exists():
                    continue
                shop.execute("BEGIN IMMEDIATE")
                (count,) = shop.execute("SELECT count(*) FROM sales_made").fetchone()
                number, account = divmod(count, ACCOUNTS_COUNT)
                sale = {"account": account, "number": number}
                shop.execute("INSERT INTO sales_made VALUES (?, ?)", (account, number))
                if control is not Control.STORES:
                    outbox.add(shop, made, sale, key=f"account {account}")
                trap(Point.SALE)
                shop.execute("COMMIT")
                trap(Point.SOLD)
                if control is Control.STORES:  # a program that publishes after its transaction
                    await app.publish(made, sale)


async def main(role: str, url: str, folder: Path, control: Control) -> None:
    trap = Trap(folder)
    trap_acknowledgements(trap)
    in_memory = control is Control.STORES and role != "outbox"
    file = folder / (SHOP_FILE if role == "outbox" else STATE_FILE)
    app = Messaging(
        url,
        name=role,
        store=MemoryStore() if in_memory else TrappedStore(file, trap),
        wait_for_broker=True,
    )
    match role:
        case "tasks" if control is Control.IDS:
            await lose_tasks(app, folder, trap)
        case "tasks":
            add_tasks(app, folder, trap, control)
            await app.run()
        case "flows":
            add_flows(app, trap)
            await app.run()
        case _:
            await sell(app, folder, trap, control)


if __name__ == "__main__":
    role, url, folder, control = sys.argv[1:]
    asyncio.run(main(role, url, Path(folder), Control(control)))
