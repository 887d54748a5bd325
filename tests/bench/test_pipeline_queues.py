"""The queues of the benchmark of pipelines, on few rows and on recado only."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from bench.book import Book
from bench.pipeline import brokers, queue, sink
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


def test_both_sides_are_warm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first sample; a compiler works for both."""
    asked: list[tuple[str, int]] = []

    def rate(_: Ground, format_: str, __: str, rows: int) -> float:
        asked.append((format_, rows))
        return 1.0

    ground = Ground(tmp_path, Mock())
    monkeypatch.setattr(brokers, "started", lambda *_: nullcontext(Mock(url="amqp://x")))
    plan, book = Plan(rounds=1, only=frozenset({"sink-recado"})), Book()
    assert list(brokers.measure(plan, book, ground, sink.BROKERS, 5_000, rate)) == ["sink-recado"]
    assert asked == [("amqp", 1_000), ("pika", 1_000), ("amqp", 5_000), ("pika", 5_000)]
