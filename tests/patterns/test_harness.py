"""The harness: what it records, when an application is settled, and virtual time."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from recado.patterns import Messaging, PublishSubscribe, Retry
from recado.patterns.harness import Harness
from tests.client.running import in_a_loop


class Order(msgspec.Struct):
    id: int


class Shipment(msgspec.Struct):
    order_id: int


def shop() -> Messaging:
    """Orders become shipments; number 13 fails twice, and 99 always."""
    app = Messaging("amqp://a-broker-that-does-not-exist")
    attempts: dict[int, int] = {}

    @app.subscribe("orders", retry=Retry(5, backoff=60.0), concurrency=3)
    async def ship(order: Order) -> None:
        attempts[order.id] = attempts.get(order.id, 0) + 1
        if order.id == 99 or (order.id == 13 and attempts[13] < 3):
            raise ValueError("unlucky")
        await app.publish(PublishSubscribe("shipments"), Shipment(order.id))

    @app.subscribe(PublishSubscribe("shipments"))
    async def announce(shipment: Shipment) -> None:
        await asyncio.sleep(0)

    return app


@in_a_loop
async def test_settled_waits_for_all_that_follows() -> None:
    async with Harness(shop()) as harness:
        await harness.app.publish_many("orders", [Order(n) for n in range(10)])
        await harness.settled()
        assert sorted(each.order_id for each in harness.published(Shipment)) == list(range(10))
        assert len([each for each in harness.handled if each.tag == "announce"]) == 10
        assert harness.failures == []


@in_a_loop
async def test_retries_take_virtual_time() -> None:
    async with Harness(shop()) as harness:
        await harness.app.publish("orders", Order(13))
        await harness.settled(advance=False)
        assert len(harness.failures) == 1
        await harness.advance(59.9)
        assert len(harness.failures) == 1
        await harness.advance(0.1)
        assert len(harness.failures) == 2
        await harness.settled()
        assert harness.published(Shipment) == [Shipment(13)]


@in_a_loop
async def test_a_message_that_always_fails_is_settled_as_a_dead_letter() -> None:
    async with Harness(shop()) as harness:
        await harness.app.publish("orders", Order(99))
        await harness.settled()
        assert [type(each.error) for each in harness.failures] == [ValueError] * 5
        async with harness.app.consume("dead-letters", Order) as message:
            assert message is not None
            assert message.body == Order(99)


@in_a_loop
async def test_requests_and_replies_are_recorded() -> None:
    app = Messaging()

    @app.subscribe("orders")
    async def handle(order: Order) -> Shipment:
        return Shipment(order.id)

    async with Harness(app) as harness:
        assert await app.request("orders", Order(1), Shipment) == Shipment(1)
        await harness.settled()
        assert [(each.message.body, each.to is None) for each in harness.publishes] == [
            (Order(1), False),
            (Shipment(1), True),
        ]
        (handled,) = harness.handled
        assert (handled.tag, handled.result) == ("handle", Shipment(1))
        assert harness.published(Order, to="orders") == [Order(1)]
        assert harness.published(Order, to="others") == []


@in_a_loop
async def test_a_handler_that_does_not_end_is_named() -> None:
    app = Messaging(shutdown_timeout=0.01)

    @app.subscribe("orders")
    async def handle(order: Order) -> None:
        await asyncio.Event().wait()

    async with Harness(app) as harness:
        await app.publish("orders", Order(1))
        with pytest.raises(TimeoutError, match="endpoint 'handle' are running"):
            await harness.settled(timeout=0.1)


@in_a_loop
async def test_an_application_is_itself_again_after_a_test() -> None:
    app = shop()
    for _ in range(2):
        async with Harness(app) as harness:
            await app.publish("orders", Order(1))
            await harness.settled()
            assert harness.published(Shipment) == [Shipment(1)]
    assert app.url == "amqp://a-broker-that-does-not-exist"
