"""Flows on recado and on RabbitMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from recado.patterns import (
    ContentRouter,
    Filter,
    FlowStep,
    Message,
    Messaging,
    Output,
    PointToPoint,
    PublishSubscribe,
    ReplyError,
    Send,
    Splitter,
    StatefulStep,
    StateTransaction,
)
from recado.patterns.errors import CompositionError
from recado.patterns.state import MemoryStore, OutputRow, StoreTransaction
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from workshop.peers import Server

Name = Callable[[str], str]


class Order(msgspec.Struct):
    id: int
    items: list[str]


class Sum(StatefulStep):
    """Yields the sum of all numbers so far."""

    table = "sum"

    def process(self, message: Message[Any], state: StateTransaction) -> Iterable[Output]:
        total = int(state.get(self.table, "") or b"0") + message.body
        state.put(self.table, "", str(total).encode())
        yield message.with_body(total)


class AnnounceLater(StatefulStep):
    """Holds each message until its deadline."""

    table = "later"

    def process(self, message: Message[Any], state: StateTransaction) -> Iterable[Output]:
        state.put(self.table, str(message.body), b"", deadline=state.now + 0.05)
        return ()

    def expire(self, state: StateTransaction) -> Iterable[Output]:
        for key, _ in state.due(self.table, 10):
            state.delete(self.table, key)
            yield Message(body=int(key))


class FailOnce(FlowStep):
    """Raises for the first attempt of each message."""

    def process(self, message: Message[Any]) -> Iterable[Output]:
        if message.attempt == 1:
            raise ValueError("the first attempt")
        yield message


def make_app(server: Server, name: Name) -> Messaging:
    return Messaging(
        server.url, dead_letter=name("dead"), invalid=name("invalid"), store=MemoryStore()
    )


def collect(app: Messaging, queue: str, seen: Collected) -> None:
    @app.subscribe(queue, tag=f"collect {queue}")
    async def add(message: Message[Any]) -> None:
        seen.add(message.body)


@in_a_loop
async def test_a_flow_splits_filters_and_routes(server: Server, name: Name) -> None:
    app = make_app(server, name)
    orders, small, large = name("orders"), name("small"), name("large")
    smalls, larges = Collected(), Collected()
    app.flow(
        orders,
        Filter("json.id > 1"),
        Splitter(lambda order: order.items),
        ContentRouter({"body LIKE '%lamp%'": large}, otherwise=small),
        body_type=Order,
    )
    collect(app, small, smalls)
    collect(app, large, larges)
    async with app:
        await app.publish_many(
            orders, [Order(1, ["lorry"]), Order(2, ["lamp", "pen"]), Order(3, ["ring"])]
        )
        assert await smalls.wait(2) == ["pen", "ring"]
        assert await larges.wait(1) == ["lamp"]


@in_a_loop
async def test_a_flow_with_state_changes_it_once(server: Server, name: Name) -> None:
    app = make_app(server, name)
    numbers, sums, seen = name("numbers"), name("sums"), Collected()
    app.flow(numbers, Sum(), to=sums)
    collect(app, sums, seen)
    async with app:
        for number in (1, 2, 3):
            await app.publish(numbers, Message(body=number, message_id=f"id {number}"))
        await app.publish(numbers, Message(body=2, message_id="id 2"))  # a duplicate
        await app.publish(numbers, 4)
        assert await seen.wait(4) == [1, 3, 6, 10]


@in_a_loop
async def test_deadlines_of_a_flow_are_met(server: Server, name: Name) -> None:
    app = make_app(server, name)
    numbers, later, seen = name("numbers"), name("later"), Collected()
    app.flow(numbers, AnnounceLater(), to=later)
    collect(app, later, seen)
    async with app:
        await app.publish_many(numbers, [1, 2])
        assert await seen.wait(2) == [1, 2]


@in_a_loop
async def test_a_request_to_a_flow_that_fails_gets_an_error(server: Server, name: Name) -> None:
    app = make_app(server, name)
    orders = name("orders")
    app.flow(orders, Splitter(lambda order: order.items), body_type=Order)
    async with app:
        with pytest.raises(ReplyError, match="id"):
            await app.request(orders, {"id": "seven", "items": []}, timeout=60)
        with pytest.raises(ReplyError, match="no parts"):
            await app.request(orders, Order(7, []), timeout=60)


@in_a_loop
async def test_a_failing_step_is_attempted_again(server: Server, name: Name) -> None:
    app = make_app(server, name)
    numbers, done, seen = name("numbers"), name("done"), Collected()
    app.flow(numbers, FailOnce(), to=done, retry=3)
    collect(app, done, seen)
    async with app:
        await app.publish_many(numbers, [1, 2])
        assert sorted(await seen.wait(2)) == [1, 2]  # type: ignore[type-var]


@in_a_loop
async def test_deadlines_are_met_while_messages_arrive(server: Server, name: Name) -> None:
    app = make_app(server, name)
    numbers, later, seen = name("numbers"), name("later"), Collected()
    app.flow(numbers, AnnounceLater(), to=later)
    collect(app, later, seen)
    async with app:
        number = 0
        async with asyncio.timeout(60):
            while not seen.items:
                await app.publish(numbers, number)
                number += 1


@in_a_loop
async def test_one_process_runs_a_flow_and_another_takes_over(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """The process on standby consumes nothing: it would keep messages from the other."""
    numbers, sums, dead, seen = name("numbers"), name("sums"), name("dead"), Collected()
    apps = []
    for _ in range(2):
        app = Messaging(server.url, dead_letter=dead, store=tmp_path / "shared.sqlite")
        app.flow(numbers, Sum(), to=sums, tag="sums")
        apps.append(app)
    first, second = apps
    collect(second, sums, seen)
    async with second:
        async with first:
            for number in range(1, 21):
                await first.publish(numbers, number)
            await seen.wait(20)
            states = {app.endpoints["sums"].state.value for app in apps}
            assert states == {"consuming", "standby"}
            assert first.health().is_healthy
            assert second.health().is_healthy
            await second.endpoints["sums"].pause()
            await first.publish(numbers, 21)
            await seen.wait(21)
            second.endpoints["sums"].resume()
        await second.publish(numbers, 22)
        assert await seen.wait(22) == [n * (n + 1) // 2 for n in range(1, 23)]


@in_a_loop
async def test_a_flow_that_was_taken_over_waits_for_its_lease(
    recado_server: Server, name: Name, caplog: pytest.LogCaptureFixture
) -> None:
    """PFL4: losing the lease, as by a frozen process, is no internal error of the endpoint."""
    store = MemoryStore()
    app = Messaging(recado_server.url, store=store)
    numbers, sums, seen = name("numbers"), name("sums"), Collected()
    app.flow(numbers, Sum(), to=sums, tag="sums")
    collect(app, sums, seen)

    def take_over(transaction: StoreTransaction) -> None:
        ((lease, owner),) = transaction.leases("flow sums").items()
        transaction.release_lease(lease, owner)
        transaction.acquire_lease(lease, "another process", 0.2)

    async with app:
        await app.publish(numbers, 1)
        await seen.wait(1)
        await store.run(take_over)
        await app.publish(numbers, 2)
        assert await seen.wait(2) == [1, 3]
    assert "flow sums was taken over" in caplog.text
    assert "internal error" not in caplog.text


@in_a_loop
async def test_an_outbox_is_dispatched(server: Server, name: Name, tmp_path: Path) -> None:
    import sqlite3

    orders, seen = name("orders"), Collected()
    app = Messaging(server.url, store=tmp_path / "shop.sqlite")
    outbox = app.outbox()
    collect(app, orders, seen)
    async with app:
        with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
            connection.execute("CREATE TABLE orders (id INTEGER)")
        with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
            connection.execute("INSERT INTO orders VALUES (7)")
            outbox.add(connection, orders, {"id": 7})
        connection.close()
        outbox.wake()
        assert await seen.wait(1) == [{"id": 7}]
        async with asyncio.timeout(30):
            while await outbox.oldest_age():  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.01)


def test_an_asynchronous_step_cannot_follow_one_with_state() -> None:
    class Slow(FlowStep):
        async def process(self, message: Message[Any]) -> list[Output]:
            return [message]

    with pytest.raises(CompositionError, match="Slow is asynchronous, but it is behind Sum"):
        Messaging().flow("numbers", Sum(), Slow())


class SumAndReport(Sum):
    """Also sends each sum to places that take none."""

    def process(self, message: Message[Any], state: StateTransaction) -> Iterable[Output]:
        for output in super().process(message, state):
            yield Send(PointToPoint("amq.reserved"), message)
            yield Send(PublishSubscribe("amq.topic"), message.replace(key="k" * 300))
            yield output


@in_a_loop
async def test_an_output_that_is_refused_for_good_does_not_hold_up_the_flow(
    server: Server, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PFP3"""
    monkeypatch.setattr("recado.patterns.flow_processor.REFUSED_DELAY_S", 0.01)
    app = make_app(server, name)
    numbers, sums, seen, dead = name("numbers"), name("sums"), Collected(), Collected()
    app.flow(numbers, SumAndReport(), to=sums)
    collect(app, sums, seen)

    @app.subscribe(app.dead_letter)
    async def bury(message: Message[int]) -> None:
        headers = message.headers
        target = headers["x-failure-queue"] or headers["x-failure-exchange"]
        dead.add((message.body, target, headers["x-failure-reason"].partition(":")[0]))

    async with app:
        await app.publish(numbers, 1)
        await app.publish(numbers, 2)
        assert await seen.wait(2) == [1, 3]
        assert sorted(await dead.wait(4)) == [  # type: ignore[type-var]
            (1, "amq.reserved", "UnroutableMessageError"),
            (1, "amq.topic", "ValueError"),
            (2, "amq.reserved", "UnroutableMessageError"),
            (2, "amq.topic", "ValueError"),
        ]
        health = app.health()
        assert not health.is_healthy
        assert (
            f"the broker refuses messages of flow '{numbers}.flow' to queue 'amq.reserved'"
            in str(health.problems)
        )


@in_a_loop
async def test_an_output_that_cannot_be_parked_is_set_aside_in_the_store(
    server: Server, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PFP3: its dead letter is refused as well."""

    async def refuse(*_: object) -> None:
        raise ValueError("too large")

    monkeypatch.setattr("recado.patterns.settlement.DeliverySettlement.park_output", refuse)
    monkeypatch.setattr("recado.patterns.flow_processor.REFUSED_DELAY_S", 0.01)
    store = MemoryStore()
    app = Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"), store=store)
    numbers, sums, seen = name("numbers"), name("sums"), Collected()
    app.flow(numbers, SumAndReport(), to=sums, tag="sums")
    collect(app, sums, seen)
    async with app:
        await app.publish(numbers, 1)
        assert await seen.wait(1) == [1]
        rows: list[OutputRow] = []
        async with asyncio.timeout(60):
            while len(rows) < 2:
                rows = await store.run(lambda transaction: transaction.outputs("flow sums refused"))
                await asyncio.sleep(0.01)
        assert len(rows) == 2
