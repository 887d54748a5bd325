"""The programs under siege: `python -m bench.patterns_siege.worker ROLE URL FOLDER on|off`.

Each notes what it does in a file of the folder before it goes on; this is the outside truth. With `off`, the
mechanisms that the siege tests are replaced by what programs do without them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from recado.patterns import (
    Aggregator,
    FlowStep,
    MemoryStore,
    Message,
    Messaging,
    PointToPoint,
    ProcessManager,
    Resequencer,
    Retry,
    RunningProcess,
    Send,
    Splitter,
)

ATTEMPTS_COUNT = 4
ACCOUNTS_COUNT = 5
LISTS_PER_PAIR_COUNT = 2
ITEMS_PER_LIST_COUNT = 3
SALE_INTERVAL_S = 0.03

TASKS_FILE = "tasks.jsonl"
COLLECTED_FILE = "collected.jsonl"
SHOP_FILE = "shop.sqlite"
HALT_FILE = "halt"  # while it exists, no more sales are made
COLLECTED = ("sums", "outcomes", "ordered", "sales", "tasks.dead", "dead-letters")


class Task(msgspec.Struct):
    """What a handler does: `fine`, `flaky` (fails once), `bad` (always), or `poison` (kills its worker)."""

    number: int
    kind: str
    seconds: float


class OrderState(msgspec.Struct):
    placed_at: float = 0.0


class Notes:
    """A file of lines; what was noted is on disk."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, **entry: Any) -> None:
        os.write(self._file, json.dumps({**entry, "at": time.time()}).encode() + b"\n")
        os.fsync(self._file)


def add_tasks(app: Messaging, folder: Path, *, is_on: bool) -> None:
    notes, pid = Notes(folder / TASKS_FILE), os.getpid()
    # Classic queues do not count deliveries.
    tasks = PointToPoint("tasks", queue_type="quorum" if is_on else "classic")

    @app.subscribe(
        tasks, retry=Retry(ATTEMPTS_COUNT, backoff=0.05, factor=1), dead_letter="tasks.dead"
    )
    async def work(message: Message[Task]) -> None:
        task = message.body
        about: dict[str, Any] = {"n": task.number, "attempt": message.attempt, "pid": pid}
        notes.add(event="begin", **about)
        await asyncio.sleep(task.seconds)
        if task.kind == "poison":
            os.kill(pid, signal.SIGKILL)
        if task.kind == "bad" or (task.kind == "flaky" and message.attempt == 1):
            notes.add(event="fail", **about)
            raise ValueError(task.kind)
        notes.add(event="end", **about)


class Payment(FlowStep):
    """Accepts the payments of orders with even numbers."""

    def process(self, message: Message[Any]) -> Sequence[Message[Any]]:
        is_paid = message.body["order"] % 2 == 0
        return [message.replace(type="paid" if is_paid else "declined")]


def order_process() -> ProcessManager[OrderState]:
    orders = ProcessManager(OrderState, by="json.order", sends_to=["payments", "outcomes"])

    @orders.on("placed", starts=True)
    def place(order: RunningProcess[OrderState], message: Message[Any]) -> list[Send]:
        order.state.placed_at = order.now
        order.compensate(
            Send("outcomes", Message(body={**message.body, "outcome": "refunded"}, key=order.key))
        )
        return [Send("payments", Message(body=message.body))]

    @orders.on("paid")
    def pay(order: RunningProcess[OrderState], message: Message[Any]) -> list[Send]:
        order.end()
        return [Send("outcomes", Message(body={**message.body, "outcome": "paid"}))]

    @orders.on("declined")
    def decline(order: RunningProcess[OrderState], _: Message[Any]) -> None:
        order.fail()

    return orders


def join(parts: Sequence[Message[Any]]) -> dict[str, Any]:
    first = parts[0].body
    return {"pair": first["pair"], "items": sorted(part.body["item"] for part in parts)}


def add_flows(app: Messaging) -> None:
    app.flow(
        "lists",
        Splitter(lambda body: [{"pair": body["pair"], "item": item} for item in body["items"]]),
        Aggregator(join, by="json.pair", count=LISTS_PER_PAIR_COUNT * ITEMS_PER_LIST_COUNT),
        to="sums",
    )
    app.flow("orders", order_process())
    app.flow("payments", Payment(), to="orders")
    app.flow(
        "shuffled",
        Resequencer(by="json.group", sequence="json.number", wait=3600.0),
        to="ordered",
    )


def add_collector(app: Messaging, folder: Path) -> None:
    notes = Notes(folder / COLLECTED_FILE)

    def collect(queue: str) -> None:
        @app.subscribe(queue, tag=queue)
        async def note(message: Message[bytes]) -> None:
            assert message.delivery is not None
            notes.add(
                queue=queue,
                id=message.message_id,
                body=json.loads(message.body),
                attempt=message.headers.get("x-attempt"),
                reason=message.headers.get("x-failure-reason"),
            )

    for each in COLLECTED:
        collect(each)


async def sell(app: Messaging, folder: Path, *, is_on: bool) -> None:
    """Make sales until this process is killed; a sale is a row and a message."""
    outbox = app.outbox()
    async with app:
        with sqlite3.connect(folder / SHOP_FILE, timeout=30, isolation_level=None) as shop:
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
                if is_on:
                    outbox.add(shop, "sales", sale, key=f"account {account}")
                shop.execute("COMMIT")
                if not is_on:  # a program that publishes after its transaction
                    await asyncio.sleep(SALE_INTERVAL_S)
                    await app.publish("sales", sale)


async def main(role: str, url: str, folder: Path, *, is_on: bool) -> None:
    store = folder / (SHOP_FILE if role == "outbox" else "state.sqlite")
    app = Messaging(
        url,
        name=role,
        store=store if is_on or role == "outbox" else MemoryStore(),
        wait_for_broker=True,
    )
    match role:
        case "tasks":
            add_tasks(app, folder, is_on=is_on)
        case "flows":
            add_flows(app)
        case "collector":
            add_collector(app, folder)
        case _:
            await sell(app, folder, is_on=is_on)
            return
    await app.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), is_on=sys.argv[4] == "on"))
