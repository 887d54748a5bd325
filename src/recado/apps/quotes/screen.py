"""Render the ticker in a terminal, with rich, which is an extra: `pip install recado[quotes]`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recado.apps.quotes.board import Board, BoardRow, format_time

_UP_STYLE, _DOWN_STYLE, _NEUTRAL_STYLE = "green", "red", "bright_black"
_SPARK_BARS = "▁▂▃▄▅▆▇█"
_ARROWS = {1: ("▲", _UP_STYLE), 0: ("·", _NEUTRAL_STYLE), -1: ("▼", _DOWN_STYLE)}

# Headline, table header, margins and footer.
_OTHER_LINE_COUNT = 6
_EMPTY = Text("–", style=_NEUTRAL_STYLE)


def render_board(board: Board, headline: str, foot: str, height: int) -> RenderableType:
    """Render the whole screen for a terminal of this height."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("symbol", style="bold")
    for column in ("bid size", "bid", "ask", "ask size", "last", "", "change", "volume", "trades"):
        table.add_column(column, justify="right")
    table.add_column("")
    for row in board.busiest(max(1, height - _OTHER_LINE_COUNT)):
        table.add_row(*_row_cells(row))
    return Group(
        _render_title(board, headline), Text(), table, Text(), Text(foot, style=_NEUTRAL_STYLE)
    )


def _render_title(board: Board, headline: str) -> Text:
    text = Text(headline, style="bold")
    if board.at is not None:
        text.append(f"  {format_time(board.at)}", style="cyan")
    if board.phase is not None:
        text.append(f"  {board.phase.value}", style="yellow")
    return text


def _row_cells(row: BoardRow) -> Iterable[RenderableType]:
    arrow, shade = _ARROWS[row.direction]
    yield row.symbol
    yield Text(f"{row.bid_size:,}", style=_NEUTRAL_STYLE)
    yield _render_price(row.bid)
    yield _render_price(row.ask)
    yield Text(f"{row.ask_size:,}", style=_NEUTRAL_STYLE)
    yield _EMPTY if row.last is None else Text(f"{row.last:,.2f}", style=shade)
    yield Text(arrow, style=shade)
    yield _render_change(row.change)
    yield f"{row.volume:,}"
    yield f"{row.trades:,}"
    yield Text(render_sparkline(row), style=_NEUTRAL_STYLE)


def _render_price(value: float | None) -> Text:
    return _EMPTY if value is None else Text(f"{value:,.2f}")


def _render_change(share: float | None) -> Text:
    if share is None:
        return _EMPTY
    shade = _NEUTRAL_STYLE if abs(share) < 0.00005 else _UP_STYLE if share > 0 else _DOWN_STYLE
    return Text(f"{share:+.2%}", style=shade)


def render_sparkline(row: BoardRow) -> str:
    """Render the last prices as bars between the lowest and the highest of them."""
    if not row.trail:
        return ""
    low, high = min(row.trail), max(row.trail)
    if low == high:
        return _SPARK_BARS[0] * len(row.trail)
    scale = (len(_SPARK_BARS) - 1) / (high - low)
    return "".join(_SPARK_BARS[round((each - low) * scale)] for each in row.trail)
