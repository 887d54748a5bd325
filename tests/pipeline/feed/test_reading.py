"""Rows as Arrow batches: in pieces that are not too large, and all of them."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from recado.feeds.archive.following import Follower
from recado.pipeline.feed import reading
from recado.pipeline.feed.batch import LEAST_ROWS, TASK_ROWS, task_count
from recado.pipeline.feed.offsets import Span, parts
from tests.pipeline.making import filled, quotes


@pytest.mark.parametrize("most_bytes", [1, 2_000, 1 << 20])
@pytest.mark.parametrize("selector", [None, "sequence > 100"])
def test_all_rows_whatever_a_piece_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, selector: str | None
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", most_bytes)
    path = filled(tmp_path / "a", [[quotes(1, 1, 300)], [quotes(1, 301, 50)]], [quotes(1, 351, 9)])
    (part,) = parts(Follower(path), Span(7, 355), 1)
    columns = ["sequence", "headers", "properties", "body"]
    found = list(reading.rows(str(path), part, columns, selector))
    assert all(batch.num_rows == 1 or batch.nbytes <= 2 * most_bytes for batch in found)
    sequences = [each for batch in found for each in batch.column("sequence").to_pylist()]
    assert sequences == list(range(8 if selector is None else 101, 356))


def test_the_collector_is_spared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    monkeypatch.setattr(gc, "freeze", lambda: times.append(1))
    reading.spare_the_collector.cache_clear()
    reading.spare_the_collector()
    reading.spare_the_collector()
    assert times == [1]


@pytest.mark.parametrize(
    ("rows", "least", "cores", "count"),
    [
        (1, 1, 8, 1),
        (LEAST_ROWS, 1, 8, 1),
        (2 * LEAST_ROWS, 1, 8, 2),  # too few for each core
        (TASK_ROWS, 1, 2, 2),
        (5 * TASK_ROWS, 1, 2, 6),  # not five, of which one core would do the last
        (5 * TASK_ROWS + 1, 1, 3, 6),
        (40 * TASK_ROWS, 1, 16, 48),
        (10, 7, 2, 7),  # who asks gets them
        (5 * TASK_ROWS, 9, 2, 9),
    ],
)
def test_how_many_tasks(rows: int, least: int, cores: int, count: int) -> None:
    assert task_count(rows, least, cores) == count
