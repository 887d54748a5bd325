"""The results as a picture: how many times less than the peer, on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.aims import Result
from bench.plan import Plan
from bench.report import aim_text, commit, machine, number
from bench.scenario import Comparison

HELD = "#2a7f62"
MISSED = "#c0392b"
WITHOUT_AIM = "#8da2b5"
AIM = "#1b1b1b"


def advantage(result: Result) -> float | None:
    """How many times less recado takes than the peer; what all scenarios have in common."""
    if result.recado is None or result.peer_value is None or result.recado <= 0:
        return None
    return result.peer_value / result.recado


def aimed_advantage(result: Result) -> float | None:
    """The same for the aim, so that a mark on the bar's own scale can show it."""
    if result.aim is None or result.peer_value is None:
        return None
    match result.scenario.comparison:
        case Comparison.TIMES_LESS:
            return result.aim
        case Comparison.SHARE_OF_PEER:
            return 1 / result.aim
        case Comparison.AT_MOST:
            return result.peer_value / result.aim


def colour(result: Result) -> str:
    if result.holds is None:
        return WITHOUT_AIM
    return HELD if result.holds else MISSED


def draw(bench: str, peer: str, results: Sequence[Result], plan: Plan, file: Path) -> None:
    """Writes the picture. matplotlib is imported here: only the end of a benchmark needs it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    drawn = [(result, advantage(result)) for result in results]
    shown = [(result, value) for result, value in drawn if value is not None]
    figure, axes = pyplot.subplots(figsize=(11, 1.9 + 0.42 * max(len(shown), 1)))
    for row, (result, value) in enumerate(shown):
        axes.barh(row, value - 1, left=1, height=0.62, color=colour(result), zorder=2)
        aimed = aimed_advantage(result)
        if aimed is not None:
            axes.plot([aimed, aimed], [row - 0.42, row + 0.42], color=AIM, linewidth=2, zorder=3)
        note = f"{value:.3g}×   {number(result.recado)} : {number(result.peer_value)}"
        note += f" {result.scenario.unit}"
        if result.aim is not None:
            note += f"   (aim {aim_text(result)})"
        axes.text(max(value, aimed or 0, 1) * 1.06, row, note, va="center", fontsize=8.5)
    axes.set_yticks(range(len(shown)), [result.scenario.title for result, _ in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    values = [value for _, value in shown] + [aimed_advantage(r) or 1 for r, _ in shown]
    # Room on the right for the text beside the longest bar.
    axes.set_xlim(min([0.8, *values]) * 0.9, max([10, *values]) * 12)
    axes.axvline(1, color=AIM, linewidth=0.8, zorder=1)
    ticks = [1, 2, 5, 10, 20, 50, 100, 200]
    axes.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7, zorder=0)
    axes.tick_params(axis="y", length=0)
    for edge in ("top", "right", "left"):
        axes.spines[edge].set_visible(False)
    axes.set_xlabel(f"how many times less recado takes than {peer} (logarithmic)")
    form = "quick form" if plan.quick else "full form"
    host = machine()
    axes.set_title(
        f"recado and {peer}: benchmark “{bench}”\n",
        loc="left",
        fontsize=13,
        fontweight="bold",
    )
    axes.text(
        0,
        1.01,
        f"{form}, medians of {plan.rounds} rounds, commit {commit()}, "
        f"{host['cores']} cores of {host['processor']}, Python {host['python']}",
        transform=axes.transAxes,
        fontsize=8.5,
        color="#555555",
    )
    axes.legend(
        handles=[
            Patch(color=HELD, label="aim holds"),
            Patch(color=MISSED, label="aim missed"),
            Patch(color=WITHOUT_AIM, label="no aim"),
            Line2D([], [], color=AIM, linewidth=2, label="the aim"),
        ],
        loc="lower right",
        fontsize=8.5,
        frameon=False,
    )
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
