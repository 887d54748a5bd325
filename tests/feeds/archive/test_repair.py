"""Damaged Parquet files are restored from the journal or from another archive, with the same offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from recado.feeds.archive import manifest as manifests
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.repair import RepairResult
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveEntry
from recado.feeds.views import FoundRange, LostRange
from recado.journal.disk import FolderFile

from .damaging import damage_column, damage_footer, file_of
from .making import batch, publisher

Damaging = Callable[[Path], None]
Rows = list[tuple[int, bytes, int, str, bytes]]

DAMAGES: dict[str, Damaging] = {
    "body": lambda path: damage_column(path, "body"),
    "publisher": lambda path: damage_column(path, "publisher"),
    "sequence": lambda path: damage_column(path, "sequence"),
    "footer": damage_footer,
    "missing": Path.unlink,
}
ENTRIES: list[ArchiveEntry] = [
    batch(1 + number % 2, 1 + number // 2 * 50, 50) for number in range(12)
]


def make(
    folder: Path, entries: list[ArchiveEntry] = ENTRIES, *, keep_journal: bool = False
) -> Path:
    """An archive with all of it in one Parquet file."""
    with ArchiveStore(folder, "f") as store:
        for entry in entries:
            store.append([entry])
        store.seal()
    if not keep_journal:  # as if its segment had been dropped since
        for path in folder.glob("journal/*"):
            path.unlink()
        ArchiveStore(folder, "f").close()
    return folder


def repaired(folder: Path, *others: Path, drop: bool = False) -> RepairResult:
    with ArchiveStore(folder, "f") as store:
        sources = [Archive.open(other) for other in others]
        (file,) = store.files
        result = store.repair(file, sources, drop=drop)
        for source in sources:
            source.close()
    return result


def rows(folder: Path) -> Rows:
    with Archive.open(folder) as archive:
        return [(m.offset, m.publisher, m.sequence, m.key, m.body) for m in archive.messages()]


def table(folder: Path) -> pa.Table:
    with Archive.open(folder) as archive:
        return pa.Table.from_batches(archive.batches()).combine_chunks()


def damages(folder: Path) -> list[str]:
    with Archive.open(folder) as archive:
        return [error.reason for error in archive.verify()]


@pytest.mark.parametrize("damage", DAMAGES)
def test_rows_are_restored_from_the_journal(tmp_path: Path, damage: str) -> None:
    folder = make(tmp_path, keep_journal=True)
    before = rows(folder)
    DAMAGES[damage](file_of(folder))
    assert len(damages(folder)) == 1
    result = repaired(folder)
    assert (result.damaged_rows, result.journal_rows, result.lost) == (600, 600, [])
    assert damages(folder) == []
    assert rows(folder) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_rows_are_restored_from_other_archives(tmp_path: Path, damage: str) -> None:
    folder, empty = make(tmp_path / "1"), make(tmp_path / "empty", [batch(3, 1, 5)])
    other = make(tmp_path / "2", [batch(4, 1, 100), *ENTRIES], keep_journal=True)
    before = rows(folder)
    DAMAGES[damage](file_of(folder))
    result = repaired(folder, empty, other)
    assert (result.journal_rows, result.archive_rows, result.lost) == (0, 600, [])
    assert damages(folder) == []
    assert rows(folder) == before


def test_rows_of_an_archive_that_has_sealed_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path / "1")
    before = rows(folder)
    with ArchiveStore(tmp_path / "2", "f") as store:
        store.append(ENTRIES)
        store.sync()
        damage_column(file_of(folder), "body")
        assert repaired(folder, tmp_path / "2").archive_rows == 600
    assert rows(folder) == before


def test_two_row_groups_of_a_file_are_restored(tmp_path: Path) -> None:
    """One of them has lost the names of its messages, too."""
    entries: list[ArchiveEntry] = [
        batch(1 + number % 2, 1 + number // 2 * 5_000, 5_000) for number in range(11)
    ]
    folder, other = make(tmp_path / "1", entries), make(tmp_path / "2", entries)
    before = table(folder)
    damage_column(file_of(folder), "sequence", 0)
    damage_column(file_of(folder), "body", 1)
    result = repaired(folder, other)
    assert (result.damaged_rows, result.archive_rows, result.lost) == (
        55_000,
        55_000,
        [],
    )
    assert table(folder).equals(before)


def test_bytes_that_no_reader_needs_are_made_right(tmp_path: Path) -> None:
    folder = make(tmp_path)
    before = rows(folder)
    path = file_of(folder)
    content = bytearray(path.read_bytes())
    content[0] ^= 1  # of the magic number at the beginning
    path.write_bytes(content)
    assert len(damages(folder)) == 1
    assert repaired(folder).damaged_rows == 0
    assert damages(folder) == []
    assert rows(folder) == before


def test_without_all_rows_the_file_stays_unless_they_are_dropped(tmp_path: Path) -> None:
    folder, other = make(tmp_path / "1"), make(tmp_path / "2", ENTRIES[:11])
    before, path = rows(folder), file_of(folder)
    damage_column(path, "body")
    result = repaired(folder, other)
    assert (result.archive_rows, result.lost) == (550, [LostRange(publisher(2), 251, 300)])
    assert file_of(folder) == path
    assert len(list(folder.glob("data/*/*"))) == 1
    assert repaired(folder, other, drop=True) == result
    assert rows(folder) == before[:550]
    with ArchiveStore(folder, "f") as store:
        assert store.next_offset == 600
        assert store.archive_state().lost == (LostRange(publisher(2), 251, 300),)
        assert store.archive_state().vector.last_of(publisher(2)) == 300
        store.append([FoundRange(publisher(2), 251, 300), batch(2, 251, 50)])
        assert store.archive_state().lost == ()


def test_a_file_of_which_nothing_is_left_is_dropped(tmp_path: Path) -> None:
    folder = make(tmp_path)
    damage_footer(file_of(folder))
    assert repaired(folder, drop=True).damaged_rows == 600
    assert rows(folder) == []
    assert damages(folder) == []


def test_messages_that_were_lost_with_the_damage_are_found(tmp_path: Path) -> None:
    """The archive was at work meanwhile, and another archive gave it some of them."""
    folder, other = make(tmp_path / "1"), make(tmp_path / "2")
    before = rows(folder)
    damage_column(file_of(folder), "body")
    with ArchiveStore(folder, "f") as store:
        store.append([LostRange(publisher(1), 1, 300), LostRange(publisher(2), 1, 300)])
        store.append([FoundRange(publisher(1), 1, 50), batch(1, 1, 50)])
    result = repaired(folder, other)
    assert (result.archive_rows, result.lost) == (550, [])
    restored = rows(folder)
    assert restored[:550] == before[50:]
    assert [row[1:] for row in restored[550:]] == [row[1:] for row in before[:50]]
    with ArchiveStore(folder, "f") as store:
        assert store.archive_state().lost == ()


def test_messages_that_it_never_had_are_not_restored(tmp_path: Path) -> None:
    entries: list[ArchiveEntry] = [
        batch(1, 1, 10),
        LostRange(publisher(1), 11, 20),
        batch(1, 21, 10),
    ]
    folder = make(tmp_path / "1", entries)
    other = make(tmp_path / "2", [batch(1, 1, 30)])
    before = rows(folder)
    damage_footer(file_of(folder))
    result = repaired(folder, other)
    assert (result.archive_rows, result.lost) == (20, [])
    assert rows(folder) == before


def test_messages_that_were_found_late_are_restored(tmp_path: Path) -> None:
    entries: list[ArchiveEntry] = [LostRange(publisher(1), 1, 10), batch(1, 11, 10)]
    entries += [FoundRange(publisher(1), 1, 10), batch(1, 1, 10)]
    with ArchiveStore(tmp_path / "1", "f") as store:
        store.append(entries)
        store.seal()
    for path in tmp_path.glob("1/journal/*"):
        path.unlink()
    folder, other = tmp_path / "1", make(tmp_path / "2", [batch(1, 1, 20)])
    before = rows(folder)
    damage_column(file_of(folder), "body")
    result = repaired(folder, other)
    assert (result.archive_rows, result.lost) == (20, [])
    assert rows(folder) == before


def test_a_repair_that_is_interrupted_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("power loss")

    folder, other = make(tmp_path / "1"), make(tmp_path / "2")
    before, path = rows(folder), file_of(folder)
    damage_column(path, "body")
    with ArchiveStore(folder, "f") as store:
        store.append([LostRange(publisher(1), 1, 300), LostRange(publisher(2), 1, 300)])
    for part in ("write", "rename"):
        with monkeypatch.context() as broken:
            broken.setattr(FolderFile if part == "write" else manifests, "write", fail)
            with pytest.raises(OSError, match="power loss"):
                repaired(folder, other)
        ArchiveStore(folder, "f").close()
        assert list(folder.glob("data/*/*")) == [path]
    assert repaired(folder, other).archive_rows == 600
    assert rows(folder) == before
    with ArchiveStore(folder, "f") as store:
        assert store.archive_state().lost == ()


def test_rows_come_in_part_from_the_journal(tmp_path: Path) -> None:
    """The journal has dropped the segment of the first rows."""
    with ArchiveStore(tmp_path / "1", "f", segment_size=2_000, seal_rows=1_000) as store:
        for entry in ENTRIES:
            store.append([entry])
            store.sync()
        store.seal()
        kept = sum(each.rows for each in store._journal_batches())
    assert 0 < kept < 600
    folder, other = tmp_path / "1", make(tmp_path / "2")
    before = rows(folder)
    damage_footer(file_of(folder))
    result = repaired(folder, other)
    assert (result.journal_rows, result.archive_rows, result.lost) == (kept, 600 - kept, [])
    assert rows(folder) == before
