"""Figures from an archive: as by sorting, each run by itself, the best chosen, unfinished ones left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, quantiles

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.apps.trading.measurement import AskTiming, RunSummary
from recado.apps.trading.results import (
    SCHEMA,
    IncompleteRun,
    Series,
    best_by_latency,
    compute_figures,
    load_complete_runs,
    load_runs,
)
from recado.feeds.archive.errors import ArchiveError
from tests.apps.trading.stage import archive_of, asks_of, run_of


def rows(asks: Sequence[AskTiming]) -> pa.Table:
    columns = {name: [getattr(ask, name) for ask in asks] for name in SCHEMA.names}
    return pa.table(columns, schema=SCHEMA)


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=200))
def test_figures_are_those_of_the_textbook(took: list[int]) -> None:
    asks = [AskTiming("r", 0, number, 1000 * number, each) for number, each in enumerate(took)]
    found = compute_figures(rows(asks))
    cuts = quantiles(took, n=100, method="inclusive")
    expected = [cuts[share - 1] / 1e3 for share in (25, 50, 75, 95)]
    assert [found.p25, found.p50, found.p75, found.p95] == pytest.approx(expected)
    assert found.mean == pytest.approx(fmean(took) / 1e3)
    ended = max(ask.began + ask.nanoseconds for ask in asks)
    assert found.seconds == pytest.approx(ended / 1e9)
    assert found.rate == pytest.approx(len(took) / found.seconds)


def test_each_run_has_its_own_asks(tmp_path: Path) -> None:
    runs = [run_of("slow", asks=40), run_of("fast", asks=30)]
    slow, fast = asks_of("slow", 40, 2_000_000), asks_of("fast", 30, 1_000_000)
    mixed = [ask for pair in zip(slow, fast, strict=False) for ask in pair] + slow[30:]
    archive_of(tmp_path, [*mixed, *runs])
    found = load_complete_runs(tmp_path)
    assert [each.run for each in found] == runs
    assert [each.figures.mean for each in found] == pytest.approx([2_000.0, 1_000.0], rel=0.1)


def test_a_run_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    archive_of(tmp_path, [*asks_of("whole", 30), run_of("whole", asks=30), *asks_of("cut", 7)])
    assert [each.run.run for each in load_complete_runs(tmp_path)] == ["whole"]


def test_an_archive_that_misses_asks_of_a_run_is_told(tmp_path: Path) -> None:
    """And the other runs of the same folder are not lost by it."""
    told: list[AskTiming | RunSummary] = [*asks_of("short", 29), run_of("short", asks=30)]
    told += [*asks_of("whole", 30), run_of("whole", asks=30)]
    told += [*asks_of("double", 30), *asks_of("double", 1), run_of("double", asks=30)]
    told += [*asks_of("again", 29), *asks_of("again", 1), run_of("again", asks=30)]
    archive_of(tmp_path, told)
    first, whole, double, again = load_runs(tmp_path)
    assert isinstance(first, IncompleteRun)
    assert str(first) == "of the 30 asks of run short the archive has 29"
    assert isinstance(double, IncompleteRun)
    assert str(double) == "of the 30 asks of run double the archive has 31, 1 of them twice"
    assert isinstance(again, IncompleteRun)
    assert str(again) == "of the 30 asks of run again the archive has 30, 1 of them twice"
    assert load_complete_runs(tmp_path) == [whole]


def test_an_archive_of_nothing(tmp_path: Path) -> None:
    archive_of(tmp_path, [])
    assert load_complete_runs(tmp_path) == []
    with pytest.raises(ArchiveError):
        load_complete_runs(tmp_path / "nowhere")


def test_the_run_with_the_least_mean_is_chosen(tmp_path: Path) -> None:
    means = {"a": 3_000_000, "b": 1_000_000, "c": 2_000_000}
    told: list[AskTiming | RunSummary] = []
    for name, mean in means.items():
        told += [*asks_of(name, 30, mean), run_of(name, asks=30)]
    told += [*asks_of("d", 30, 9_000_000), run_of("d", asks=30, latency_us=2000)]
    told += [*asks_of("short", 20, 1_000), run_of("short", asks=20)]
    archive_of(tmp_path, told)
    best = best_by_latency(load_complete_runs(tmp_path))
    assert {
        latency: [each.run.run for each in chosen.values()] for latency, chosen in best.items()
    } == {
        0: ["b"],
        2000: ["d"],
    }
    assert list(best[0]) == [(Series("amqp", "recado"), 1)]
