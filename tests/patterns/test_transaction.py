"""Transactions of the broker, on recado and on RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recado.client import ConnectionClosedError
from recado.patterns import (
    BlockingMessaging,
    Message,
    Messaging,
    PointToPoint,
    PublishSubscribe,
    TranslationError,
    UnroutableMessageError,
)
from tests.client.running import in_a_loop
from workshop.peers import Server

Name = Callable[[str], str]
QUEUE_TYPES = pytest.mark.parametrize("queue_type", ["quorum", "classic"])


@pytest.fixture
def app(server: Server, name: Name) -> Messaging:
    return Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"))


async def take_all(app: Messaging, queue: str | PointToPoint) -> list[object]:
    found: list[object] = []
    while True:
        async with app.consume(queue) as message:
            if message is None:
                return found
            found.append(message.body)


class BreakdownError(Exception):
    """The block fails."""


@QUEUE_TYPES
@in_a_loop
async def test_a_block_that_raises_has_no_effect(
    app: Messaging, name: Name, queue_type: str
) -> None:
    """PTX1, PTX2"""
    orders, bills = (PointToPoint(name(each), queue_type) for each in ("orders", "bills"))  # type: ignore[arg-type]
    async with app:
        await app.publish_many(orders, [1, 2, 3])
        with pytest.raises(BreakdownError):  # noqa: PT012  the block is the transaction
            async with app.transaction() as transaction:
                for expected in (1, 2):
                    message = await transaction.take(orders, int)
                    assert message is not None
                    assert message.body == expected
                    await transaction.publish(bills, message.body * 10)
                raise BreakdownError
        assert await take_all(app, bills) == []
        async with app.transaction() as transaction:
            for _ in range(2):
                message = await transaction.take(orders)
                assert message is not None
                await transaction.publish(bills, message.body * 10)
            assert await take_all(app, bills) == []  # not before the commit
        assert await take_all(app, bills) == [10, 20]
        assert await take_all(app, orders) == [3]
        async with app.transaction() as transaction:
            assert await transaction.take(orders) is None


@in_a_loop
async def test_a_message_without_a_queue_is_an_error(app: Messaging, name: Name) -> None:
    events, bills = PublishSubscribe(name("events")), name("bills")
    async with app:
        await app.declare(bills)
        async with app.transaction() as transaction:
            await transaction.publish(events, "to nobody", key="k")  # an event needs no subscriber
        with pytest.raises(UnroutableMessageError, match=bills):  # noqa: PT012
            async with app.transaction() as transaction:
                await transaction.publish(bills, 1)
                await app.delete(bills)
        with pytest.raises(TranslationError):
            async with app.transaction() as transaction:
                await transaction.publish(bills, object())


@in_a_loop
async def test_a_lost_connection_rolls_back(app: Messaging, name: Name) -> None:
    """PTX3; the next transaction has another connection."""
    bills = name("bills")
    async with app:
        with pytest.raises(ConnectionClosedError):  # noqa: PT012
            async with app.transaction() as transaction:
                await transaction.publish(bills, 1)
                await transaction._channel.connection.close()
                await transaction.take(bills)
        assert await take_all(app, bills) == []
        async with app.transaction() as transaction:
            await transaction.publish(bills, Message(body=2, message_id="b"))
        assert await take_all(app, bills) == [2]


def test_blocking(server: Server, name: Name) -> None:
    orders, bills = name("orders"), name("bills")
    with BlockingMessaging(server.url) as app:
        app.publish(orders, 1)
        with pytest.raises(BreakdownError), app.transaction() as transaction:  # noqa: PT012
            transaction.take(orders)
            transaction.publish(bills, 0)
            raise BreakdownError
        with app.transaction() as transaction:
            message = transaction.take(orders)
            assert message is not None
            transaction.publish(bills, message.body)
        with app.consume(bills) as message:
            assert message is not None
            assert message.body == 1
        with app.consume(orders) as message:
            assert message is None
