"""The exchange: actors for books, matching engines and receivers, and the receptionist that starts them all.

    receptionist ─┬─ engine.A ── book.A1 … book.A5           each supervises those to its right
                  ├─ engine.B ── book.B1 … book.B5
                  ├─ engine.C ── book.C1 … book.C5
                  └─ receiver.1 … receiver.10

An order is forwarded receiver → engine → book, and the reply of the book goes directly to the client.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any, Final

from recado.actors import Actor, ActorRef, join

from .book import InvalidOrderError, OrderBook, OrderSide, Totals
from .messages import (
    BuyOrder,
    Confirmed,
    FindReceivers,
    GetTotals,
    Order,
    Receivers,
    SellOrder,
    TotalsReply,
)
from .shares import GROUPS, RECEIVERS_COUNT, SYMBOLS, group_of

NODE_NAME: Final = "exchange"
RECEPTIONIST_NAME: Final = "receptionist"
TOTALS_TIMEOUT_S: Final = 10.0

# The actors that accept orders, by share or by group of shares.
OrderTargets = dict[str, ActorRef[Order | GetTotals]]


class Book(Actor[Order | GetTotals]):
    """The orders for one share."""

    def __init__(self) -> None:
        self._book = OrderBook()

    def receive(self, message: Order | GetTotals) -> None:
        match message:
            case BuyOrder(_, price, volume):
                self._place(OrderSide.BUY, price, volume)
            case SellOrder(_, price, volume):
                self._place(OrderSide.SELL, price, volume)
            case GetTotals():
                self.reply(TotalsReply(self._book.totals))

    def _place(self, side: OrderSide, price: int, volume: int) -> None:
        try:
            number, fills = self._book.place(side, price, volume)
        except InvalidOrderError as error:  # an error of the client; the book is unchanged
            self.reply_error(error)
        else:
            self.reply(Confirmed(number, sum(fill.volume for fill in fills)))


class MatchingEngine(Actor[Order | GetTotals]):
    """Forwards orders to the books of a group of shares."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._books: OrderTargets = {}

    async def pre_start(self) -> None:
        for symbol in SYMBOLS:
            if group_of(symbol) == self._group:
                self._books[symbol] = await self.start_link(Book, name=f"book.{symbol}")

    def receive(self, message: Order | GetTotals) -> Awaitable[None] | None:
        match message:
            case GetTotals():
                return self._reply_totals()
            case order:  # no coroutine, which would cost a task per order in the measured path
                forward_order(self, order, self._books, order.symbol)
                return None

    async def _reply_totals(self) -> None:
        self.reply(TotalsReply(await collect_totals(self._books)))


class OrderReceiver(Actor[Order]):
    """Forwards orders for any share to the engine of its group."""

    def __init__(self, engines: OrderTargets) -> None:
        self._engines = engines

    def receive(self, message: Order) -> None:
        forward_order(self, message, self._engines, group_of(message.symbol))


class Receptionist(Actor[FindReceivers | GetTotals]):
    """Starts the other actors. It is the only one that clients find by name."""

    def __init__(self) -> None:
        self._engines: OrderTargets = {}
        self._receivers: list[ActorRef[Order]] = []

    async def pre_start(self) -> None:
        for group in GROUPS:
            engine = await self.start_link(partial(MatchingEngine, group), name=f"engine.{group}")
            self._engines[group] = engine
        for number in range(1, RECEIVERS_COUNT + 1):
            factory = partial(OrderReceiver, self._engines)
            self._receivers.append(await self.start_link(factory, name=f"receiver.{number}"))

    async def receive(self, message: FindReceivers | GetTotals) -> None:
        match message:
            case FindReceivers():
                self.reply(Receivers(tuple(self._receivers)))
            case GetTotals():
                self.reply(TotalsReply(await collect_totals(self._engines)))


def forward_order(actor: Actor[Any], order: Order, targets: OrderTargets, key: str) -> None:
    """Forward an order to the target with a key; reply with InvalidOrderError if there is none."""
    ref = targets.get(key)
    if ref is None:
        actor.reply_error(InvalidOrderError(f"share {order.symbol!r} is not traded here"))
    else:
        actor.forward(ref)


async def collect_totals(targets: OrderTargets) -> Totals:
    replies = [ref.ask_future(GetTotals(), TOTALS_TIMEOUT_S) for ref in targets.values()]
    return sum((told.totals for told in await join(*replies)), Totals())
