"""The order book against a list that is searched from end to end for each order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.apps.trading.book import Fill, InvalidOrderError, OrderBook, OrderSide, Totals

ORDERS = st.lists(
    st.tuples(st.sampled_from(OrderSide), st.integers(1, 12), st.integers(1, 50)), max_size=80
)


@dataclass
class Waiting:
    number: int
    side: OrderSide
    price: int
    volume: int


@dataclass
class Model:
    """All orders that wait, in the order in which they came."""

    waiting: list[Waiting] = field(default_factory=list)
    placed: int = 0

    def place(self, side: OrderSide, price: int, volume: int) -> tuple[int, list[Fill]]:
        self.placed += 1
        fills = []
        while volume and (other := self.partner(side, price)) is not None:
            traded = min(volume, other.volume)
            fills.append(Fill(other.number, other.price, traded))
            volume -= traded
            other.volume -= traded
            self.waiting = [each for each in self.waiting if each.volume]
        if volume:
            self.waiting.append(Waiting(self.placed, side, price, volume))
        return self.placed, fills

    def partner(self, side: OrderSide, price: int) -> Waiting | None:
        """The best price of the other side, of equals the first."""
        if side is OrderSide.BUY:
            sells = [
                each for each in self.waiting if each.side is OrderSide.SELL and each.price <= price
            ]
            return min(sells, key=lambda each: (each.price, each.number), default=None)
        buys = [each for each in self.waiting if each.side is OrderSide.BUY and each.price >= price]
        return min(buys, key=lambda each: (-each.price, each.number), default=None)

    def resting(self, side: OrderSide) -> list[tuple[int, int, int]]:
        sign = -1 if side is OrderSide.BUY else 1
        mine = [each for each in self.waiting if each.side is side]
        mine.sort(key=lambda each: (sign * each.price, each.number))
        return [(each.number, each.price, each.volume) for each in mine]


@given(ORDERS)
def test_orders_are_matched_as_the_model_does(orders: list[tuple[OrderSide, int, int]]) -> None:
    """BK3 and BK4."""
    book, model = OrderBook(), Model()
    for order in orders:
        assert book.place(*order) == model.place(*order)
        assert book.buy_orders.orders() == model.resting(OrderSide.BUY)
        assert book.sell_orders.orders() == model.resting(OrderSide.SELL)
        book.check()


@given(ORDERS)
def test_nothing_is_lost_and_nothing_crossed(orders: list[tuple[OrderSide, int, int]]) -> None:
    """BK1 and BK2, by our own account of each order."""
    book = OrderBook()
    left: dict[int, tuple[OrderSide, int]] = {}
    traded = 0
    for side, price, volume in orders:
        number, fills = book.place(side, price, volume)
        for fill in fills:
            other, before = left[fill.resting_order]
            assert other is not side
            assert fill.price <= price if side is OrderSide.BUY else fill.price >= price
            assert 0 < fill.volume <= before
            left[fill.resting_order] = other, before - fill.volume
            volume -= fill.volume
            traded += fill.volume
        left[number] = side, volume
        buy, sell = book.buy_orders.best_price, book.sell_orders.best_price
        assert buy is None or sell is None or buy < sell
    totals = book.totals
    assert totals.orders == len(orders)
    assert totals.traded == traded
    assert totals.resting_buy_volume == sum(v for side, v in left.values() if side is OrderSide.BUY)
    assert totals.resting_sell_volume == sum(
        v for side, v in left.values() if side is OrderSide.SELL
    )
    assert totals.is_balanced


def test_the_better_price_first_and_of_equals_who_came_first() -> None:
    book = OrderBook()
    for price in (10, 9, 10):
        book.place(OrderSide.SELL, price, 5)
    assert book.place(OrderSide.BUY, 10, 12) == (4, [Fill(2, 9, 5), Fill(1, 10, 5), Fill(3, 10, 2)])
    assert book.sell_orders.orders() == [(3, 10, 3)]
    assert (book.buy_orders.best_price, book.sell_orders.best_price) == (None, 10)


def test_what_is_left_rests() -> None:
    book = OrderBook()
    book.place(OrderSide.BUY, 10, 5)
    assert book.place(OrderSide.SELL, 10, 8) == (2, [Fill(1, 10, 5)])
    assert book.sell_orders.orders() == [(2, 10, 3)]
    assert book.totals == Totals(2, 5, 8, 5, 0, 3)


@pytest.mark.parametrize(("price", "volume"), [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_an_order_for_nothing_is_refused_and_changes_nothing(price: int, volume: int) -> None:
    book = OrderBook()
    with pytest.raises(InvalidOrderError):
        book.place(OrderSide.BUY, price, volume)
    assert book.totals == Totals()


def test_totals_of_several_books() -> None:
    first, second = OrderBook(), OrderBook()
    first.place(OrderSide.BUY, 10, 5)
    second.place(OrderSide.SELL, 10, 7)
    together = first.totals + second.totals
    assert together == Totals(2, 5, 7, 0, 5, 7)
    assert together.is_balanced
    assert not Totals(1, buy_volume=5, traded=4).is_balanced
