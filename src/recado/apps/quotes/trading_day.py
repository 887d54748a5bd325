"""The phases of a trading day: opening auction, trading, closing auction.

`activity` is how active the market is at a time, relative to the average of the day: highest at the opening
and the close, lowest at noon. It determines both how often events happen and how far prices move, as in real
markets, where volume and volatility have the same U shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from recado.apps.quotes.tick import MarketPhase

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
DAYS_PER_YEAR = 252

# Activity = min + depth × u², u from -1 at the opening to 1 at the close; its mean is min + depth / 3 = 1.
ACTIVITY_MIN_FACTOR, ACTIVITY_DEPTH_FACTOR = 0.5, 1.5
ACTIVITY_MAX_FACTOR = ACTIVITY_MIN_FACTOR + ACTIVITY_DEPTH_FACTOR

# Orders are collected in an auction, without trades before its end.
AUCTION_ACTIVITY_FACTOR = 0.4


@dataclass(frozen=True)
class TradingDay:
    """One trading day; times in µs since 1970, in the market's own time."""

    begins: int  # start of the opening auction
    opens: int
    closes: int  # end of trading, start of the closing auction
    ends: int

    def phase(self, at: int) -> MarketPhase:
        if at < self.opens:
            return MarketPhase.OPENING
        if at < self.closes:
            return MarketPhase.TRADING
        return MarketPhase.CLOSING if at < self.ends else MarketPhase.CLOSED

    def activity(self, at: int) -> float:
        if not self.opens <= at < self.closes:
            return AUCTION_ACTIVITY_FACTOR
        u = 2 * (at - self.opens) / (self.closes - self.opens) - 1
        return ACTIVITY_MIN_FACTOR + ACTIVITY_DEPTH_FACTOR * u * u

    def elapsed_activity(self, at: int) -> float:
        """Return the share of the day's activity that is over, from 0 to 1: the integral of `activity`."""
        u = (
            2 * (min(max(at, self.opens), self.closes) - self.opens) / (self.closes - self.opens)
            - 1
        )
        return ACTIVITY_MIN_FACTOR * (u + 1) / 2 + ACTIVITY_DEPTH_FACTOR * (u**3 + 1) / 6

    @property
    def trading_seconds(self) -> float:
        return (self.closes - self.opens) / SECOND_US


@dataclass(frozen=True)
class TradingHours:
    """The trading hours, the same from Monday to Friday."""

    opens: time = time(10)
    closes: time = time(17)
    auction: timedelta = timedelta(minutes=5)

    def on_day(self, day: date) -> TradingDay:
        opens, closes = (to_micros(day, hour) for hour in (self.opens, self.closes))
        auction = self.auction // timedelta(microseconds=1)
        return TradingDay(opens - auction, opens, closes, closes + auction)


def to_micros(day: date, hour: time) -> int:
    since = datetime.combine(day, hour, UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)


def next_trading_day(day: date) -> date:
    """Return this day, or the next one with trading."""
    while day.weekday() >= 5:
        day += timedelta(days=1)
    return day
