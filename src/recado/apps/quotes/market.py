"""The market: an endless stream of quotes, trades and bells, determined by the seed.

MK1  Time never goes back.
MK2  A bid is below its ask, and prices are positive.
MK3  A trade is at the last quoted bid or ask, except in an auction.
MK4  An auction has no trades before its end, and then one for each symbol.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from random import Random

from recado.apps.quotes.arrivals import ArrivalProcess
from recado.apps.quotes.instrument import make_instruments
from recado.apps.quotes.price_walk import PriceWalk, activity_days
from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Side, Tick, Trade
from recado.apps.quotes.trading_day import TradingDay, TradingHours, next_trading_day

LOT_SHARE_COUNT = 100
TRADE_RATIO = 0.25  # share of events with a trade, not only a quote

# Mean and standard deviation of the log of the number of lots.
QUOTED_LOTS = (2.0, 0.9)
TRADED_LOTS = (0.8, 1.0)
AUCTION_LOTS = (5.0, 0.8)
LOT_COUNT_MAX = 1_000_000

WIDE_SPREAD_FACTOR = 3.0  # of the spread in auctions, and of the first quote after news


@dataclass(frozen=True)
class MarketSettings:
    """The parameters of a market, beside its seed."""

    symbols: int = 20
    per_second: float = 10.0  # events of all instruments, averaged over a day
    first_day: date = date(2026, 3, 2)
    hours: TradingHours = field(default_factory=TradingHours)


class Market:
    """A simulated market of a few instruments."""

    def __init__(self, seed: int, settings: MarketSettings | None = None) -> None:
        self.settings = settings or MarketSettings()
        self._rng = Random(seed)
        self.instruments = make_instruments(self.settings.symbols, self._rng)
        self._prices = PriceWalk(self.instruments, self._rng)
        self._arrivals = ArrivalProcess(self.instruments, self.settings.per_second, self._rng)
        self._last_quotes: list[Quote | None] = [None] * self.settings.symbols

    def ticks(self) -> Iterator[Tick]:
        """Yield ticks, day after day, without end."""
        date_ = next_trading_day(self.settings.first_day)
        number = 0
        while True:
            yield from self._ticks_of_day(self.settings.hours.on_day(date_), number)
            date_ = next_trading_day(date_ + timedelta(days=1))
            number += 1

    def _ticks_of_day(self, day: TradingDay, number: int) -> Iterator[Tick]:
        """Yield the ticks of trading day `number`. Ticks have clock times; prices move in days of activity."""
        phase = MarketPhase.OPENING
        yield Bell(day.begins, phase)
        for at, index, is_news in self._arrivals.generate(day):
            while phase is not day.phase(at):
                phase, ticks = self._end_phase(day, phase, number)
                yield from ticks
            if is_news:
                self._prices.apply_news(index)
            yield from self._handle_arrival(
                index, at, activity_days(number, day.elapsed_activity(at)), phase, is_news
            )
        while phase is not MarketPhase.CLOSED:
            phase, ticks = self._end_phase(day, phase, number)
            yield from ticks

    def _end_phase(
        self, day: TradingDay, phase: MarketPhase, number: int
    ) -> tuple[MarketPhase, list[Tick]]:
        """Return the next phase, and the ticks between both: auction trades and the bell."""
        match phase:
            case MarketPhase.OPENING:
                trades = self._cross_auction(day.opens, activity_days(number, 0.0), quoting=True)
                return MarketPhase.TRADING, [*trades, Bell(day.opens, MarketPhase.TRADING)]
            case MarketPhase.TRADING:
                return MarketPhase.CLOSING, [Bell(day.closes, MarketPhase.CLOSING)]
            case MarketPhase.CLOSING | MarketPhase.CLOSED:
                trades = self._cross_auction(day.ends, activity_days(number, 1.0), quoting=False)
                return MarketPhase.CLOSED, [*trades, Bell(day.ends, MarketPhase.CLOSED)]

    def _handle_arrival(
        self, index: int, at: int, now: float, phase: MarketPhase, is_news: bool
    ) -> Iterator[Tick]:
        quoted = self._last_quotes[index]
        is_trading = phase is MarketPhase.TRADING
        if quoted is not None and is_trading and (is_news or self._rng.random() < TRADE_RATIO):
            yield self._make_trade(quoted, at)
        yield self._make_quote(
            index, at, now, WIDE_SPREAD_FACTOR if is_news or not is_trading else 1.0
        )

    def _make_trade(self, quoted: Quote, at: int) -> Trade:
        size = self._draw_size(TRADED_LOTS)
        if self._rng.random() < 0.5:
            return Trade(quoted.symbol, at, quoted.ask, min(size, quoted.ask_size), Side.BUY)
        return Trade(quoted.symbol, at, quoted.bid, min(size, quoted.bid_size), Side.SELL)

    def _make_quote(self, index: int, at: int, now: float, width: float) -> Quote:
        instrument = self.instruments[index]
        middle = self._prices.price(index, now)
        # The spread varies, and the price is rarely exactly in the middle.
        half = instrument.spread * width * (0.5 + self._rng.random()) / 2
        bid = max(1, math.floor(middle - half))
        ask = max(bid + 1, math.ceil(middle + half))
        sizes = self._draw_size(QUOTED_LOTS), self._draw_size(QUOTED_LOTS)
        quote = self._last_quotes[index] = Quote(
            instrument.symbol, at, bid / 100, ask / 100, *sizes
        )
        return quote

    def _cross_auction(self, at: int, now: float, quoting: bool) -> Iterator[Tick]:
        for index, each in enumerate(self.instruments):
            price = max(1, round(self._prices.price(index, now)))
            yield Trade(each.symbol, at, price / 100, self._draw_size(AUCTION_LOTS), Side.AUCTION)
            if quoting:
                yield self._make_quote(index, at, now, 1.0)

    def _draw_size(self, shape: tuple[float, float]) -> int:
        mean, deviation = shape
        lots = math.exp(mean + deviation * self._rng.gauss(0.0, 1.0))
        return LOT_SHARE_COUNT * min(max(1, round(lots)), LOT_COUNT_MAX)
