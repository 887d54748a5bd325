"""Draw the charts: candles with volume and volatility, the progress of the programs, and the broker's
counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .monitor import Sample

if TYPE_CHECKING:
    import pyarrow as pa

INK: Final = "#1b1b1b"
FAINT: Final = "#666666"
GRID: Final = "#e3e3e3"
UP, DOWN, LINE = "#2a7f62", "#b3423a", "#c8641e"
BLUE: Final = "#2a6fb0"
SYMBOL_COUNT: Final = 4  # symbols in the candle chart

Axes = Any  # matplotlib is imported only where it draws


def draw_candle_chart(table: pa.Table, file: Path) -> None:
    """Draw the one-minute bars of the symbols with the highest turnover."""
    pyplot = _load_pyplot()
    by_symbol: dict[str, list[dict[str, Any]]] = {}
    for bar in table.sort_by("start").to_pylist():
        by_symbol.setdefault(bar["symbol"], []).append(bar)
    turnover = {
        symbol: sum(bar["vwap"] * bar["volume"] for bar in bars)
        for symbol, bars in by_symbol.items()
    }
    shown = sorted(turnover, key=lambda symbol: -turnover[symbol])[:SYMBOL_COUNT]
    figure, axes = pyplot.subplots(
        nrows=3,
        ncols=len(shown),
        figsize=(4.2 * len(shown), 6.6),
        sharex=True,
        squeeze=False,
        height_ratios=[4, 1.2, 1.2],
    )
    for (prices, volumes, volatility), symbol in zip(axes.T, shown, strict=True):
        bars = by_symbol[symbol]
        _draw_candles(prices, bars)
        times = [bar["start"] for bar in bars]
        volumes.bar(
            times, [bar["volume"] / 1000 for bar in bars], CANDLE_WIDTH_DAYS, color=BLUE, alpha=0.7
        )
        volatility.plot(times, [1e4 * bar["volatility"] for bar in bars], color=LINE, linewidth=1.4)
        prices.set_title(symbol, loc="left", fontsize=11, fontweight="bold", color=INK)
        volatility.set_ylim(bottom=0)
    for row, label in zip(axes, ("price, vwap", "volume, k", "volatility, bp"), strict=True):
        row[0].set_ylabel(label, fontsize=9)
        for each in row:
            _style_axes(each)
    for each in axes[-1]:
        _format_time_axis(each)
    _save_figure(figure, file, "Bars of one minute", pyplot)


CANDLE_WIDTH_DAYS: Final = 0.7 / 24 / 60  # 70 % of a minute; matplotlib measures dates in days


def _draw_candles(axes: Axes, bars: Sequence[dict[str, Any]]) -> None:
    for bar in bars:
        colour = UP if bar["close"] >= bar["open"] else DOWN
        axes.vlines(bar["start"], bar["low"], bar["high"], color=colour, linewidth=0.9)
        low, high = sorted((bar["open"], bar["close"]))
        height = max(high - low, 0.002)
        axes.bar(bar["start"], height, CANDLE_WIDTH_DAYS, bottom=low, color=colour)
    times, means = [bar["start"] for bar in bars], [bar["vwap"] for bar in bars]
    axes.plot(times, means, color=LINE, linewidth=1.0, alpha=0.8, zorder=3)
    axes.use_sticky_edges = False  # otherwise a candle at the edge looks cut off
    axes.margins(y=0.08)


def draw_timeline(
    samples: Sequence[Sample], events: Sequence[tuple[float, str]], file: Path
) -> None:
    """Draw the ticks archived, recorded and read by Spark over time."""
    pyplot = _load_pyplot()
    figure, axes = pyplot.subplots(figsize=(10.5, 4.4))
    seconds = [moment.seconds for moment in samples]
    for name, label, colour in (
        ("archived", "in the archive", INK),
        ("recorded", "in the recorder's database", BLUE),
        ("computed", "read by Spark", LINE),
    ):
        values = [getattr(moment, name) for moment in samples]
        axes.plot(seconds, values, label=label, color=colour, linewidth=1.8)
    top = max((moment.archived for moment in samples), default=1)
    for number, (when, what) in enumerate(events):
        axes.axvline(when, color=FAINT, linewidth=0.8, linestyle=":")
        height = top * (1.06 + 0.07 * (number % 3))
        axes.annotate(what, (when, height), (4, 0), textcoords="offset points", fontsize=8.5)
    axes.set_ylim(0, 1.3 * top)
    axes.set_xlabel("seconds", fontsize=9)
    axes.set_ylabel("ticks", fontsize=9)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    _style_axes(axes)
    axes.legend(fontsize=9, frameon=False, loc="lower right")
    _save_figure(figure, file, "Progress of archive, recorder and Spark", pyplot)


def draw_counters(table: pa.Table, file: Path) -> None:
    """Draw the broker's metrics."""
    pyplot = _load_pyplot()
    lines = table.sort_by("start").to_pylist()
    times = [line["start"] for line in lines]
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6))
    rates = {"published": INK, "delivered": BLUE, "acknowledged": LINE}
    for name, colour in rates.items():
        values = [line[f"{name}_per_second"] for line in lines]
        axes[0].plot(times, values, label=name, color=colour, linewidth=1.5)
    axes[0].legend(fontsize=8.5, frameon=False)
    axes[1].plot(times, [line["memory_used"] / 2**20 for line in lines], color=BLUE, linewidth=1.5)
    axes[2].plot(times, [line["processors"] for line in lines], color=LINE, linewidth=1.5)
    titles = ("AMQP messages per second (each with many ticks)", "memory, MiB", "CPU cores used")
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, loc="left", fontsize=10, color=FAINT)
        each.set_ylim(bottom=0)
        _style_axes(each)
        _format_time_axis(each, seconds=True)
    _save_figure(figure, file, "Broker metrics", pyplot)


# --- common parts -------------------------------------------------------------------------------------


def _load_pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _style_axes(axes: Axes) -> None:
    axes.tick_params(labelsize=8.5)
    axes.grid(color=GRID, zorder=0)
    axes.set_axisbelow(True)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def _format_time_axis(axes: Axes, *, seconds: bool = False) -> None:
    from matplotlib import dates as typed

    dates: Any = typed  # some of its functions have no type annotations
    axes.xaxis.set_major_locator(dates.AutoDateLocator(minticks=3, maxticks=6))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S" if seconds else "%H:%M"))


def _save_figure(figure: Any, file: Path, headline: str, pyplot: Any) -> None:
    figure.suptitle(headline, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
