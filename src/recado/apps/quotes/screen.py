"""How the ticker looks in a terminal. Only this module imports rich, an extra: `pip install recado[quotes]`."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recado.apps.quotes.board import Board, Row, clock

UP, DOWN, STILL = "green", "red", "bright_black"
BARS = "▁▂▃▄▅▆▇█"
ARROWS = {1: ("▲", UP), 0: ("·", STILL), -1: ("▼", DOWN)}

# Above and below the rows: the headline, the two lines of the heading, the edges, the foot.
OTHER_LINES = 6
NOTHING = Text("–", style=STILL)


def ticker(board: Board, headline: str, foot: str, height: int) -> RenderableType:
    """The whole screen, for a terminal of so many lines."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("symbol", style="bold")
    for column in ("bid size", "bid", "ask", "ask size", "last", "", "change", "volume", "trades"):
        table.add_column(column, justify="right")
    table.add_column("")
    for row in board.busiest(max(1, height - OTHER_LINES)):
        table.add_row(*cells(row))
    return Group(title(board, headline), Text(), table, Text(), Text(foot, style=STILL))


def title(board: Board, headline: str) -> Text:
    text = Text(headline, style="bold")
    if board.at is not None:
        text.append(f"  {clock(board.at)}", style="cyan")
    if board.phase is not None:
        text.append(f"  {board.phase.value}", style="yellow")
    return text


def cells(row: Row) -> Iterable[RenderableType]:
    arrow, shade = ARROWS[row.direction]
    yield row.symbol
    yield Text(f"{row.bid_size:,}", style=STILL)
    yield price(row.bid)
    yield price(row.ask)
    yield Text(f"{row.ask_size:,}", style=STILL)
    yield NOTHING if row.last is None else Text(f"{row.last:,.2f}", style=shade)
    yield Text(arrow, style=shade)
    yield change(row.change)
    yield f"{row.volume:,}"
    yield f"{row.trades:,}"
    yield Text(trail(row), style=STILL)


def price(value: float | None) -> Text:
    return NOTHING if value is None else Text(f"{value:,.2f}")


def change(share: float | None) -> Text:
    if share is None:
        return NOTHING
    shade = STILL if abs(share) < 0.00005 else UP if share > 0 else DOWN
    return Text(f"{share:+.2%}", style=shade)


def trail(row: Row) -> str:
    """The last trades as bars between the lowest and the highest of them."""
    if not row.trail:
        return ""
    low, high = min(row.trail), max(row.trail)
    if low == high:
        return BARS[0] * len(row.trail)
    scale = (len(BARS) - 1) / (high - low)
    return "".join(BARS[round((each - low) * scale)] for each in row.trail)
