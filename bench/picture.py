"""The chart of the results: how many times better than the peer, on a logarithmic scale.

A bar to the right of 1× is an advantage of recado, for every unit; a black mark is the aim. The figures are in
columns beside the bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.aims import Result
from bench.plan import Plan
from bench.report import aim_text, commit, machine, number, significant, title
from bench.scenario import Comparison

HELD = "#2a7f62"
MISSED = "#c0392b"
WITHOUT_AIM = "#9fb0c0"
INK = "#1b1b1b"
FAINT = "#666666"
GRID = "#e3e3e3"

TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
# The positions of the columns, in widths of the chart, and their headings.
COLUMNS = ((1.09, "recado"), (1.24, "peer"), (1.26, "unit"), (1.56, "aim"))
LEFT, RIGHT = -0.55, 1.56

Axes = Any  # matplotlib is imported only in `draw`


def advantage(result: Result) -> float | None:
    """Return how many times less recado uses, or how many times more it does."""
    if not result.recado or not result.peer_value:
        return None
    if result.scenario.comparison.is_of_rate:
        return result.recado / result.peer_value
    return result.peer_value / result.recado


def aimed_advantage(result: Result) -> float | None:
    """Return the advantage that the aim requires."""
    if result.aim is None or result.peer_value is None:
        return None
    match result.scenario.comparison:
        case Comparison.TIMES_LESS | Comparison.TIMES_MORE:
            return result.aim
        case Comparison.SHARE_OF_PEER:
            return 1 / result.aim
        case Comparison.AT_MOST:
            return result.peer_value / result.aim
        case Comparison.AT_LEAST:
            return result.aim / result.peer_value


def colour(result: Result) -> str:
    if result.holds is None:
        return WITHOUT_AIM
    return HELD if result.holds else MISSED


def draw(bench: str, peer: str, results: Sequence[Result], plan: Plan, file: Path) -> None:
    """Write the chart. matplotlib is imported here because it is slow to import."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 1.2 + 0.34 * len(results)))
    for row, result in enumerate(results):
        draw_bar(axes, row, result)
        write_columns(axes, row, result)
    write_headings(axes, peer)
    shape_axes(axes, peer, results)
    write_title(axes, f"{bench}: recado vs {peer}", circumstances(plan))
    draw_legend(axes)
    # Tight: titles and columns are outside of the axes, whose size is set above.
    figure.savefig(file, dpi=130, bbox_inches="tight", pad_inches=0.2)
    pyplot.close(figure)


def write_title(axes: Axes, headline: str, subtitle: str) -> None:
    """Write the title at a distance in points, because the height of the chart depends on the scenarios."""
    place = {"xy": (LEFT, 1), "xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(headline, xytext=(0, 42), fontsize=14, fontweight="bold", **place)
    axes.annotate(subtitle, xytext=(0, 27), fontsize=8.5, color=FAINT, **place)


def draw_bar(axes: Axes, row: int, result: Result) -> None:
    value = advantage(result)
    if value is None:
        text, shade = "no peer", colour(result)
        if result.not_measured:
            text, shade = "not measured", MISSED
        axes.text(1.05, row, text, va="center", fontsize=9, color=shade)
        return
    axes.barh(row, value - 1, left=1, height=0.6, color=colour(result), zorder=2)
    aimed = aimed_advantage(result)
    if aimed is not None:
        axes.plot([aimed, aimed], [row - 0.4, row + 0.4], color=INK, linewidth=2, zorder=3)
    # Right of the bar, and of the mark of a missed aim.
    end = max(value, aimed or 0, 1) * 1.05
    axes.text(end, row, f"{significant(value)}×", va="center", fontsize=9, zorder=4)


def write_columns(axes: Axes, row: int, result: Result) -> None:
    texts = {
        "recado": number(result.recado),
        "peer": number(result.peer_value),
        "unit": result.scenario.unit,
        "aim": aim_text(result),
    }
    for place, column in COLUMNS:
        side = "left" if column == "unit" else "right"
        where = axes.get_yaxis_transform()
        axes.text(
            place, row, texts[column], transform=where, ha=side, va="center", fontsize=9, color=INK
        )


def write_headings(axes: Axes, peer: str) -> None:
    headings = {"recado": "recado", "peer": peer.split()[0], "unit": "", "aim": "aim"}
    for place, column in COLUMNS:
        where = axes.get_yaxis_transform()
        axes.text(
            place, -0.85, headings[column], transform=where, ha="right", fontsize=9, color=FAINT
        )


def shape_axes(axes: Axes, peer: str, results: Sequence[Result]) -> None:
    ends = [1.0]
    for result in results:
        ends += [end for end in (advantage(result), aimed_advantage(result)) if end]
    axes.set_xscale("log")
    # Space for the figure at the end of the longest bar.
    axes.set_xlim(min(ends) * 0.9, max(ends) * 1.8)
    shown = [tick for tick in TICKS if min(ends) <= tick <= max(ends) * 1.8]
    axes.set_xticks(shown, [f"{tick:g}×" for tick in shown])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(results)), [title(result) for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.axvline(1, color=INK, linewidth=1, zorder=1)
    axes.grid(axis="x", color=GRID, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    for edge in ("top", "right", "left"):
        axes.spines[edge].set_visible(False)
    axes.set_xlabel(f"times better than {peer}, logarithmic", loc="left", fontsize=9)


def draw_legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [
        Patch(color=HELD, label="aim met"),
        Patch(color=MISSED, label="aim missed"),
        Patch(color=WITHOUT_AIM, label="no aim"),
        Line2D([], [], color=INK, linewidth=2, label="the aim"),
    ]
    place = {"loc": "upper right", "bbox_to_anchor": (RIGHT, -0.03), "ncols": 4}
    axes.legend(handles=handles, fontsize=8.5, frameon=False, **place)


def circumstances(plan: Plan) -> str:
    host = machine()
    form = f"quick form, {plan.tolerance:.0%} tolerance" if plan.quick else "full form"
    return (
        f"{form}, medians of {plan.rounds} rounds, commit {commit()}, "
        f"{host['cores']} cores of {host['processor']}, Python {host['python']}"
    )
