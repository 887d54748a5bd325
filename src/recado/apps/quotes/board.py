"""The state of a ticker: the last values of each symbol."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Tick, Trade

TRAIL_TRADE_COUNT = 24  # trades in the sparkline


@dataclass
class BoardRow:
    """One symbol. `first` is the first price of the day, to which changes are relative."""

    symbol: str
    bid: float | None = None
    ask: float | None = None
    bid_size: int = 0
    ask_size: int = 0
    last: float | None = None
    previous: float | None = None
    first: float | None = None
    volume: int = 0
    trades: int = 0
    trail: deque[float] = field(default_factory=lambda: deque(maxlen=TRAIL_TRADE_COUNT))

    @property
    def change(self) -> float | None:
        """The change since the first trade of the day, as a ratio."""
        return None if self.last is None or not self.first else self.last / self.first - 1

    @property
    def direction(self) -> int:
        """The direction of the last price change: 1, 0 or -1."""
        if self.last is None or self.previous is None:
            return 0
        return (self.last > self.previous) - (self.last < self.previous)


class Board:
    """The rows of all symbols, and the phase and time of the market."""

    def __init__(self) -> None:
        self.rows: dict[str, BoardRow] = {}
        self.phase: MarketPhase | None = None
        self.at: int | None = None
        self.ticks = 0

    def update(self, tick: Tick) -> None:
        self.ticks += 1
        # Publishers are not synchronised; the clock does not go back for one that lags.
        self.at = tick.at if self.at is None else max(self.at, tick.at)
        match tick:
            case Quote():
                row = self._row(tick.symbol)
                row.bid, row.ask = tick.bid, tick.ask
                row.bid_size, row.ask_size = tick.bid_size, tick.ask_size
            case Trade():
                row = self._row(tick.symbol)
                row.previous, row.last = row.last, tick.price
                row.first = tick.price if row.first is None else row.first
                row.volume += tick.size
                row.trades += 1
                row.trail.append(tick.price)
            case Bell():
                self.phase = tick.phase
                if tick.phase is MarketPhase.OPENING:
                    self._new_day()

    def _row(self, symbol: str) -> BoardRow:
        row = self.rows.get(symbol)
        if row is None:
            row = self.rows[symbol] = BoardRow(symbol)
        return row

    def _new_day(self) -> None:
        for row in self.rows.values():
            row.first, row.volume, row.trades = None, 0, 0

    def busiest(self, count: int) -> list[BoardRow]:
        """Return the rows with the highest turnover, ordered by symbol so that rows do not jump."""
        by_turnover = sorted(self.rows.values(), key=lambda row: -row.volume * (row.last or 0.0))
        return sorted(by_turnover[:count], key=lambda row: row.symbol)


def format_time(at: int) -> str:
    """Format a time of the market."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    except OverflowError:  # the message may come from any publisher
        return f"{at} µs"
    return f"{moment:%Y-%m-%d %H:%M:%S}"
