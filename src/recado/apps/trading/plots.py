"""The plots of chapter 7 of the dissertation: asks per second by number of clients, our figures beside the
published ones.

7.2   without added latency       7.3   with latency       7.4   both in one plot
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from . import published_figures
from .figures import TransportKind
from .results import BestRuns, Series
from .tables import format_milliseconds, sort_key

TEXT_COLOUR: Final = "#1b1b1b"
TITLE_COLOUR: Final = "#666666"
GRID_COLOUR: Final = "#e3e3e3"
TCP_COLOUR: Final = "#2a6fb0"
AMQP_COLOURS: Final = ("#c8641e", "#7b4ea3", "#2a7f62")
LOW_LATENCY_STYLE: Final = {"linestyle": "-", "marker": "o"}
HIGH_LATENCY_STYLE: Final = {"linestyle": "--", "marker": "s"}

Axes = Any  # matplotlib is imported only where it draws
Points = Mapping[int, float]
Curves = list[tuple[str, str, dict[str, str], Points]]
"""Label, colour, style, and asks per second by number of clients."""


def draw_figures(by_latency: dict[int, BestRuns], folder: Path) -> list[Path]:
    """Draw the plots for which there are results, and return their files."""
    low = by_latency.get(0)
    latency = max(by_latency, default=0)
    high = by_latency[latency] if latency else None
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    theirs_low = published_curves(published_figures.WIRED, "", LOW_LATENCY_STYLE)
    theirs_high = published_curves(published_figures.WIRELESS, "", LOW_LATENCY_STYLE)
    added = f"round trips {format_milliseconds(latency)} longer"
    if low:
        file = folder / "figure-7.2.png"
        ours = curves(low, "", LOW_LATENCY_STYLE)
        draw(file, "Figure 7.2: asks per second", "no latency added", ours, "wired", theirs_low)
        drawn.append(file)
    if high:
        file = folder / "figure-7.3.png"
        ours = curves(high, "", LOW_LATENCY_STYLE)
        headline = "Figure 7.3: asks per second, with latency"
        draw(file, headline, added, ours, "wireless", theirs_high)
        drawn.append(file)
    if low and high:
        file = folder / "figure-7.4.png"
        ours = curves(low, ", 0 ms", LOW_LATENCY_STYLE) + curves(
            high, f", {format_milliseconds(latency)}", HIGH_LATENCY_STYLE
        )
        theirs = published_curves(published_figures.WIRED, ", wired", LOW_LATENCY_STYLE)
        theirs += published_curves(published_figures.WIRELESS, ", wireless", HIGH_LATENCY_STYLE)
        headline = "Figure 7.4: low and high latency"
        draw(file, headline, f"no latency added, and {added}", ours, "both networks", theirs)
        drawn.append(file)
    return drawn


def curves(best: BestRuns, suffix: str, style: dict[str, str]) -> Curves:
    found: dict[Series, dict[int, float]] = {}
    for (series, clients), each in sorted(best.items(), key=lambda item: item[0][1]):
        found.setdefault(series, {})[clients] = each.figures.rate
    amqp = iter(AMQP_COLOURS * len(found))
    return [
        (
            each.label + suffix,
            TCP_COLOUR if each.is_point_to_point else next(amqp),
            style,
            found[each],
        )
        for each in sorted(found, key=sort_key)
    ]


def published_curves(
    table: published_figures.PublishedTable, suffix: str, style: dict[str, str]
) -> Curves:
    names = {TransportKind.TCP: "Netty", TransportKind.AMQP: "AMQP, RabbitMQ"}
    colours = {TransportKind.TCP: TCP_COLOUR, TransportKind.AMQP: AMQP_COLOURS[0]}
    return [
        (
            name + suffix,
            colours[transport],
            style,
            {clients: row.rate for (each, clients), row in table.items() if each is transport},
        )
        for transport, name in names.items()
    ]


def draw(file: Path, headline: str, added: str, ours: Curves, network: str, theirs: Curves) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4.6), sharex=True)
    draw_axes(left, f"recado, {added}", ours)
    draw_axes(right, f"Carmo 2012, {network}", theirs)
    left.set_ylabel("asks per second", fontsize=9)
    figure.suptitle(headline, x=0.065, ha="left", fontsize=13, fontweight="bold", color=TEXT_COLOUR)
    figure.tight_layout(w_pad=3)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def draw_axes(axes: Axes, title: str, lines: Curves) -> None:
    for label, colour, style, points in lines:
        axes.plot(
            *(list(points), list(points.values())),
            label=label, color=colour, linewidth=1.8, markersize=4.5, zorder=3, **style,
        )  # fmt: skip
    ticks = sorted({clients for *_, points in lines for clients in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(each) for each in ticks])
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("clients", fontsize=9)
    axes.set_title(title, loc="left", fontsize=10, color=TITLE_COLOUR)
    axes.tick_params(labelsize=9)
    axes.grid(color=GRID_COLOUR, zorder=0)
    axes.set_axisbelow(True)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
    # Below the plot: the free space between the lines depends on the results.
    position = {
        "loc": "upper left",
        "bbox_to_anchor": (-0.02, -0.14),
        "ncols": 2 if len(lines) > 3 else 3,
    }
    axes.legend(fontsize=8.5, frameon=False, **position)
