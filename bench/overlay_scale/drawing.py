"""The table and the plots of the study, beside the figures that the authors of Pastry and Scribe have published."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any, Final

from .study import Figures

OWN = "#2a7f62"
OTHER = "#c0392b"
GRID = "#e3e3e3"
FAINT = "#666666"

PASTRY_REPAIR_HOPS: Final = (5_000, 2.73, 2.96, 2.74)
"""Rowstron & Druschel 2001, section 3.4: nodes; mean hops before 10 % fail, after that without repair, and repaired."""

COLUMNS: Final = (
    "nodes",
    "log16 N",
    "mean hops",
    "most hops",
    "messages per join",
    "nodes known, mean",
    "most",
    "topics, max/mean",
    "copies by busiest node",
    "levels",
    "selectors at busiest node",
    "leaf sets right after",
    "tables clean after",
    "messages per failed node",
    "hops unrepaired",
    "hops repaired",
)


def row(figures: Figures) -> list[str]:
    return [
        f"{figures.size:,}",
        f"{log(figures.size, 16):.2f}",
        f"{figures.hops_mean:.2f}",
        f"{figures.hops_max}",
        f"{figures.join_messages:.0f}",
        f"{figures.state_mean:.0f}",
        f"{figures.state_max}",
        f"{figures.topics_max_to_mean:.1f}",
        f"{figures.copies_max}",
        f"{figures.depth}",
        f"{figures.evaluations_max:,}",
        f"{figures.repair_s:.2f} s",
        f"{figures.tables_s:.2f} s",
        f"{figures.repair_messages:.0f}",
        f"{figures.hops_unrepaired:.2f}",
        f"{figures.hops_repaired:.2f}",
    ]


def write_table(found: Sequence[Figures], file: Path) -> Path:
    lines = [COLUMNS, ["---:"] * len(COLUMNS), *map(row, found)]
    file.write_text("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return file


def draw(found: Sequence[Figures], file: Path) -> Path:
    """Write the plots. matplotlib is imported here because it is slow to import."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, ((hops, state), (copies, repair)) = pyplot.subplots(2, 2, figsize=(10, 7.5))
    sizes = [each.size for each in found]
    _shape(hops, sizes, "mean hops of a lookup")
    hops.plot(sizes, [each.hops_mean for each in found], "o-", color=OWN, label="recado")
    hops.plot(sizes, [log(size, 16) for size in sizes], "--", color=FAINT, label="log16 N")
    nodes, before, unrepaired, _ = PASTRY_REPAIR_HOPS
    hops.plot([nodes], [before], "s", color=OTHER, label="Pastry (2001)")
    hops.plot([nodes], [unrepaired], "^", color=OTHER, label="Pastry, 10 % failed, unrepaired")
    hops.plot(
        sizes,
        [each.hops_unrepaired for each in found],
        "^:",
        color=OWN,
        label="recado, 10 % failed, unrepaired",
    )
    _shape(state, sizes, "nodes known, and messages per join")
    state.plot(sizes, [each.state_mean for each in found], "o-", color=OWN, label="nodes known")
    state.plot(sizes, [each.state_max for each in found], "^:", color=OWN, label="most nodes known")
    state.plot(
        sizes, [each.join_messages for each in found], "s-", color=OTHER, label="messages per join"
    )
    _shape(copies, sizes, "a notification to 100,000 subscribers: busiest node")
    copies.plot(sizes, [each.copies_max for each in found], "o-", color=OWN, label="copies sent")
    copies.plot(
        sizes,
        [each.evaluations_max for each in found],
        "s-",
        color=OTHER,
        label="selectors evaluated",
    )
    copies.set_yscale("log")
    _shape(repair, sizes, "seconds after 10 % fail at once")
    repair.plot(sizes, [each.repair_s for each in found], "o-", color=OWN, label="leaf sets right")
    repair.plot(sizes, [each.tables_s for each in found], "s-", color=OTHER, label="tables clean")
    for axes in (hops, state, repair):
        axes.set_ylim(bottom=0)
    for axes in (hops, state, copies, repair):
        axes.legend(fontsize=8, frameon=False)
    figure.suptitle("Networks of growing size, in simulation", fontweight="bold")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return file


def _shape(axes: Any, sizes: Sequence[int], title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(color=GRID)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
