"""Idempotent handlers on recado and on RabbitMQ, and their inbox in all stores."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recado.patterns import (
    CompositionError,
    MemoryStore,
    Message,
    Messaging,
    Retry,
    StateError,
    StoreTransaction,
)
from recado.patterns.inbox import HandlerInbox
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from tests.patterns.conftest import NewStore, opened
from workshop.peers import Server

Name = Callable[[str], str]


def make_app(server: Server, name: Name, store: Any) -> Messaging:
    return Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"), store=store)


@in_a_loop
async def test_a_message_that_was_handled_is_not_handled_again(server: Server, name: Name) -> None:
    """PIN2: by message id, and by a field for producers that send it twice under two ids."""
    app, by_id, by_field = make_app(server, name, MemoryStore()), name("ids"), name("fields")
    seen = Collected()

    @app.subscribe(by_id, deduplicate=True, retry=Retry(2, backoff=0.01), concurrency=4)
    async def handle(message: Message[int]) -> None:
        if message.body == 2 and message.attempt == 1:
            raise ValueError("a failed attempt is no effect")
        seen.add(("id", message.body))

    @app.subscribe(by_field, deduplicate="json.payment")
    async def book(payment: dict[str, Any]) -> str:
        seen.add(("field", payment["payment"]))
        return "booked"

    async with app:
        for number in (1, 1, 2, 2, 3):
            await app.publish(by_id, Message(body=number, message_id=f"id {number}"))
        assert await app.request(by_field, {"payment": 7}, timeout=60) == "booked"
        await app.publish(by_field, {"payment": 7})
        await app.publish(by_field, {"payment": 8})
        await app.publish(by_field, {"other": 9})
        found = sorted(await seen.wait(5))  # type: ignore[type-var]
        assert found == [("field", 7), ("field", 8), ("id", 1), ("id", 2), ("id", 3)]
        async with asyncio.timeout(60):
            dead = None
            while dead is None:
                async with app.consume(app.dead_letter) as dead:
                    await asyncio.sleep(0.01)
        assert "cannot be correlated: json.payment" in dead.headers["x-failure-reason"]
    assert len(seen.items) == 5


@in_a_loop
async def test_the_changes_of_a_handler_are_committed_with_the_key(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """PIN1: SQL, state and messages of an outbox."""
    database = tmp_path / "shop.sqlite"
    app, payments, booked = make_app(server, name, database), name("payments"), name("booked")
    outbox, seen = app.outbox(), Collected()
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE account (balance INTEGER)")
    connection.execute("INSERT INTO account VALUES (0)")
    connection.commit()
    attempts: list[int] = []

    @app.subscribe(payments, deduplicate=True, retry=Retry(3, backoff=0.01))
    def book(payment: Message[int], transaction: StoreTransaction) -> str:
        transaction.execute("UPDATE account SET balance = balance + ?", (payment.body,))
        outbox.add(transaction, booked, payment.body)
        attempts.append(payment.body)
        if payment.body == 5 and payment.attempt == 1:
            raise ValueError("after the changes")
        return "booked"

    @app.subscribe(booked)
    async def collect(amount: int) -> None:
        seen.add(amount)

    async with app:
        for amount in (3, 3, 5, 5):
            await app.publish(payments, Message(body=amount, message_id=f"id {amount}"))
        assert await app.request(payments, 100, str, timeout=60) == "booked"
        assert sorted(await seen.wait(3)) == [3, 5, 100]  # type: ignore[type-var]
    assert connection.execute("SELECT balance FROM account").fetchone() == (108,)
    connection.close()
    assert sorted(attempts) == [3, 5, 5, 5, 100]  # both deliveries of 5 fail at first


@in_a_loop
async def test_another_process_knows_the_key(new_store: NewStore) -> None:
    """PIN1 in each store."""

    def count(argument: str, transaction: StoreTransaction) -> str:
        number = int(transaction.get("effects", argument) or b"0") + 1
        transaction.put("effects", argument, b"%d" % number)
        if argument == "fails":
            raise ValueError("rolled back")
        return argument

    message = Message(body="x", message_id="id x")
    async with opened(new_store()) as store:
        inbox = HandlerInbox("tag", "message_id", store)
        assert await inbox.call_in_transaction(message, count, "x") == "x"
    async with opened(new_store()) as store:
        inbox = HandlerInbox("tag", "message_id", store)
        assert await inbox.call_in_transaction(message, count, "x") is None
        assert inbox.duplicate_count == 1
        failing = message.replace(message_id="id fails")
        for _ in range(2):
            with pytest.raises(ValueError, match="rolled back"):
                await inbox.call_in_transaction(failing, count, "fails")
        assert await store.run(lambda transaction: transaction.get("effects", "x")) == b"1"
        assert await store.run(lambda transaction: transaction.get("effects", "fails")) is None
        without_id = message.replace(message_id=None)
        assert await inbox.call_in_transaction(without_id, count, "y") == "y"
        assert await inbox.call_in_transaction(without_id, count, "y") == "y"


@in_a_loop
async def test_two_deliveries_of_a_message_at_the_same_time() -> None:
    async with opened(MemoryStore()) as store:
        inbox, calls = HandlerInbox("tag", "message_id", store), []

        async def handle() -> int:
            calls.append(1)
            await asyncio.sleep(0)
            return len(calls)

        message = Message(body="x", message_id="id x")
        results = await asyncio.gather(*(inbox.call(message, handle) for _ in range(3)))
        assert results == [1, None, None]
        with pytest.raises(StateError, match="has no SQL"):
            await store.run(lambda transaction: transaction.execute("SELECT 1"))


def test_compositions_that_cannot_work() -> None:
    app = Messaging("amqp://localhost")

    async def asynchronous(order: str, transaction: StoreTransaction) -> None: ...

    def plain(order: str, transaction: StoreTransaction) -> None: ...

    with pytest.raises(CompositionError, match="cannot be asynchronous"):
        app.subscribe("orders", deduplicate=True)(asynchronous)
    with pytest.raises(CompositionError, match="needs deduplicate"):
        app.subscribe("orders")(plain)
    with pytest.raises(CompositionError, match="no timeout can end"):
        app.subscribe("orders", deduplicate=True, timeout=3.0)(plain)
    with pytest.raises(CompositionError, match="unknown field"):
        app.subscribe("orders", deduplicate="payment")(print)
