"""Where prices go: geometric walks, one for the market and one for each symbol on top of it.

Time is counted in days of activity, not of the clock: at noon little of it passes and prices hardly move,
between two days a share of a day passes at once, and the opening price is another than the last one. So the
volatility of a year is what the listing says, however the day is divided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from recado.apps.quotes.day import DAYS_PER_YEAR
from recado.apps.quotes.listing import Instrument

OVERNIGHT = 0.3  # of a day
MARKET_VOLATILITY = 0.15  # of a year
NEWS_MOVE = 0.004  # standard deviation of what one piece of news does to a price

# Prices in cents go over the wire in 32 bits, and none falls to nothing.
LOWEST, HIGHEST = math.log(5.0), math.log(2e9)


def days_of_activity(number: int, passed: float) -> float:
    """At a moment of the day with this number, of which so much has passed."""
    return number * (1 + OVERNIGHT) + passed


class Walk:
    """The logarithm of each price, brought forward only when its symbol is looked at."""

    def __init__(self, instruments: Sequence[Instrument], chance: Random) -> None:
        self._chance = chance
        self._own = [math.log(each.price) for each in instruments]
        self._since = [0.0] * len(instruments)
        self._step = [daily(each.volatility) for each in instruments]
        self._beta = [each.beta for each in instruments]
        self._market = 0.0
        self._market_since = 0.0
        self._market_step = daily(MARKET_VOLATILITY)

    def price(self, index: int, now: float) -> float:
        """In cents and fractions of them, at `now` in days of activity."""
        if now > self._market_since:
            self._market += self._moved(self._market_step, now - self._market_since)
            self._market_since = now
        if now > self._since[index]:
            self._own[index] += self._moved(self._step[index], now - self._since[index])
            self._since[index] = now
        level = self._own[index] + self._beta[index] * self._market
        return math.exp(min(max(level, LOWEST), HIGHEST))

    def shock(self, index: int) -> None:
        """News of one symbol."""
        self._own[index] += NEWS_MOVE * self._chance.gauss(0.0, 1.0)

    def _moved(self, step: float, days: float) -> float:
        """The drift keeps the expected price where it is: a walk is no promise of gains."""
        variance = step * step * days
        return math.sqrt(variance) * self._chance.gauss(0.0, 1.0) - variance / 2


def daily(volatility: float) -> float:
    return volatility / math.sqrt(DAYS_PER_YEAR * (1 + OVERNIGHT))
