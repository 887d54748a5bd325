"""Damage of every kind of file: an error that names the file and the place in it, never rows that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.errors import CorruptArchiveError
from recado.feeds.archive.records import RECORD_TYPE
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.vector import Vector
from recado.feeds.views import View, ViewId, ViewRecord
from recado.journal.check import check_segments, repair_segments
from recado.journal.disk import FolderDisk
from recado.journal.journal import Journal

from .damaging import flip
from .making import batch, publisher, rows_in, rows_of

VIEW = ViewRecord(View(ViewId(1, publisher(9)), ()), Vector(), ())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive with 300 rows in a file and 300 in the journal."""
    with ArchiveStore(tmp_path, "f") as store:
        store.append([batch(1, 1, 300), VIEW])
        store.seal()
        store.append([batch(1, 301, 300), VIEW])
        store.sync()
    return tmp_path


def data_of(folder: Path) -> Path:
    (path,) = folder.glob("data/*/*.parquet")
    return path


def journal_of(folder: Path) -> Path:
    return max(folder.glob("journal/*.journal"))


def read(folder: Path) -> list[object]:
    with Archive.open(folder) as archive:
        return [*rows_in(archive), *archive.records()]


def in_pieces(folder: Path) -> list[object]:
    with Archive.open(folder) as archive:
        return [
            row for each in archive.dictionary_batches(max_bytes=300) for row in each.to_pylist()
        ]


def damage_in(
    folder: Path, right: list[object], reading: Callable[[Path], list[object]] = read
) -> CorruptArchiveError | None:
    """None if everything is read as it was."""
    try:
        found = reading(folder)
    except CorruptArchiveError as error:
        return error
    assert found == right
    return None


def flips(path: Path, count: int) -> Iterator[int]:
    return iter(Random(5).sample(range(8 * path.stat().st_size), count))


def test_a_flipped_bit_in_a_file_is_found_and_named(folder: Path) -> None:
    path, right = data_of(folder), read(folder)
    found = 0
    for bit in flips(path, 120):
        flip(path, bit)
        with Archive.open(folder) as archive:
            (damage,) = archive.verify()
            assert damage.file == str(path)
        error = damage_in(folder, right)
        if error is not None:  # else the bit is in what nobody reads, such as the head of a page
            found += 1
            assert error.file == str(path)
            assert error.location == "the footer" or error.location.startswith("row group ")
        flip(path, bit)
    assert found > 60
    assert read(folder) == right


def test_a_flipped_bit_is_found_by_who_reads_a_few_rows_at_a_time(folder: Path) -> None:
    path, right = data_of(folder), in_pieces(folder)
    found = []
    for bit in flips(path, 120):
        flip(path, bit)
        found.append(damage_in(folder, right, in_pieces))
        flip(path, bit)
    damages = [error for error in found if error is not None]
    assert len(damages) > 60
    assert {error.file for error in damages} == {str(path)}


def test_a_flipped_bit_in_the_journal_is_found_and_named(folder: Path) -> None:
    path, right = journal_of(folder), read(folder)
    for bit in flips(path, 60):
        flip(path, bit)
        error = damage_in(folder, right)
        if error is not None:  # else it is before the tail, in what was sealed
            assert error.file == str(path)
            assert error.location.startswith("position ")
        flip(path, bit)


def test_the_writer_does_not_go_on_behind_damage(folder: Path) -> None:
    path = journal_of(folder)
    flip(path, 8 * (path.stat().st_size - 500))
    with pytest.raises(
        CorruptArchiveError, match=rf"{path.name} is damaged at position \d+: the checksum"
    ):
        ArchiveStore(folder, "f")
    flip(path, 8 * (path.stat().st_size - 500))
    ArchiveStore(folder, "f").close()


def test_a_file_that_is_missing_is_named(folder: Path) -> None:
    path = data_of(folder)
    path.unlink()
    with pytest.raises(
        CorruptArchiveError, match=f"{path.name} is damaged at byte 0: the file is missing"
    ):
        read(folder)
    with Archive.open(folder) as archive:
        assert [damage.reason for damage in archive.verify()] == ["the file is missing"]
    with ArchiveStore(folder, "f") as store:
        store.query(ArchiveQuery(Vector()))
        assert [damage.error.reason for damage in store.take_new_damages()] == [
            "the file is missing"
        ]


def test_a_file_that_is_cut_short_is_named(folder: Path) -> None:
    path = data_of(folder)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CorruptArchiveError, match=f"{path.name} is damaged at the footer"):
        read(folder)
    with Archive.open(folder) as archive:
        assert [damage.location for damage in archive.verify()] == [f"byte {path.stat().st_size}"]


def test_another_file_in_its_place_is_not_taken_for_it(folder: Path, tmp_path: Path) -> None:
    with ArchiveStore(tmp_path / "other", "f") as store:
        store.append([batch(1, 1, 299)])
        store.seal()
    data_of(tmp_path / "other").replace(data_of(folder))
    with pytest.raises(CorruptArchiveError, match=r"\d+ bytes instead of \d+"):
        read(folder)


def test_a_journal_that_is_missing_is_named(folder: Path) -> None:
    journal_of(folder).unlink()
    with pytest.raises(
        CorruptArchiveError, match=r"journal is damaged at position \d+: the file is missing"
    ):
        read(folder)
    with pytest.raises(CorruptArchiveError, match="the file is missing"):
        ArchiveStore(folder, "f")


def test_a_journal_that_was_taken_away_whole_begins_anew(folder: Path) -> None:
    for path in folder.glob("journal/*"):
        path.unlink()
    with ArchiveStore(folder, "f") as store:
        assert store.next_offset == 300
        store.append([batch(1, 301, 5)])
        store.sync()
        with Archive.open(folder) as archive:
            assert [row[1] for row in rows_in(archive)] == list(range(1, 306))


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"", "unknown payload of type 0 and 0 bytes"),
        (bytes([9]) * 40, "unknown payload of type 9"),
        (bytes([RECORD_TYPE]) + bytes(16) + b"\xc1", ""),
    ],
)
def test_a_whole_record_without_sense_is_named(folder: Path, payload: bytes, what: str) -> None:
    journal = Journal(FolderDisk(folder / "journal"))
    list(journal.recover())
    journal.append(payload)
    journal.close()
    with pytest.raises(CorruptArchiveError, match=rf"\.journal is damaged at position \d+: {what}"):
        read(folder)
    with pytest.raises(CorruptArchiveError, match=rf"\.journal is damaged at position \d+: {what}"):
        ArchiveStore(folder, "f")


def test_a_repaired_journal_has_a_gap_and_goes_on(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f") as store:
        store.append([batch(1, 1, 10)])
        store.seal()
        for number in range(3):
            store.append([batch(2, 1 + 10 * number, 10)])
        store.sync()
    path = journal_of(tmp_path)
    flip(path, 8 * (path.read_bytes().index(b"2/15") + 1))
    disk = FolderDisk(tmp_path / "journal")
    repair_segments(disk, list(check_segments(disk)))
    expected = [*range(10), *range(10, 20), *range(30, 40)]
    with ArchiveStore(tmp_path, "f") as store:
        for sealed in (False, True):
            with Archive.open(tmp_path) as archive:
                assert [each.offset for each in archive.messages()] == expected
                assert [each.offset for each in archive.messages(15, 32)] == [
                    *range(15, 20),
                    30,
                    31,
                ]
            answer = store.query(ArchiveQuery(Vector()))
            assert [row[1] for row in rows_of(answer.batches)][10:] == [
                *range(1, 11),
                *range(21, 31),
            ]
            assert (answer.offset, answer.has_more) == (40, False)
            if not sealed:
                store.append([VIEW])
                store.seal()
        assert store.append([batch(2, 31, 1)]) == 41


def test_rows_that_go_back_in_the_journal_are_told(folder: Path) -> None:
    with ArchiveStore(folder, "f") as store:
        store._next_offset -= 5
        store.append([batch(2, 1, 4)])
    with pytest.raises(CorruptArchiveError, match=r"position \d+: row 595 after row 599"):
        ArchiveStore(folder, "f")


def test_a_damaged_file_does_not_keep_others_from_being_sealed(folder: Path) -> None:
    path = data_of(folder)
    path.write_bytes(path.read_bytes()[:-20])
    with ArchiveStore(folder, "f") as store:
        store.append([batch(2, 1, 300)])
        store.seal()
        assert store.append([batch(2, 301, 1)]) == 901
    with Archive.open(folder) as archive:
        assert [file.rows for file in archive.manifest.files] == [300, 600]
        assert [damage.file for damage in archive.verify()] == [str(path)]
        assert [each.offset for each in archive.messages(300)] == list(range(300, 901))
