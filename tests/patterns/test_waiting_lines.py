"""Ordered retries on recado and on RabbitMQ, and their lines in all stores."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recado.amqp.properties import encode_properties
from recado.client import Delivery
from recado.client.messages import DeliverySource
from recado.patterns import (
    CompositionError,
    Filter,
    Harness,
    MemoryStore,
    Message,
    Messaging,
    RejectMessageError,
    Retry,
    SqliteStore,
)
from recado.patterns.reception import Received
from recado.patterns.waiting_lines import WaitingLines
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from tests.patterns.conftest import Clock, NewStore, opened
from workshop.peers import Server
from workshop.time_limit import scale

Name = Callable[[str], str]

BY_CUSTOMER = Retry(100, backoff=0.02, factor=1, ordered_by="headers.customer")
LONG_S = 3600.0


def make_app(server: Server, name: Name, store: Any = None) -> Messaging:
    return Messaging(
        server.url, dead_letter=name("dead"), invalid=name("invalid"), store=store or MemoryStore()
    )


def message(text: str) -> Message[str]:
    """Return a message whose customer is its first letter."""
    return Message(body=text, headers={"customer": text[0]})


def of_customer(customer: str, seen: list[Any]) -> list[Any]:
    return [each for each in seen if each[0][0] == customer]


async def is_empty(app: Messaging, queue: str) -> bool:
    async with app.consume(queue) as found:
        return found is None


@in_a_loop
async def test_later_messages_of_the_key_wait_and_others_go_on(server: Server, name: Name) -> None:
    """PWL1"""
    app, orders, seen = make_app(server, name), name("orders"), Collected()

    @app.subscribe(orders, retry=BY_CUSTOMER)
    async def handle(order: Message[str]) -> None:
        if order.body == "a1" and ("b2", 1) not in seen.items:
            raise ValueError("not before b2")
        seen.add((order.body, order.attempt if order.body != "a1" else min(order.attempt, 2)))

    async with app:
        await app.publish_many(orders, [message(each) for each in ("a1", "a2", "b1", "a3", "b2")])
        await seen.wait(5)
        assert of_customer("a", seen.items) == [("a1", 2), ("a2", 1), ("a3", 1)]
        assert of_customer("b", seen.items) == [("b1", 1), ("b2", 1)]
        await app.publish(orders, message("a4"))
        assert (await seen.wait(6))[-1] == ("a4", 1)  # the line is gone


@in_a_loop
async def test_they_wait_in_the_store_across_programs(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """PWL2: nothing is left in the queue, and another program goes on."""
    orders, seen = name("orders"), Collected()
    is_mended = False

    def make_worker() -> Messaging:
        app = make_app(server, name, SqliteStore(tmp_path / "state.db"))

        @app.subscribe(orders, retry=BY_CUSTOMER, tag="worker")
        async def handle(order: Message[str]) -> None:
            if order.body == "a1" and not is_mended:
                failed.set()
                raise ValueError("not yet")
            seen.add((order.body, order.message_id))

        return app

    failed = asyncio.Event()
    async with make_worker() as first:
        await first.publish(orders, message("a1"))
        await failed.wait()
        async with make_worker():  # both compete
            await first.publish_many(
                orders, [message(each) for each in ("a2", "a3", "a4", "b1", "b2", "b3")]
            )
            await seen.wait(3)
    assert sorted(text for text, _ in of_customer("b", seen.items)) == ["b1", "b2", "b3"]
    assert len(seen.items) == 3
    async with Messaging(server.url) as observer:
        assert await is_empty(observer, orders)
    is_mended = True
    async with make_worker() as third:
        await third.publish(orders, message("a5"))
        await seen.wait(8)
    waited = [text for text, _ in of_customer("a", seen.items)]
    assert waited[0] == "a1"
    assert waited[-1] == "a5"
    assert sorted(waited) == ["a1", "a2", "a3", "a4", "a5"]


@in_a_loop
async def test_after_the_last_attempt_the_next_message_has_its_turn(
    server: Server, name: Name
) -> None:
    app, orders, seen = make_app(server, name), name("orders"), Collected()
    retry = Retry(3, backoff=0.02, factor=1, ordered_by=lambda message: message.headers["customer"])

    @app.subscribe(orders, retry=retry)
    async def handle(order: Message[str]) -> str:
        seen.add((order.body, order.attempt))
        if order.body in ("a1", "a2") and order.attempt < (9 if order.body == "a1" else 2):
            raise ValueError("unlucky")
        return order.body.upper()

    async with app:
        replies = [
            asyncio.create_task(app.request(orders, message(each), timeout=60))
            for each in ("a1", "a2", "a3")
        ]
        results = await asyncio.gather(*replies, return_exceptions=True)
        assert [str(each) for each in results] == ["ValueError: unlucky", "A2", "A3"]
        assert [each for each in seen.items if each[0] == "a1"] == [("a1", 1), ("a1", 2), ("a1", 3)]  # type: ignore[index]
        rest = [each for each in seen.items if each[0] != "a1"]  # type: ignore[index]
        assert rest == [("a2", 1), ("a2", 2), ("a3", 1)]
        async with app.consume(app.dead_letter) as dead:
            assert dead is not None
            assert dead.body == "a1"
            assert dead.headers["x-attempt"] == 3
            assert len(dead.headers["x-failure-history"]) == 3


@in_a_loop
async def test_messages_of_a_key_are_not_handled_beside_each_other(
    server: Server, name: Name
) -> None:
    """PWL5: in order at any concurrency."""
    app, orders, seen = make_app(server, name), name("orders"), Collected()
    running: set[str] = set()

    @app.subscribe(orders, retry=BY_CUSTOMER, concurrency=8)
    async def handle(order: Message[str]) -> None:
        customer = order.body[0]
        assert customer not in running
        running.add(customer)
        for _ in range(len(order.body)):
            await asyncio.sleep(0)
        running.discard(customer)
        seen.add((order.body, order.attempt))

    texts = [f"{customer}{number}" for number in range(8) for customer in "abc"]
    async with app:
        await app.publish_many(orders, [message(each) for each in texts])
        await seen.wait(len(texts))
    for customer in "abc":
        assert of_customer(customer, seen.items) == [(f"{customer}{n}", 1) for n in range(8)]


@in_a_loop
async def test_a_message_without_a_key_has_no_order_and_a_wrong_key_fails(
    server: Server, name: Name
) -> None:
    app, orders, seen = make_app(server, name), name("orders"), Collected()

    @app.subscribe(orders, retry=Retry(3, backoff=0.01, ordered_by="headers.customer"))
    async def handle(order: Message[str]) -> None:
        if order.attempt == 1:
            raise ValueError("once")
        seen.add(order.body)

    async with app:
        await app.publish(orders, Message(body="wrong", headers={"customer": ["a"]}))
        await app.publish(orders, Message(body="no key"))
        assert await seen.wait(1) == ["no key"]
        async with app.consume(app.dead_letter) as dead:
            assert dead is not None
            assert "cannot be correlated" in dead.headers["x-failure-reason"]


KILLED_WORKER = """
import asyncio, os, signal, sys
from recado.patterns import Message, Messaging, Retry

url, store, queue, dead, seen = sys.argv[1:]
app = Messaging(url, store=store, dead_letter=dead, invalid=dead)

@app.subscribe(queue, retry=Retry(5, backoff=0.01, ordered_by="headers.customer"), tag="worker")
async def handle(order: Message[str]) -> None:
    with open(seen, "a") as file:
        file.write(f"{order.body} {order.attempt}\\n")
    if order.body == "a1" and order.attempt == 1:
        raise ValueError("the first attempt")
    if order.body == "a1" and order.attempt == 2:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(app.run())
"""


@in_a_loop
async def test_a_worker_that_is_killed_in_a_turn_costs_one_attempt(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """PWL3, PWL4"""
    orders, seen = name("orders"), tmp_path / "seen"
    arguments = [server.url, str(tmp_path / "state.db"), orders, name("dead"), str(seen)]

    @contextmanager
    def start() -> Iterator[subprocess.Popen[bytes]]:
        with subprocess.Popen([sys.executable, "-c", KILLED_WORKER, *arguments]) as process:
            try:
                yield process
            finally:
                process.kill()

    def lines() -> list[str]:
        return seen.read_text().splitlines() if seen.exists() else []

    async with Messaging(server.url) as app:
        with start() as first:
            await app.publish(orders, message("a1"))
            assert await asyncio.to_thread(first.wait, scale(60)) == -signal.SIGKILL
        await app.publish_many(orders, [message("a2"), message("a3")])
        with start() as second:
            async with asyncio.timeout(scale(60)):
                while "a3 1" not in lines():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            second.terminate()
            assert await asyncio.to_thread(second.wait, scale(60)) == 0
    assert lines() == ["a1 1", "a1 2", "a1 3", "a2 1", "a3 1"]


@in_a_loop
async def test_the_harness_lets_ordered_retries_happen_at_once() -> None:
    app = Messaging(store=MemoryStore())
    retry = Retry(3, backoff=LONG_S, max_delay=LONG_S, ordered_by="headers.customer")

    @app.subscribe("orders", retry=retry)
    async def handle(order: Message[str]) -> None:
        if order.body == "a1" and order.attempt < 3:
            raise ValueError("unlucky")

    async with Harness(app) as harness:
        for text in ("a1", "a2", "b1"):
            await app.publish("orders", message(text))
        await harness.settled(advance=False)
        assert [each.message.body for each in harness.handled] == ["a1", "b1"]
        await harness.advance(1.5 * LONG_S)
        assert [each.message.body for each in harness.handled] == ["a1", "b1", "a1"]
        await harness.settled()
        assert [each.message.body for each in harness.handled][3:] == ["a1", "a2"]
        assert len(harness.failures) == 2


def test_compositions_that_cannot_work() -> None:
    app = Messaging("amqp://localhost")
    with pytest.raises(CompositionError, match="cannot be ordered"):
        app.flow("orders", Filter("priority > 3"), retry=BY_CUSTOMER)
    with pytest.raises(CompositionError, match="unknown field 'customer'"):

        @app.subscribe("orders", retry=Retry(3, ordered_by="customer"))
        async def handle(order: str) -> None: ...

    with pytest.raises(CompositionError, match="ordered_by needs attempts"):
        Retry(1, ordered_by="headers.customer")


# ── the lines, without a broker ───────────────────────────────────────────────────────────────────────────────


class Deliveries:
    """A channel that notes what is acknowledged."""

    is_open = True

    def __init__(self) -> None:
        self.acked: list[bytes] = []

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        self.acked.append(delivery.body)
        return True

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        return True

    def receive(self, text: str) -> tuple[Received, Message[str]]:
        sent = message(text).replace(message_id=f"id {text}")
        properties = sent.to_properties()
        source = DeliverySource(self, "", False, "", "q", False)
        delivery = Delivery(source, 1, encode_properties(properties), text.encode())
        return Received(delivery, properties, "q"), sent


class Attempts:
    """Processes turns: `hang` does not return, `succeed` acknowledges."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, int]] = []
        self.hangs = False
        self.changed = asyncio.Event()

    async def process(self, received: Received) -> None:
        self.seen.append((received.delivery.body, received.attempt))
        self.changed.set()
        if self.hangs:
            await asyncio.Event().wait()
        received.delivery.ack()

    async def wait(self, count: int) -> list[tuple[bytes, int]]:
        async with asyncio.timeout(scale(60)):
            while len(self.seen) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.seen


async def begin_line(lines: WaitingLines, deliveries: Deliveries, text: str) -> None:
    received = await lines.enter(*deliveries.receive(text))
    assert received is not None
    headers = {**(received.properties.headers or {}), "x-attempt": 1}
    again = msgspec.structs.replace(received.properties, headers=headers)
    await lines.wait_for_retry(received, again, 10)
    lines.leave(received)


@in_a_loop
async def test_a_turn_is_continued_by_another_process(
    new_store: NewStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PWL3, PWL4"""
    monkeypatch.setattr("recado.patterns.waiting_lines.POLL_S", 0.01)
    monkeypatch.setattr("recado.patterns.waiting_lines.is_dead", lambda owner: True)
    deliveries = Deliveries()
    async with opened(new_store()) as first_store, opened(new_store()) as second_store:
        first = WaitingLines("tag", "headers.customer", first_store)
        second = WaitingLines("tag", "headers.customer", second_store)
        await begin_line(first, deliveries, "a1")
        assert await second.enter(*deliveries.receive("a2")) is None
        assert await second.enter(*deliveries.receive("a2")) is None  # delivered again
        other = await second.enter(*deliveries.receive("b1"))
        assert other is not None
        second.leave(other)
        assert deliveries.acked == [b"a2", b"a2"]
        clock.now += 11
        attempts = Attempts()
        attempts.hangs = True
        hanging = first.serve(attempts.process, 1, "q")
        await hanging.__aenter__()
        assert await attempts.wait(1) == [(b"a1", 2)]
        survivor = Attempts()
        async with second.serve(survivor.process, 1, "q"):
            assert await survivor.wait(2) == [(b"a1", 3), (b"a2", 1)]
        await hanging.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        received = await second.enter(*deliveries.receive("a3"))
        assert received is not None  # the line is gone
        assert await second.seconds_to_turn() == 0  # a3 is being handled
        second.leave(received)


@in_a_loop
async def test_a_key_that_is_no_text_is_rejected() -> None:
    async with opened(MemoryStore()) as store:
        lines = WaitingLines("tag", lambda message: [message.body], store)
        with pytest.raises(RejectMessageError, match="cannot be correlated"):
            await lines.enter(*Deliveries().receive("a1"))
