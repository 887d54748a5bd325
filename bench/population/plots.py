"""The plots: figures over the number of clients, and the plots of the slides with both brokers in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.aims import Result
from bench.picture import FAINT, GRID, INK, circumstances
from bench.plan import Plan
from bench.population import clients, consumers
from bench.population.crowd import MARKS_COUNT
from bench.population.published import CAPTURES, CONSUMERS_REFUSED_COUNT, CPU_COURSES
from bench.population.tables import Measured
from bench.scenario import Side

Axes = Any  # matplotlib is imported only in `draw_all`

OURS, THEIRS, PUBLISHED = "#2a7f62", "#d2691e", "#7a7a7a"
COLOURS = {Side.RECADO: OURS, Side.PEER: THEIRS}
SIZE_INCHES = (10, 7.2)
FEW_DECADES = 300.0


def draw_all(peer: str, results: Sequence[Result], plan: Plan, file: Path) -> list[Path]:
    """Draw all plots. matplotlib is imported here because it is slow to import."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    measured = Measured(results)
    files = [file.with_suffix(".png"), file.with_name(f"{file.stem}-slides.png")]
    for draw, target in zip((draw_steady, draw_slides), files, strict=True):
        figure, panels = pyplot.subplots(2, 2, figsize=SIZE_INCHES)
        title = draw(panels.flat, measured, peer)
        figure.text(0.01, 0.965, title, fontsize=14, fontweight="bold", color=INK)
        figure.text(0.01, 0.94, circumstances(plan), fontsize=8.5, color=FAINT)
        draw_legend(figure, peer, with_slides=draw is draw_slides)
        figure.tight_layout(rect=(0, 0.04, 1, 0.93), h_pad=2.5, w_pad=2.5)
        figure.savefig(target, dpi=110)
        pyplot.close(figure)
    return files


def draw_steady(panels: Sequence[Axes], measured: Measured, peer: str) -> str:
    figures = (
        (clients.CPU, "CPU, % of a core"),
        (clients.MEMORY, "memory, MB"),
        (clients.PACKETS, "packets per second"),
        (clients.BYTES, "bytes per second"),
    )
    counts = measured.counts_of("steady-cpu", clients.POPULATIONS)
    for axes, (figure, title) in zip(panels, figures, strict=True):
        names = [clients.name_of(clients.STEADY, figure, count) for count in counts]
        draw_lines(axes, title, counts, names, measured)
        axes.set_xlabel("clients", loc="left", fontsize=9)
    return "30 % consumers, 70 % publishers, one message per second and publisher"


def draw_slides(panels: Sequence[Axes], measured: Measured, peer: str) -> str:
    first, second, third, last = panels
    for axes, count in ((first, 10), (second, 100)):
        draw_course(axes, count, measured)
    counts = measured.counts_of("arriving-cpu", clients.POPULATIONS)
    names = [clients.name_of(clients.ARRIVING, clients.PACKETS, count) for count in counts]
    draw_lines(third, "packets per client", counts, names, measured, logarithmic=False)
    places = [place for place, count in enumerate(counts) if count in CAPTURES]
    published = [CAPTURES[count].packets / count for count in counts if count in CAPTURES]
    third.plot(places, published, color=PUBLISHED, marker="s", linestyle="--", zorder=2)
    third.set_ylim(bottom=0)
    third.set_xlabel("clients", loc="left", fontsize=9)
    counts = measured.counts_of("consumers-join", consumers.COUNTS)
    names = [f"consumers-join-{count}" for count in counts]
    draw_lines(last, "ms until all consumers of one queue are there", counts, names, measured)
    last.set_xlabel("consumers", loc="left", fontsize=9)
    refused = sum(count < CONSUMERS_REFUSED_COUNT for count in counts)
    end = last.get_xlim()[1]
    last.axvspan(refused - 0.3, end, color=PUBLISHED, alpha=0.15, linewidth=0)
    last.text(
        end - 0.06,
        0.04,
        "not supported by the\nserver of the slides",
        transform=last.get_xaxis_transform(),
        ha="right",
        va="bottom",
        fontsize=8.5,
        color=FAINT,
    )
    return "The measurements of the slides: publishers arrive one by one"


def draw_lines(
    axes: Axes,
    title: str,
    counts: Sequence[int],
    names: Sequence[str],
    measured: Measured,
    logarithmic: bool = True,
) -> None:
    """Draw a line for each broker; the numbers of clients are equally far apart."""
    ends = {}
    for side in Side:
        points = [
            (place, value)
            for place, name in enumerate(names)
            if (value := measured.figure(name, side))
        ]
        if not points:
            continue
        places, values = zip(*points, strict=True)
        axes.plot(places, values, color=COLOURS[side], marker="o", zorder=3)
        ends[side] = points[-1]
    label_ends(axes, ends)
    shape(axes, title)
    if logarithmic:
        set_logarithmic(axes)
    axes.set_xticks(range(len(counts)), [f"{count:,}" for count in counts])
    axes.set_xlim(-0.3, len(counts) - 0.2)  # with space for the last values


def set_logarithmic(axes: Axes) -> None:
    """Scale the axis by decades, with ticks between them if it has only a few."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0,) if high / low > FEW_DECADES else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")


def label_ends(axes: Axes, ends: dict[Side, tuple[int, float]]) -> None:
    """Write the last value right of each line, the larger one above and the smaller one below."""
    by_value = sorted(ends, key=lambda side: ends[side][1])
    for position, side in enumerate(by_value):
        place, value = ends[side]
        above = position == len(by_value) - 1
        axes.annotate(
            f"{value:,.0f}" if value >= 10 else f"{value:.2g}",
            (place, value),
            xytext=(8, 1 if above else -1),
            textcoords="offset points",
            ha="left",
            va="bottom" if above else "top",
            fontsize=8.5,
            color=COLOURS[side],
        )
    axes.margins(y=0.1)


def draw_course(axes: Axes, count: int, measured: Measured) -> None:
    """Draw the CPU over the publishers that have come, as in the slides."""
    publishers = count - round(clients.CONSUMERS_SHARE * count)
    name = clients.name_of(clients.ARRIVING, clients.CPU, count)
    marks_count = min(MARKS_COUNT, publishers)
    steps = range(1, marks_count + 1)
    for side in Side:
        values = [measured.detail(name, side, f"cpu_percent_{step}") for step in steps]
        places = [step / marks_count * publishers for step in steps]
        points = [(place, value) for place, value in zip(places, values, strict=True) if value]
        if points:
            axes.plot(*zip(*points, strict=True), color=COLOURS[side], marker="o", zorder=3)
    axes.plot(
        [share * publishers for share, _ in CPU_COURSES[count]],
        [percent for _, percent in CPU_COURSES[count]],
        color=PUBLISHED,
        marker="s",
        linestyle="--",
        zorder=2,
    )
    shape(axes, f"CPU with {count} clients, %")
    set_logarithmic(axes)
    axes.set_xlabel("publishers that have come", loc="left", fontsize=9)


def shape(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.grid(axis="y", color=GRID, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def draw_legend(figure: Any, peer: str, with_slides: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=OURS, marker="o", label="recado"),
        Line2D([], [], color=THEIRS, marker="o", label=peer),
    ]
    if with_slides:
        label = "slides (CPU: of the whole virtual machine, values of the text)"
        handles.append(Line2D([], [], color=PUBLISHED, marker="s", linestyle="--", label=label))
    figure.legend(handles=handles, loc="lower left", ncols=3, fontsize=9, frameon=False)
