"""The market: an endless stream of quotes, trades and bells, the same for the same seed.

M1  Time never goes back.
M2  A bid is below its ask, and nothing costs nothing.
M3  A trade is at the bid or the ask that was quoted last, except in an auction.
M4  There are no trades in an auction but those of its end: one for each symbol.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random

from recado.apps.quotes.day import Day, Hours, trading_day
from recado.apps.quotes.listing import list_instruments
from recado.apps.quotes.rhythm import Rhythm
from recado.apps.quotes.tick import Bell, Phase, Quote, Side, Tick, Trade
from recado.apps.quotes.walk import Walk, days_of_activity

LOT = 100
TRADES = 0.25  # share of beats that bring a trade, and not only another quote

# How many lots: the exponent of a normal one, by its mean and deviation.
QUOTED = (2.0, 0.9)
TRADED = (0.8, 1.0)
CROSSED = (5.0, 0.8)
MOST_LOTS = 1_000_000

WIDE = 3.0  # spreads in an auction, and just after news


@dataclass(frozen=True)
class Setting:
    """What a market is made of, beside its seed."""

    symbols: int = 20
    per_second: float = 10.0  # events of all symbols together, on the average of a day
    first_day: date = date(2026, 3, 2)
    hours: Hours = field(default_factory=Hours)


class Market:
    def __init__(self, seed: int, setting: Setting | None = None) -> None:
        self.setting = setting or Setting()
        self._chance = Random(seed)
        self.instruments = list_instruments(self.setting.symbols, self._chance)
        self._walk = Walk(self.instruments, self._chance)
        self._rhythm = Rhythm(self.instruments, self.setting.per_second, self._chance)
        self._last: list[Quote | None] = [None] * self.setting.symbols

    def ticks(self) -> Iterator[Tick]:
        """Day after day, without end."""
        on = trading_day(self.setting.first_day)
        number = 0
        while True:
            yield from self._day(self.setting.hours.on(on), number)
            on = trading_day(on + timedelta(days=1))
            number += 1

    def _day(self, day: Day, number: int) -> Iterator[Tick]:
        phase = Phase.OPENING
        yield Bell(day.begins, phase)
        for at, index, news in self._rhythm.of(day):
            while phase is not day.phase(at):
                phase, turned = self._next_phase(day, phase, number)
                yield from turned
            if news:
                self._walk.shock(index)
            yield from self._beat(index, at, days_of_activity(number, day.passed(at)), phase, news)
        while phase is not Phase.CLOSED:
            phase, turned = self._next_phase(day, phase, number)
            yield from turned

    def _next_phase(self, day: Day, phase: Phase, number: int) -> tuple[Phase, list[Tick]]:
        """The bell, after the trades with which an auction ends."""
        match phase:
            case Phase.OPENING:
                crossed = self._cross(day.opens, days_of_activity(number, 0.0), quoting=True)
                return Phase.TRADING, [*crossed, Bell(day.opens, Phase.TRADING)]
            case Phase.TRADING:
                return Phase.CLOSING, [Bell(day.closes, Phase.CLOSING)]
            case Phase.CLOSING | Phase.CLOSED:
                crossed = self._cross(day.ends, days_of_activity(number, 1.0), quoting=False)
                return Phase.CLOSED, [*crossed, Bell(day.ends, Phase.CLOSED)]

    def _beat(self, index: int, at: int, now: float, phase: Phase, news: bool) -> Iterator[Tick]:
        quoted = self._last[index]
        trading = phase is Phase.TRADING
        if quoted is not None and trading and (news or self._chance.random() < TRADES):
            yield self._trade(quoted, at)
        yield self._quote(index, at, now, WIDE if news or not trading else 1.0)

    def _trade(self, quoted: Quote, at: int) -> Trade:
        size = self._lots(TRADED)
        if self._chance.random() < 0.5:
            return Trade(quoted.symbol, at, quoted.ask, min(size, quoted.ask_size), Side.BUY)
        return Trade(quoted.symbol, at, quoted.bid, min(size, quoted.bid_size), Side.SELL)

    def _quote(self, index: int, at: int, now: float, width: float) -> Quote:
        each = self.instruments[index]
        middle = self._walk.price(index, now)
        # The spread breathes, and the middle is seldom exactly between the two.
        half = each.spread * width * (0.5 + self._chance.random()) / 2
        bid = max(1, math.floor(middle - half))
        ask = max(bid + 1, math.ceil(middle + half))
        sizes = self._lots(QUOTED), self._lots(QUOTED)
        quote = self._last[index] = Quote(each.symbol, at, bid / 100, ask / 100, *sizes)
        return quote

    def _cross(self, at: int, now: float, quoting: bool) -> Iterator[Tick]:
        for index, each in enumerate(self.instruments):
            price = max(1, round(self._walk.price(index, now)))
            yield Trade(each.symbol, at, price / 100, self._lots(CROSSED), Side.AUCTION)
            if quoting:
                yield self._quote(index, at, now, 1.0)

    def _lots(self, shape: tuple[float, float]) -> int:
        mean, deviation = shape
        lots = math.exp(mean + deviation * self._chance.gauss(0.0, 1.0))
        return LOT * min(max(1, round(lots)), MOST_LOTS)
