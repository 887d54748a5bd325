"""Compaction and retention by Spark keep all rows of an archive; an archive in use is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.errors import CorruptArchiveError
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.pipeline.builtin.maintenance import ArchiveInUseError, Compaction, compact, retire
from tests.feeds.archive.making import Clock, batch, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = 86_400


def made(folder: Path, clock: Clock) -> None:
    """Two days with files of 400, 300, 200 … rows, as merging leaves them, and some rows in the tail."""
    with ArchiveStore(folder, "f", clock=clock) as store:
        sequence = 1
        for _ in range(2):
            for rows in (400, 300, 200, 100):
                store.append([batch(1, sequence, rows)])
                sequence += rows
                store.seal()
            clock.now += DAY
        store.append([batch(1, sequence, 50)])
        store.sync()


def contents(folder: Path) -> tuple[list[Any], int]:
    with Archive.open(folder) as archive:
        assert not list(archive.verify())
        return [*rows_in(archive)], len(archive.parquet_paths)


def test_compaction(spark: SparkSession, tmp_path: Path) -> None:
    made(tmp_path, Clock())
    before, files = contents(tmp_path)
    assert files == 8
    with Archive.open(tmp_path) as reading:
        assert compact(spark, tmp_path, 700) == Compaction(8, 4, 2000)
        assert [*rows_in(reading)] == before  # who was reading finishes
    assert contents(tmp_path) == (before, 4)
    assert compact(spark, tmp_path) == Compaction(4, 2, 2000)
    assert compact(spark, tmp_path) == Compaction(2, 2, 0)
    assert contents(tmp_path) == (before, 2)
    with ArchiveStore(tmp_path, "f") as store:  # it goes on where it was
        store.append([batch(1, 2051, 10)])
    after, _ = contents(tmp_path)
    assert after[:2050] == before
    assert len(after) == 2060


def test_what_fails_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    made(tmp_path, Clock())
    with Archive.open(tmp_path) as archive:
        damaged = Path(archive.parquet_paths[1])
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    manifest = (tmp_path / "manifest.json").read_bytes()
    names = sorted(tmp_path.rglob("*.parquet*"))
    with pytest.raises(Exception, match=CorruptArchiveError.__name__):
        compact(spark, tmp_path)
    assert (tmp_path / "manifest.json").read_bytes() == manifest
    assert sorted(tmp_path.rglob("*.parquet*")) == names


def test_retention(spark: SparkSession, tmp_path: Path) -> None:
    clock, folder, cold = Clock(1_700_000_000.0), tmp_path / "archive", tmp_path / "cold"
    made(folder, clock)
    before, _ = contents(folder)
    report = retire(spark, folder, RetentionLimits(max_messages=1_100), str(cold), grace=0)
    assert (report.files, report.messages, report.first) == (3, 900, 900)
    again = retire(spark, folder, RetentionLimits(max_messages=1_100), str(cold))
    assert (again.files, again.removed) == (0, 3)
    after, _ = contents(folder)
    assert after == before[900:]
    found: Any = duckdb.sql(
        f"""SELECT "offset", "sequence", routing_key, body
        FROM read_parquet('{cold}/*/*/*.parquet') ORDER BY "offset" """
    )
    moved = found.fetchall()
    assert [row[1:] for row in moved] == [row[1:] for row in before[:900]]
    assert [row[0] for row in moved] == list(range(900))
    aged = retire(spark, folder, RetentionLimits(max_age=1.0))
    assert aged.messages == 1_100
    assert contents(folder)[0] == before[2000:]  # the tail always stays


def test_two_archives_retire_to_one_table(spark: SparkSession, tmp_path: Path) -> None:
    for name, rows in (("one", 30), ("other", 20)):
        with ArchiveStore(tmp_path / name, "f") as store:
            store.append([batch(1, 1, rows)])
            store.seal()
        retire(spark, tmp_path / name, RetentionLimits(max_messages=0), str(tmp_path / "cold"))
    found: Any = duckdb.sql(f"SELECT count(*) FROM read_parquet('{tmp_path}/cold/*/*/*.parquet')")
    assert found.fetchall() == [(50,)]


def test_an_archive_at_work_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f") as store:
        store.append([batch(1, 1, 10)])
        for attempt in (
            lambda: compact(spark, tmp_path),
            lambda: retire(spark, tmp_path, RetentionLimits()),
        ):
            with pytest.raises(ArchiveInUseError, match="in use by another process; stop it first"):
                attempt()
