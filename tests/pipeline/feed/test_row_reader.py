"""Rows as Arrow batches of limited size, without a row missing."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from recado.feeds.archive.follower import ArchiveFollower
from recado.pipeline.feed import row_reader
from recado.pipeline.feed.batch_reader import TASK_ROW_COUNT_MAX, TASK_ROW_COUNT_MIN, count_tasks
from recado.pipeline.feed.position import RowRange, split_range
from tests.pipeline.making import filled, quotes


@pytest.mark.parametrize("most_bytes", [1, 2_000, 1 << 20])
@pytest.mark.parametrize("selector", [None, "sequence > 100"])
def test_all_rows_whatever_a_piece_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, selector: str | None
) -> None:
    monkeypatch.setattr(row_reader, "BATCH_BYTES", most_bytes)
    path = filled(tmp_path / "a", [[quotes(1, 1, 300)], [quotes(1, 301, 50)]], [quotes(1, 351, 9)])
    (part,) = split_range(ArchiveFollower(path), RowRange(7, 355), 1)
    columns = ["sequence", "headers", "properties", "body"]
    found = list(row_reader.read_rows(str(path), part, columns, selector))
    assert all(batch.num_rows == 1 or batch.nbytes <= 2 * most_bytes for batch in found)
    sequences = [each for batch in found for each in batch.column("sequence").to_pylist()]
    assert sequences == list(range(8 if selector is None else 101, 356))


def test_the_collector_is_spared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    times = []
    monkeypatch.setattr(gc, "freeze", lambda: times.append(1))
    row_reader.freeze_gc.cache_clear()
    row_reader.freeze_gc()
    row_reader.freeze_gc()
    assert times == [1]


@pytest.mark.parametrize(
    ("rows", "least", "cores", "count"),
    [
        (1, 1, 8, 1),
        (TASK_ROW_COUNT_MIN, 1, 8, 1),
        (2 * TASK_ROW_COUNT_MIN, 1, 8, 2),  # too few for each core
        (TASK_ROW_COUNT_MAX, 1, 2, 2),
        (5 * TASK_ROW_COUNT_MAX, 1, 2, 6),  # not five, of which one core would do the last
        (5 * TASK_ROW_COUNT_MAX + 1, 1, 3, 6),
        (40 * TASK_ROW_COUNT_MAX, 1, 16, 48),
        (10, 7, 2, 7),  # who asks gets them
        (5 * TASK_ROW_COUNT_MAX, 9, 2, 9),
    ],
)
def test_how_many_tasks(rows: int, least: int, cores: int, count: int) -> None:
    assert count_tasks(rows, least, cores) == count
