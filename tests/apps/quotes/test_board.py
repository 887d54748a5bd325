"""The board: its state after ticks, and how the screen renders it."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from recado.apps.quotes.board import TRAIL_TRADE_COUNT, Board, format_time
from recado.apps.quotes.screen import render_board, render_sparkline
from recado.apps.quotes.tick import Bell, MarketPhase, Quote, Side, Trade

AT = 1_772_445_600_000_000


def board_of(*prices: float, symbol: str = "PETR4") -> Board:
    board = Board()
    for number, price in enumerate(prices):
        board.update(Trade(symbol, AT + number, price, 100, Side.BUY))
    return board


def test_a_row_has_the_last_of_everything() -> None:
    board = board_of(10.0, 11.0)
    board.update(Quote("PETR4", AT + 5, 10.9, 11.1, 300, 200))
    row = board.rows["PETR4"]
    assert (row.last, row.previous, row.first) == (11.0, 10.0, 10.0)
    assert (row.bid, row.ask, row.bid_size, row.ask_size) == (10.9, 11.1, 300, 200)
    assert (row.volume, row.trades, row.direction) == (200, 2, 1)
    assert row.change is not None
    assert round(row.change, 9) == 0.1
    assert (board.ticks, board.at) == (3, AT + 5)


def test_the_clock_does_not_go_back_for_a_publisher_that_is_behind() -> None:
    board = board_of(10.0, 11.0)
    board.update(Trade("VALE3", AT - 10, 60.0, 100, Side.SELL))
    assert board.at == AT + 1


def test_a_new_day_counts_anew() -> None:
    board = board_of(10.0, 11.0)
    board.update(Bell(AT + 10, MarketPhase.OPENING))
    row = board.rows["PETR4"]
    assert (row.volume, row.trades, row.change, row.last) == (0, 0, None, 11.0)
    assert board.phase is MarketPhase.OPENING


def test_only_the_busiest_have_a_place_in_the_order_of_their_names() -> None:
    board = board_of(1.0, symbol="QUIET")
    for symbol, price in (("ZULU4", 50.0), ("ALFA3", 60.0)):
        board.update(Trade(symbol, AT, price, 1000, Side.BUY))
    assert [row.symbol for row in board.busiest(2)] == ["ALFA3", "ZULU4"]


def test_the_trail_is_bounded_and_between_its_lowest_and_highest() -> None:
    assert render_sparkline(board_of(1.0, 3.0, 2.0).rows["PETR4"]) == "▁█▅"
    assert render_sparkline(board_of(2.0, 2.0).rows["PETR4"]) == "▁▁"
    assert render_sparkline(Board()._row("VALE3")) == ""
    assert len(render_sparkline(board_of(*range(1, 100)).rows["PETR4"])) == TRAIL_TRADE_COUNT


def test_the_screen_shows_the_rows_that_fit() -> None:
    board = board_of(38.0, 38.5)
    board.update(Quote("PETR4", AT, 38.4, 38.6, 300, 1_200))
    board.update(Quote("VALE3", AT, 61.0, 61.1, 100, 100))
    board.update(Bell(AT, MarketPhase.TRADING))
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(render_board(board, "quotes", "3 ticks", height=20))
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "quotes  2026-03-02 10:00:00  trading" in shown
    (petr,) = [line for line in shown.splitlines() if line.startswith("PETR4")]
    assert petr.split() == (
        ["PETR4", "300", "38.40", "38.60", "1,200", "38.50", "▲", "+1.32%", "200", "2", "▁█"]
    )
    (vale,) = [line for line in shown.splitlines() if line.startswith("VALE3")]
    assert vale.split()[5:] == ["–", "·", "–", "0", "0"]


def test_the_clock_of_the_market() -> None:
    assert format_time(AT) == "2026-03-02 10:00:00"


def test_a_moment_that_no_clock_shows() -> None:
    assert format_time(0) == "1970-01-01 00:00:00"
    assert format_time(2**63 - 1) == f"{2**63 - 1} µs"
