"""An order book: matches the buy orders and sell orders for one share.

BK1  The book is never crossed: its best buy price is below its best sell price.
BK2  No volume is lost: the volume of all buy orders is what was traded plus what rests in the book; so is that
     of the sell orders. Each trade takes the same volume from both.
BK3  Price-time priority: orders with the better price trade first, and of equal prices the earlier one.
BK4  A trade is at the price of the resting order; a new order to buy pays no more than its limit, and
     one to sell gets no less.
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
    """A part of an order that was traded with a resting order."""

    resting_order: int
    price: int
    volume: int


class RestingOrder(msgspec.Struct):
    """An order in the book, with its remaining volume."""

    number: int
    volume: int


class Totals(msgspec.Struct, frozen=True):
    """The volumes that passed through one book or several."""

    orders: int = 0
    buy_volume: int = 0
    sell_volume: int = 0
    traded: int = 0
    resting_buy_volume: int = 0
    resting_sell_volume: int = 0

    def __add__(self, other: Totals) -> Totals:
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Totals(*(a + b for a, b in zip(mine, theirs, strict=True)))

    @property
    def is_balanced(self) -> bool:
        """Whether BK2 holds."""
        return (
            self.buy_volume == self.traded + self.resting_buy_volume
            and self.sell_volume == self.traded + self.resting_sell_volume
        )


class BookSide:
    """One side of a book: the resting orders at each price, in the order of their arrival.

    Prices are stored as ranks, where a higher rank is a better price: the price of an order to buy, and
    the negative price of one to sell. So both sides use the same code, and the best price is always the last.
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
        """Trade up to `volume` with the best resting orders, at no worse a price than `limit`, and return the
        fills."""
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
        """Return (number, price, volume) of all resting orders, the best first."""
        return [
            (order.number, rank * self._sign, order.volume)
            for rank in reversed(self._ranks)
            for order in self._levels[rank]
        ]


class OrderBook:
    def __init__(self) -> None:
        self.buy_orders = BookSide(1)
        self.sell_orders = BookSide(-1)
        self._orders = 0
        self._buy_volume = 0
        self._sell_volume = 0
        self._traded = 0

    def place(self, side: OrderSide, price: int, volume: int) -> tuple[int, list[Fill]]:
        """Place an order. Returns its number and the fills; the remaining volume rests in the book.

        Raises InvalidOrderError.
        """
        if price <= 0 or volume <= 0:
            raise InvalidOrderError(f"{volume} at {price}: price and volume must be above 0")
        self._orders += 1
        number = self._orders
        match side:
            case OrderSide.BUY:
                self._buy_volume += volume
                own, other = self.buy_orders, self.sell_orders
            case OrderSide.SELL:
                self._sell_volume += volume
                own, other = self.sell_orders, self.buy_orders
        fills = other.match(price, volume)
        traded = sum(fill.volume for fill in fills)
        self._traded += traded
        if traded < volume:
            own.add(price, RestingOrder(number, volume - traded))
        return number, fills

    @property
    def totals(self) -> Totals:
        resting = self.buy_orders.volume, self.sell_orders.volume
        return Totals(self._orders, self._buy_volume, self._sell_volume, self._traded, *resting)

    def check(self) -> None:
        """Assert BK1 and BK2, and that the volumes are the sums of the orders."""
        buy, sell = self.buy_orders.best_price, self.sell_orders.best_price
        assert buy is None or sell is None or buy < sell, "BK1"
        assert self.totals.is_balanced, "BK2"
        for half in (self.buy_orders, self.sell_orders):
            assert half.volume == sum(volume for _, _, volume in half.orders()), "BK2"


class InvalidOrderError(ValueError):
    """An order with a price or volume that is not positive, or for an unknown share."""
