"""The exchange as actors of one system: who there is, where an order goes, what clients are told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from recado.actors.ref import ActorRef
from recado.actors.system import ActorSystem
from recado.apps.trading.book import InvalidOrderError, OrderBook, OrderSide, Totals
from recado.apps.trading.clients import ORDERS, Client, ClientGroup, TotalsMismatchError
from recado.apps.trading.exchange import (
    NODE_NAME,
    RECEPTIONIST_NAME,
    Book,
    MatchingEngine,
    OrderReceiver,
    Receptionist,
)
from recado.apps.trading.messages import (
    BuyOrder,
    Confirmed,
    FindReceivers,
    GetTotals,
    Order,
    SellOrder,
)
from recado.apps.trading.shares import RECEIVERS_COUNT, SYMBOLS, group_of

SECONDS = 10.0
Reception = ActorRef[FindReceivers | GetTotals]


@asynccontextmanager
async def exchange() -> AsyncIterator[tuple[ActorSystem, Reception]]:
    async with ActorSystem(NODE_NAME) as system:
        yield system, await system.spawn(Receptionist, name=RECEPTIONIST_NAME)


async def receivers(receptionist: Reception) -> tuple[ActorRef[Order], ...]:
    return (await receptionist.ask(FindReceivers(), SECONDS)).receivers


def test_who_there_is() -> None:
    async def work() -> None:
        async with exchange() as (system, receptionist):
            assert len(system.registry.by_class(Book)) == 15
            assert len(system.registry.by_class(MatchingEngine)) == 3
            assert len(system.registry.by_class(OrderReceiver)) == 10
            for symbol in SYMBOLS:
                book = system.registry.by_name(f"book.{symbol}")
                assert book is not None
            found = await receivers(receptionist)
            names = [f"receiver.{number}" for number in range(1, RECEIVERS_COUNT + 1)]
            assert [ref.address.name for ref in found] == names

    asyncio.run(work())


def test_groups_are_letters() -> None:
    assert Counter(map(group_of, SYMBOLS)) == {"A": 5, "B": 5, "C": 5}
    assert (SYMBOLS[0], SYMBOLS[-1]) == ("A1", "C5")


def test_any_receiver_takes_orders_for_any_share() -> None:
    """A bid through one of them meets an ask through the next."""

    async def work() -> None:
        async with exchange() as (_, receptionist):
            found = await receivers(receptionist)
            for number, symbol in enumerate(SYMBOLS):
                one, other = found[number % RECEIVERS_COUNT], found[(number + 1) % RECEIVERS_COUNT]
                assert await one.ask(BuyOrder(symbol, 10, 5), SECONDS) == Confirmed(1, 0)
                assert await other.ask(SellOrder(symbol, 9, 3), SECONDS) == Confirmed(2, 3)
            told = await receptionist.ask(GetTotals(), SECONDS)
            assert told.totals == Totals(30, 75, 45, 45, 30, 0)

    asyncio.run(work())


@pytest.mark.parametrize(
    "order",
    [
        BuyOrder("Z9", 1, 1),
        SellOrder("A6", 1, 1),
        BuyOrder("", 1, 1),
        BuyOrder("A1", 0, 1),
        SellOrder("A1", 1, -1),
    ],
)
def test_an_order_that_nobody_takes_is_an_error_and_nothing_else(order: Order) -> None:
    async def work() -> None:
        async with exchange() as (system, receptionist):
            receiver = (await receivers(receptionist))[0]
            with pytest.raises(InvalidOrderError):
                await receiver.ask(order, SECONDS)
            assert (await receptionist.ask(GetTotals(), SECONDS)).totals == Totals()
            assert not any(cell.restarts for cell in system.registry.cells())

    asyncio.run(work())


@pytest.mark.parametrize(("clients", "asks"), [(1, 60), (4, 120), (80, 2960), (3, 15)])
def test_clients_send_their_lists_one_ask_at_a_time(clients: int, asks: int) -> None:
    async def work() -> None:
        async with exchange() as (system, _):
            trading = ClientGroup(system, "run-1", clients)
            await trading.prepare()
            assert len(system.registry.by_class(Client)) == clients
            outcome = await trading.run(asks)
            assert trading.completed_asks == len(outcome.asks) == asks
            each = asks // clients
            numbers = [(ask.run, ask.client, ask.number) for ask in outcome.asks]
            assert numbers == [
                ("run-1", c, number) for c in range(clients) for number in range(each)
            ]
            of_first = [ask for ask in outcome.asks if ask.client == 0]
            for before, after in pairwise(of_first):
                assert before.began + before.nanoseconds <= after.began
            assert outcome.totals == expected(clients, each)

    asyncio.run(work())


def expected(clients: int, each: int) -> Totals:
    """What the books have at last does not depend on whose order came first: all are at one price."""
    books = {symbol: OrderBook() for symbol in SYMBOLS}
    for _ in range(clients):
        for number in range(each):
            order = ORDERS[number % len(ORDERS)]
            side = OrderSide.BUY if isinstance(order, BuyOrder) else OrderSide.SELL
            books[order.symbol].place(side, order.price, order.volume)
    return sum((book.totals for book in books.values()), Totals())


def test_the_list_has_fifteen_of_each_and_they_meet() -> None:
    assert Counter(type(order) for order in ORDERS) == {BuyOrder: 15, SellOrder: 15}
    totals = expected(1, 30)
    assert (totals.traded, totals.resting_buy_volume, totals.resting_sell_volume) == (15_000, 0, 0)


def test_an_exchange_that_has_another_account_is_told() -> None:
    async def work() -> None:
        async with exchange() as (system, receptionist):
            await (await receivers(receptionist))[0].ask(BuyOrder("A1", 1, 1), SECONDS)
            trading = ClientGroup(system, "run-1", 1)
            await trading.prepare()
            await trading.run(30)

    with pytest.raises(
        TotalsMismatchError, match="30 orders were confirmed, but the totals of the exchange are"
    ):
        asyncio.run(work())
