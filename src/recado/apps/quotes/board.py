"""What a ticker knows: the last of everything, for each symbol, from the ticks it was given."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from recado.apps.quotes.tick import Bell, Phase, Quote, Tick, Trade

TRAIL_TRADE_COUNT = 24  # trades that are drawn beside a price


@dataclass
class BoardRow:
    """One symbol. `first` is the day's first price, which changes are told against."""

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
        """Since the day's first trade, as a share of it."""
        return None if self.last is None or not self.first else self.last / self.first - 1

    @property
    def direction(self) -> int:
        """Of the last trade, compared with the one before: 1, 0 or -1."""
        if self.last is None or self.previous is None:
            return 0
        return (self.last > self.previous) - (self.last < self.previous)


class Board:
    def __init__(self) -> None:
        self.rows: dict[str, BoardRow] = {}
        self.phase: Phase | None = None
        self.at: int | None = None
        self.ticks = 0

    def update(self, tick: Tick) -> None:
        self.ticks += 1
        # Several publishers are not in step; the ticker's clock does not go back for one that is behind.
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
                if tick.phase is Phase.OPENING:
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
        """The most traded by turnover, always in the order of their names, so that rows do not jump about."""
        by_turnover = sorted(self.rows.values(), key=lambda row: -row.volume * (row.last or 0.0))
        return sorted(by_turnover[:count], key=lambda row: row.symbol)


def format_time(at: int) -> str:
    """A moment of the market, as its clock on the wall shows it."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    except OverflowError:  # anybody may publish
        return f"{at} µs"
    return f"{moment:%Y-%m-%d %H:%M:%S}"
