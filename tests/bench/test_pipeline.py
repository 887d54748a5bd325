"""The benchmark of pipelines, on few rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.aims import load_aims
from bench.book import Book
from bench.pipeline import SCENARIOS, stream, table
from bench.pipeline.ground import BATCH, Ground, batch
from bench.plan import Plan
from bench.scenario import Side
from recado.feeds.block import BODY_INDEX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_every_scenario_has_an_aim() -> None:
    assert set(load_aims("pipeline", SCENARIOS)) == {scenario.name for scenario in SCENARIOS}


def test_batches_are_of_the_size_and_follow_each_other() -> None:
    last: dict[bytes, int] = {}
    for first in range(0, 20 * BATCH, BATCH):
        made = batch(first, 100)
        assert made.first == last.get(made.publisher, 0) + 1
        last[made.publisher] = made.last
        assert {len(body) for body in made.block.values(BODY_INDEX)} == {100}
    assert len(last) == 4


def test_it_measures_both_sides(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "ROWS", 6 * BATCH)
    monkeypatch.setattr(stream, "ROWS", {100: 6 * BATCH})
    plan, book = Plan(rounds=1, only=frozenset({"table", "stream-100"})), Book()
    with Ground(tmp_path, spark) as ground:
        names = [name for group in (table, stream) for name in group.run(plan, book, ground)]
    assert names == ["table", "stream-100"]
    for name in names:
        for side in Side:
            (sample,) = book.samples(name, side)
            assert sample.value > 0
