"""The scale study: its figures at a small size, its cache, its table and its plots."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench import overlay_scale
from bench.aims import load_aims
from bench.book import Book
from bench.overlay_scale import drawing
from bench.overlay_scale.study import Figures, examine
from bench.plan import Plan
from bench.scenario import Side


@pytest.fixture(scope="module")
def figures() -> Figures:
    return examine(40)


def test_the_figures_of_a_small_network(figures: Figures) -> None:
    assert figures.hops_excess <= 0.5
    assert figures.hops_max <= 3
    assert figures.misrouted == figures.misrouted_repaired == 0
    assert 15 <= figures.state_mean <= figures.state_max <= 39
    assert figures.join_messages > 16
    assert figures.topics_max_to_mean > 1
    # So few subscriber nodes are served by the owner.
    assert (figures.copies_max, figures.depth) == (39, 1)
    assert figures.evaluations_max == 100_000
    assert 0.9 < figures.repair_s <= figures.tables_s < 60
    assert figures.repair_messages > 0


def test_the_study_repeats_itself(figures: Figures) -> None:
    assert examine(40) == figures
    assert examine(40, seed=2) != figures


def test_finished_sizes_are_not_examined_again(
    tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay_scale, "examine", lambda size: figures)
    assert overlay_scale.load_or_examine(40, tmp_path) == figures
    monkeypatch.setattr(overlay_scale, "examine", lambda size: pytest.fail("examined again"))
    assert overlay_scale.load_or_examine(40, tmp_path) == figures
    # The record of other sources is not used.
    monkeypatch.setattr(overlay_scale, "fingerprint", lambda: "other")
    monkeypatch.setattr(overlay_scale, "examine", lambda size: Figures(size))
    assert overlay_scale.load_or_examine(40, tmp_path) == Figures(40)


def test_the_scenarios_and_aims(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(load_aims("overlay-scale", overlay_scale.SCENARIOS)) == {
        "hops-excess",
        "misrouted",
        "copies",
    }
    large = msgspec.structs.replace(figures, size=512, copies_max=16, hops_mean=2.0)
    monkeypatch.setattr(overlay_scale, "figures", lambda plan: [figures, large])
    book = Book()
    names = list(overlay_scale.run(Plan(quick=True), book))
    assert names == [scenario.name for scenario in overlay_scale.SCENARIOS]
    assert book.samples(names[0], Side.RECADO)[0].value == figures.hops_excess
    # Only networks in which a tree is needed count.
    assert book.samples("copies", Side.RECADO)[0].value == 16


def test_the_table_and_the_plots(figures: Figures, tmp_path: Path) -> None:
    table = drawing.write_table([figures], tmp_path / "table.md").read_text().splitlines()
    assert len(table) == 3
    assert table[2].startswith("| 40 | 1.33 |")
    assert len({line.count("|") for line in table}) == 1
    picture = drawing.draw([figures, Figures(80)], tmp_path / "plots.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
