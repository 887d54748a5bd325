"""The queues of the benchmark of pipelines, on few rows and on recado only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.book import Book
from bench.pipeline import queue, sink
from bench.pipeline.ground import Ground
from bench.plan import Plan
from bench.scenario import Side

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_it_measures_both_sides(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (queue, sink):
        monkeypatch.setattr(module, "ROWS", 200)
    plan, book = Plan(rounds=1, only=frozenset({"queue-recado", "sink-recado"})), Book()
    with Ground(tmp_path, spark) as ground:
        names = [name for group in (queue, sink) for name in group.run(plan, book, ground)]
    assert names == ["queue-recado", "sink-recado"]
    for name in names:
        for side in Side:
            (sample,) = book.samples(name, side)
            assert sample.value > 0
