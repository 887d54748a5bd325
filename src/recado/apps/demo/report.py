"""The results of the demo: a table for the terminal, and a page with charts."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import charts
from .scenario import DemoResult

if TYPE_CHECKING:
    import pyarrow as pa

BAR_COLUMNS: Final = (
    ("symbol", "{}"),
    ("start", "{:%H:%M}"),
    ("open", "{:.2f}"),
    ("high", "{:.2f}"),
    ("low", "{:.2f}"),
    ("close", "{:.2f}"),
    ("volume", "{:,}"),
    ("trades", "{}"),
    ("vwap", "{:.3f}"),
    ("volatility", "{:.5f}"),
)
STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; max-width: 72rem; margin: 2rem auto }
img { max-width: 100%; margin: 1rem 0 } h1 { font-size: 1.5rem } .bad { color: #b3423a; font-weight: bold }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .15rem .8rem; text-align: right } th { font-weight: normal; color: #666 }
td:first-child, th:first-child { text-align: left } tr:nth-child(odd) td { background: #f6f6f6 }
"""


def last_bars(minutes: pa.Table) -> list[dict[str, Any]]:
    """Return the newest bar of each symbol."""
    found: dict[str, dict[str, Any]] = {}
    for bar in minutes.sort_by("start").to_pylist():
        found[bar["symbol"]] = bar
    return [found[symbol] for symbol in sorted(found)]


def format_bars(minutes: pa.Table) -> list[str]:
    """Format the newest bars as a text table."""
    rows = [[form.format(bar[name]) for name, form in BAR_COLUMNS] for bar in last_bars(minutes)]
    names = [name for name, _ in BAR_COLUMNS]
    widths = [max(len(row[i]) for row in [names, *rows]) for i in range(len(names))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [names, *rows]
    ]


def summarize(outcome: DemoResult) -> list[str]:
    counts = f"{outcome.bar_count:,} of a second, {outcome.minutes.num_rows:,} of a minute"
    told = [
        f"{outcome.ticks:,} ticks in {outcome.seconds:.0f} s; bars: {counts}",
        f"the recorder was killed at {outcome.killed_at:,} ticks, and has {outcome.recorded:,}",
    ]
    if outcome.problems:
        return [*told, *(f"WRONG: {each}" for each in outcome.problems)]
    return [*told, "every bar of the stream is the one that a batch makes of the archive"]


def write_page(outcome: DemoResult, folder: Path) -> Path:
    """Write the page with its charts, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    charts.draw_candle_chart(outcome.minutes, folder / "bars.png")
    charts.draw_timeline(outcome.samples, outcome.events, folder / "timeline.png")
    charts.draw_counters(outcome.counters, folder / "counters.png")
    told = "".join(
        f'<p class="{"bad" if line.startswith("WRONG") else ""}">{escape(line)}</p>'
        for line in summarize(outcome)
    )
    images = "".join(
        f'<img src="{name}.png" alt="{name}">' for name in ("bars", "timeline", "counters")
    )
    heads = "".join(f"<th>{name}</th>" for name, _ in BAR_COLUMNS)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{form.format(bar[name])}</td>" for name, form in BAR_COLUMNS)
        + "</tr>"
        for bar in last_bars(outcome.minutes)
    )
    page = folder / "index.html"
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>recado: bars of quotes</title>'
        f"<style>{STYLE}</style><h1>Bars of quotes, by Spark</h1>{told}{images}"
        f"<h2>The newest minute of each symbol</h2><table><tr>{heads}</tr>{rows}</table></html>\n",
        encoding="utf-8",
    )
    return page
