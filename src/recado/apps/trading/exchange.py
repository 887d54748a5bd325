"""The exchange: actors for books, matching engines and receivers, and the receptionist that starts them all.

    receptionist ─┬─ engine.A ── book.A1 … book.A5           supervises those to its right
                  ├─ engine.B ── book.B1 … book.B5
                  ├─ engine.C ── book.C1 … book.C5
                  └─ receiver.1 … receiver.10

An order goes receiver → engine → book, each forwarding it, and the book's answer goes straight to the client.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any, Final

from recado.actors import Actor, ActorRef, join

from .book import BadOrder, OrderBook, Side, Totals
from .listing import GROUPS, RECEIVERS, SYMBOLS, group_of
from .messages import (
    Ask,
    Bid,
    Confirmed,
    FindReceivers,
    Order,
    Receivers,
    TellTotals,
    ToldTotals,
)

NODE: Final = "exchange"
RECEPTIONIST: Final = "receptionist"
TOTALS_SECONDS: Final = 10.0

# Who takes the orders for a share, or for a group of them, by its name.
Takers = dict[str, ActorRef[Order | TellTotals]]


class Book(Actor[Order | TellTotals]):
    """The orders for one share."""

    def __init__(self) -> None:
        self._book = OrderBook()

    def receive(self, message: Order | TellTotals) -> None:
        match message:
            case Bid(_, price, volume):
                self._place(Side.BUY, price, volume)
            case Ask(_, price, volume):
                self._place(Side.SELL, price, volume)
            case TellTotals():
                self.reply(ToldTotals(self._book.totals))

    def _place(self, side: Side, price: int, volume: int) -> None:
        try:
            number, fills = self._book.place(side, price, volume)
        except BadOrder as error:  # the client's mistake; the book is as it was
            self.reply_error(error)
        else:
            self.reply(Confirmed(number, sum(fill.volume for fill in fills)))


class Engine(Actor[Order | TellTotals]):
    """Knows the books of a group of shares."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._books: Takers = {}

    async def started(self) -> None:
        for symbol in SYMBOLS:
            if group_of(symbol) == self._group:
                self._books[symbol] = await self.start_link(Book, name=f"book.{symbol}")

    def receive(self, message: Order | TellTotals) -> Awaitable[None] | None:
        match message:
            case TellTotals():
                return self._tell_totals()
            case order:  # at once, and not in a task: this is what is measured
                pass_on(self, order, self._books, order.symbol)
                return None

    async def _tell_totals(self) -> None:
        self.reply(ToldTotals(await totals_of(self._books)))


class Receiver(Actor[Order]):
    """Takes orders for any share."""

    def __init__(self, engines: Takers) -> None:
        self._engines = engines

    def receive(self, message: Order) -> None:
        pass_on(self, message, self._engines, group_of(message.symbol))


class Receptionist(Actor[FindReceivers | TellTotals]):
    """Starts the others, and is the only one whose name clients know."""

    def __init__(self) -> None:
        self._engines: Takers = {}
        self._receivers: list[ActorRef[Order]] = []

    async def started(self) -> None:
        for group in GROUPS:
            engine = await self.start_link(partial(Engine, group), name=f"engine.{group}")
            self._engines[group] = engine
        for number in range(1, RECEIVERS + 1):
            made = partial(Receiver, self._engines)
            self._receivers.append(await self.start_link(made, name=f"receiver.{number}"))

    async def receive(self, message: FindReceivers | TellTotals) -> None:
        match message:
            case FindReceivers():
                self.reply(Receivers(tuple(self._receivers)))
            case TellTotals():
                self.reply(ToldTotals(await totals_of(self._engines)))


def pass_on(actor: Actor[Any], order: Order, there: Takers, key: str) -> None:
    """The order to who has it to do with this key."""
    ref = there.get(key)
    if ref is None:
        actor.reply_error(BadOrder(f"no share {order.symbol!r} is traded here"))
    else:
        actor.forward(ref)


async def totals_of(those: Takers) -> Totals:
    asked = [ref.ask_future(TellTotals(), TOTALS_SECONDS) for ref in those.values()]
    return sum((told.totals for told in await join(*asked)), Totals())
