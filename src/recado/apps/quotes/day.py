"""The hours of a trading day: an auction to open, trading, an auction to close.

`pulse` says how busy the market is at a moment, as a multiple of the average of the day: most at the opening
and at the close, least at noon. It rules both how often something happens and how far prices move, as in real
markets, where volume and volatility share that shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from recado.apps.quotes.tick import Phase

SECOND = 1_000_000  # of the market's time, in µs
MINUTE = 60 * SECOND
DAYS_PER_YEAR = 252

# Pulse = floor + depth × u², u from -1 at the opening to 1 at the close; its mean is floor + depth / 3 = 1.
FLOOR, DEPTH = 0.5, 1.5
PEAK = FLOOR + DEPTH

# Orders gather in an auction, but nobody trades before its end.
AUCTION_PULSE = 0.4


@dataclass(frozen=True)
class Day:
    """One trading day; all times in µs since 1970, in the market's own time."""

    begins: int  # the opening auction
    opens: int
    closes: int  # trading ends, the closing auction begins
    ends: int

    def phase(self, at: int) -> Phase:
        if at < self.opens:
            return Phase.OPENING
        if at < self.closes:
            return Phase.TRADING
        return Phase.CLOSING if at < self.ends else Phase.CLOSED

    def pulse(self, at: int) -> float:
        if not self.opens <= at < self.closes:
            return AUCTION_PULSE
        u = 2 * (at - self.opens) / (self.closes - self.opens) - 1
        return FLOOR + DEPTH * u * u

    def passed(self, at: int) -> float:
        """How much of the day's activity is over, from 0 to 1: the pulse, added up."""
        u = (
            2 * (min(max(at, self.opens), self.closes) - self.opens) / (self.closes - self.opens)
            - 1
        )
        return FLOOR * (u + 1) / 2 + DEPTH * (u**3 + 1) / 6

    @property
    def trading_seconds(self) -> float:
        return (self.closes - self.opens) / SECOND


@dataclass(frozen=True)
class Hours:
    """The same every day, Monday to Friday."""

    opens: time = time(10)
    closes: time = time(17)
    auction: timedelta = timedelta(minutes=5)

    def on(self, day: date) -> Day:
        opens, closes = (microseconds(day, hour) for hour in (self.opens, self.closes))
        auction = self.auction // timedelta(microseconds=1)
        return Day(opens - auction, opens, closes, closes + auction)


def microseconds(day: date, hour: time) -> int:
    since = datetime.combine(day, hour, UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)


def trading_day(day: date) -> date:
    """This day, or the next one on which there is trading."""
    while day.weekday() >= 5:
        day += timedelta(days=1)
    return day
