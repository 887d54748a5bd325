"""Price walks: volatility as specified, moves shared with the market, and no drift of the expected price."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random
from statistics import correlation, fmean, pstdev

import pytest

from recado.apps.quotes.instrument import Instrument, make_instruments
from recado.apps.quotes.market import MarketSettings
from recado.apps.quotes.price_walk import MARKET_VOLATILITY_RATIO, PriceWalk, activity_days
from recado.apps.quotes.trading_day import DAYS_PER_YEAR, TradingHours

DAYS = 3_000
CLOSE = 1.0


def closes(instruments: list[Instrument], seed: int = 5) -> list[list[float]]:
    """The logarithms of the last prices of many days, of each symbol."""
    walk = PriceWalk(instruments, Random(seed))
    days = [activity_days(number, CLOSE) for number in range(DAYS)]
    rows = [[math.log(walk.price(place, now)) for place in range(len(instruments))] for now in days]
    return [list(each) for each in zip(*rows, strict=True)]


def moves(levels: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(levels)]


def test_the_volatility_of_a_year_is_that_of_the_listing() -> None:
    instruments = make_instruments(6, Random(1))
    for each, levels in zip(instruments, closes(instruments), strict=True):
        yearly = pstdev(moves(levels)) * math.sqrt(DAYS_PER_YEAR)
        expected = math.hypot(each.volatility, each.beta * MARKET_VOLATILITY_RATIO)
        assert yearly == pytest.approx(expected, rel=0.06)


def test_a_day_that_is_looked_at_often_moves_no_more() -> None:
    day = TradingHours().on_day(MarketSettings().first_day)
    (each,) = make_instruments(1, Random(1))
    walk = PriceWalk([each], Random(9))
    levels = []
    for number in range(200):
        for step in range(50):
            at = day.opens + (day.closes - day.opens) * step // 49
            price = walk.price(0, activity_days(number, day.elapsed_activity(at)))
        levels.append(math.log(price))
    yearly = pstdev(moves(levels)) * math.sqrt(DAYS_PER_YEAR)
    expected = math.hypot(each.volatility, each.beta * MARKET_VOLATILITY_RATIO)
    assert yearly == pytest.approx(expected, rel=0.2)


def test_the_market_moves_all_symbols_by_their_beta() -> None:
    twin = Instrument("TWIN3", 1000.0, volatility=0.05, beta=1.0, share=0.5, spread=1)
    one, other = (moves(levels) for levels in closes([twin, twin]))
    expected = MARKET_VOLATILITY_RATIO**2 / (MARKET_VOLATILITY_RATIO**2 + 0.05**2)
    assert correlation(one, other) == pytest.approx(expected, abs=0.05)


def test_the_expected_price_stays_where_it_is() -> None:
    each = Instrument("FAIR3", 1000.0, volatility=0.3, beta=0.0, share=1.0, spread=1)
    after = [PriceWalk([each], Random(seed)).price(0, 50.0) for seed in range(3_000)]
    assert fmean(after) == pytest.approx(1000.0, rel=0.02)


def test_no_price_falls_to_nothing_or_leaves_the_wire() -> None:
    wild = Instrument("WILD3", 1000.0, volatility=40.0, beta=0.0, share=1.0, spread=1)
    walk = PriceWalk([wild], Random(2))
    prices = [walk.price(0, float(day)) for day in range(2_000)]
    assert min(prices) >= 4.9
    assert max(prices) < 2**32


def test_what_has_passed_of_a_day_is_its_pulse_added_up() -> None:
    day = TradingHours().on_day(MarketSettings().first_day)
    steps = 1_000
    moments = [day.opens + (day.closes - day.opens) * step // steps for step in range(steps)]
    assert fmean(day.activity(at) for at in moments) == pytest.approx(1.0, rel=0.01)
    assert (day.elapsed_activity(day.begins), day.elapsed_activity(day.opens)) == (0.0, 0.0)
    assert (day.elapsed_activity(day.closes), day.elapsed_activity(day.ends)) == (1.0, 1.0)
    half = (day.opens + day.closes) // 2
    assert day.elapsed_activity(half) == pytest.approx(0.5)
