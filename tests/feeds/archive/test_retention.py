"""Garbage collection: what is let go, what stays, and for how long a file outlives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.vector import Vector
from recado.feeds.views import LostRange

from .making import Clock, batch, publisher, rows_in

DAY = 86_400


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[ArchiveStore]:
    """Five files of 100 rows, a day apart, and 50 rows in the journal."""
    with ArchiveStore(tmp_path, "f", clock=clock, grace=600) as store:
        for day in range(5):
            store.append([batch(1, 1 + 100 * day, 100)])
            store.seal()
            clock.now += DAY
        store.append([batch(1, 501, 50)])
        store.sync()
        yield store


def on_disk(folder: Path) -> int:
    return len(list(folder.rglob("*.parquet")))


def first_in(folder: Path) -> int:
    with Archive.open(folder) as archive:
        assert [row[1] for row in rows_in(archive)] == list(range(archive.first_offset + 1, 551))
        return archive.first_offset


def test_without_limits_everything_stays(store: ArchiveStore, tmp_path: Path) -> None:
    report = store.apply_retention()
    assert (report.files, report.messages, report.removed, report.first) == (0, 0, 0, 0)
    assert first_in(tmp_path) == 0


@pytest.mark.parametrize(("days", "first"), [(10, 0), (3.5, 200), (1, 400), (0.5, 500)])
def test_by_age(store: ArchiveStore, tmp_path: Path, days: float, first: int) -> None:
    assert (
        store.apply_retention(RetentionLimits(max_age=days * DAY)).first
        == first
        == first_in(tmp_path)
    )


@pytest.mark.parametrize(
    ("most", "first"), [(1000, 0), (551, 0), (550, 0), (450, 100), (449, 100), (350, 200), (0, 500)]
)
def test_by_number_of_messages(store: ArchiveStore, tmp_path: Path, most: int, first: int) -> None:
    report = store.apply_retention(RetentionLimits(max_messages=most))
    assert report.first == report.messages == first == first_in(tmp_path)


def test_by_share_of_the_storage(
    store: ArchiveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recado.feeds.archive.layout.FolderTree.capacity_bytes", lambda _: 1_000_000
    )
    with Archive.open(tmp_path) as archive:
        files = archive.manifest.files
        journal = sum(path.stat().st_size for path in tmp_path.glob("journal/*.journal"))
    assert store.apply_retention(RetentionLimits(max_share=100.0)).files == 0
    used = sum(segment.end - segment.base for segment in store._journal.segments)
    assert used <= journal
    enough = used + sum(file.bytes for file in files[2:])
    assert store.apply_retention(RetentionLimits(max_share=enough / 1_000_000)).first == 200
    assert store.apply_retention(RetentionLimits(max_share=0)).first == 500
    assert first_in(tmp_path) == 500


def test_a_file_outlives_its_collection_for_the_grace_period(
    store: ArchiveStore, tmp_path: Path, clock: Clock
) -> None:
    with Archive.open(tmp_path) as before:
        assert store.apply_retention(RetentionLimits(max_messages=300)).files == 2
        assert on_disk(tmp_path) == 5
        clock.now += 599
        assert store.apply_retention().removed == 0
        assert [row[1] for row in rows_in(before)] == list(range(1, 551))
        clock.now += 1
        report = store.apply_retention()
        assert (report.files, report.removed) == (0, 2)
        assert report.freed > 0
        assert on_disk(tmp_path) == 3
        assert not (tmp_path / "data" / "date=2027-01-15").exists()
    assert store.apply_retention().removed == 0


def test_a_restart_does_not_shorten_the_grace_period(
    store: ArchiveStore, tmp_path: Path, clock: Clock
) -> None:
    store.apply_retention(RetentionLimits(max_messages=0), grace=1000)
    store.close()
    with ArchiveStore(tmp_path, "f", clock=clock, grace=0) as again:
        clock.now += 999
        assert (again.apply_retention().removed, on_disk(tmp_path)) == (0, 5)
        clock.now += 1
        assert (again.apply_retention().removed, on_disk(tmp_path)) == (5, 0)


def test_what_was_collected_counts_as_reached(
    store: ArchiveStore, tmp_path: Path, clock: Clock
) -> None:
    store.append([batch(2, 1, 1), LostRange(publisher(2), 2, 9)])
    store.seal()
    store.append([LostRange(publisher(3), 1, 2), batch(2, 10, 1)])
    store.seal()
    store.apply_retention(RetentionLimits(max_messages=0), grace=0)
    store.close()
    with ArchiveStore(tmp_path, "f", clock=clock) as again:
        known = Vector({publisher(1): 550, publisher(2): 10, publisher(3): 2})
        assert again.durable_vector == again.archive_state().vector == known
        answer = again.query(ArchiveQuery(Vector()))
        assert (answer.batches, answer.has_more, answer.reached) == ([], False, known)
        assert again.append([batch(1, 551, 1)]) == 553
