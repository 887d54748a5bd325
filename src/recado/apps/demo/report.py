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
CHART_TEXTS: Final = {
    "bars": "Bars of one minute",
    "timeline": "Progress",
    "counters": "Broker metrics",
}
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


def summarize(result: DemoResult) -> list[str]:
    """Return the result as lines of text; failed checks start with `FAILED`."""
    counts = f"{result.bar_count:,} of a second, {result.minutes.num_rows:,} of a minute"
    lines = [
        f"{result.ticks:,} ticks in {result.seconds:.0f} s; bars: {counts}",
        f"the recorder was killed at {result.killed_at:,} ticks and now has {result.recorded:,}",
    ]
    if result.problems:
        return [*lines, *(f"FAILED: {each}" for each in result.problems)]
    return [*lines, "every bar of the stream equals the bar that a batch computes from the archive"]


def write_page(result: DemoResult, folder: Path) -> Path:
    """Write the page with its charts, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    charts.draw_candle_chart(result.minutes, folder / "bars.png")
    charts.draw_timeline(result.samples, result.events, folder / "timeline.png")
    charts.draw_counters(result.counters, folder / "counters.png")
    summary = "".join(
        f'<p class="{"bad" if line.startswith("FAILED") else ""}">{escape(line)}</p>'
        for line in summarize(result)
    )
    charts_html = "".join(
        f'<img src="{name}.png" alt="{text}">' for name, text in CHART_TEXTS.items()
    )
    heads = "".join(f"<th>{name}</th>" for name, _ in BAR_COLUMNS)
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{form.format(bar[name])}</td>" for name, form in BAR_COLUMNS)
        + "</tr>"
        for bar in last_bars(result.minutes)
    )
    page = folder / "index.html"
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>recado demo: bars computed from '
        f"quotes</title>"
        f"<style>{STYLE}</style><h1>Bars computed from quotes by Spark</h1>{summary}{charts_html}"
        f"<h2>Newest minute of each symbol</h2><table><tr>{heads}</tr>{rows}</table></html>\n",
        encoding="utf-8",
    )
    return page
