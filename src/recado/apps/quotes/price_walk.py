"""The prices: geometric random walks, one for the market and one for each instrument on top of it.

Time is measured in days of activity, not by the clock: at noon little of it passes and prices hardly move,
and between two days a part of a day passes at once, so the opening price differs from the last one. The
volatility per year is as specified, however the activity is distributed over the day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from recado.apps.quotes.instrument import Instrument
from recado.apps.quotes.trading_day import DAYS_PER_YEAR

OVERNIGHT_DAYS = 0.3  # activity between two days
MARKET_VOLATILITY_RATIO = 0.15  # yearly
NEWS_MOVE_RATIO = 0.004  # standard deviation of the price move by one piece of news

# The compact form has 32 bits for prices in cents, and no price falls to 0.
LOG_PRICE_MIN, LOG_PRICE_MAX = math.log(5.0), math.log(2e9)


def activity_days(number: int, passed: float) -> float:
    """Return the days of activity since the first day; `passed` is the share of day `number` that is over."""
    return number * (1 + OVERNIGHT_DAYS) + passed


class PriceWalk:
    """The logarithm of each price, advanced only when the price is needed."""

    def __init__(self, instruments: Sequence[Instrument], rng: Random) -> None:
        self._rng = rng
        self._log_prices = [math.log(each.price) for each in instruments]
        self._updated_at = [0.0] * len(instruments)
        self._daily_volatility = [to_daily(each.volatility) for each in instruments]
        self._beta = [each.beta for each in instruments]
        self._market_log = 0.0
        self._market_updated_at = 0.0
        self._market_volatility = to_daily(MARKET_VOLATILITY_RATIO)

    def price(self, index: int, now: float) -> float:
        """Return the price in cents, with fractions, at `now` in days of activity."""
        if now > self._market_updated_at:
            self._market_log += self._draw_move(
                self._market_volatility, now - self._market_updated_at
            )
            self._market_updated_at = now
        if now > self._updated_at[index]:
            self._log_prices[index] += self._draw_move(
                self._daily_volatility[index], now - self._updated_at[index]
            )
            self._updated_at[index] = now
        level = self._log_prices[index] + self._beta[index] * self._market_log
        return math.exp(min(max(level, LOG_PRICE_MIN), LOG_PRICE_MAX))

    def apply_news(self, index: int) -> None:
        """Move the price of an instrument because of news."""
        self._log_prices[index] += NEWS_MOVE_RATIO * self._rng.gauss(0.0, 1.0)

    def _draw_move(self, volatility: float, days: float) -> float:
        """Draw a move of the log price; its drift keeps the expected price constant."""
        variance = volatility * volatility * days
        return math.sqrt(variance) * self._rng.gauss(0.0, 1.0) - variance / 2


def to_daily(volatility: float) -> float:
    return volatility / math.sqrt(DAYS_PER_YEAR * (1 + OVERNIGHT_DAYS))
