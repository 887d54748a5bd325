"""An order book: who wants to buy or sell one share, and who gets it.

BK1  The book is never crossed: its best bid is below its best ask.
BK2  Nothing is lost: what was bid is traded or rests, and so is what was asked; each trade has both sides.
BK3  Price, then time: whoever offers the better price trades first, and of equals whoever came first.
BK4  A trade is at the price of the order that was there; who comes pays no more than it bid, and gets no less
     than it asked.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from enum import Enum

import msgspec


class OrderSide(Enum):
    BUY = "buy"
    SELL = "sell"


class Fill(msgspec.Struct, frozen=True):
    """A part of an order that was traded with one that rested."""

    resting_order: int
    price: int
    volume: int


class RestingOrder(msgspec.Struct):
    """An order in the book, with what is left of it."""

    number: int
    volume: int


class Totals(msgspec.Struct, frozen=True):
    """What went through a book, or through several."""

    orders: int = 0
    bid: int = 0
    asked: int = 0
    traded: int = 0
    resting_bids: int = 0
    resting_asks: int = 0

    def __add__(self, other: Totals) -> Totals:
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Totals(*(a + b for a, b in zip(mine, theirs, strict=True)))

    @property
    def is_balanced(self) -> bool:
        """BK2."""
        return (
            self.bid == self.traded + self.resting_bids
            and self.asked == self.traded + self.resting_asks
        )


class BookSide:
    """One side of a book: those who came at each price, in order.

    Prices are kept under a rank that grows with how good they are: a buyer's is the price, a seller's its
    negative. So both halves are the same, and the best is always the last.
    """

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._ranks: list[int] = []
        self._levels: dict[int, deque[RestingOrder]] = {}
        self.volume = 0

    @property
    def best_price(self) -> int | None:
        return self._ranks[-1] * self._sign if self._ranks else None

    def add(self, price: int, order: RestingOrder) -> None:
        rank = price * self._sign
        level = self._levels.get(rank)
        if level is None:
            level = self._levels[rank] = deque()
            insort(self._ranks, rank)
        level.append(order)
        self.volume += order.volume

    def match(self, limit: int, volume: int) -> list[Fill]:
        """Up to so much, from the best on, at no worse a price for the other side than its limit."""
        fills = []
        while volume and self._ranks and self._ranks[-1] >= limit * self._sign:
            rank = self._ranks[-1]
            level = self._levels[rank]
            first = level[0]
            traded = min(volume, first.volume)
            fills.append(Fill(first.number, rank * self._sign, traded))
            volume -= traded
            first.volume -= traded
            self.volume -= traded
            if not first.volume:
                level.popleft()
                if not level:
                    del self._levels[rank]
                    self._ranks.pop()
        return fills

    def orders(self) -> list[tuple[int, int, int]]:
        """All that rest, the best first: number, price, volume."""
        return [
            (order.number, rank * self._sign, order.volume)
            for rank in reversed(self._ranks)
            for order in self._levels[rank]
        ]


class OrderBook:
    def __init__(self) -> None:
        self.bids = BookSide(1)
        self.asks = BookSide(-1)
        self._orders = 0
        self._bid = 0
        self._asked = 0
        self._traded = 0

    def place(self, side: OrderSide, price: int, volume: int) -> tuple[int, list[Fill]]:
        """An order: its number, and what was traded at once. The rest of it stays in the book."""
        if price <= 0 or volume <= 0:
            raise InvalidOrderError(f"{volume} at {price}: price and volume are above 0")
        self._orders += 1
        number = self._orders
        match side:
            case OrderSide.BUY:
                self._bid += volume
                own, other = self.bids, self.asks
            case OrderSide.SELL:
                self._asked += volume
                own, other = self.asks, self.bids
        fills = other.match(price, volume)
        traded = sum(fill.volume for fill in fills)
        self._traded += traded
        if traded < volume:
            own.add(price, RestingOrder(number, volume - traded))
        return number, fills

    @property
    def totals(self) -> Totals:
        resting = self.bids.volume, self.asks.volume
        return Totals(self._orders, self._bid, self._asked, self._traded, *resting)

    def check(self) -> None:
        """BK1 and BK2, and that the volumes are those of the orders."""
        bid, ask = self.bids.best_price, self.asks.best_price
        assert bid is None or ask is None or bid < ask, "BK1"
        assert self.totals.is_balanced, "BK2"
        for half in (self.bids, self.asks):
            assert half.volume == sum(volume for _, _, volume in half.orders()), "BK2"


class InvalidOrderError(ValueError):
    """An order that no book takes."""
