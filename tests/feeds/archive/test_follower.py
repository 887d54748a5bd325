"""An archive that is followed, against one that is opened anew each time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.errors import ArchiveNotFoundError, CorruptArchiveError
from recado.feeds.archive.follower import ArchiveFollower
from recado.feeds.archive.layout import ID_FILE
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore

from .making import batch, publisher, rows_in

EARLY = 1_700_000_000_000_000
"""The timestamp of a message is this, and its sequence."""


def expected(path: Path, start: int, stop: int) -> dict[str, int]:
    found: dict[str, int] = {}
    with Archive.open(path) as archive:
        for message in archive.messages(start, stop):
            found[message.publisher.hex()] = message.sequence
    return found


class TestWhatItSees:
    @settings(max_examples=30)
    @given(steps=st.lists(st.sampled_from(["append", "seal", "look", "collect"]), max_size=12))
    def test_whatever_happens_it_sees_what_is_there(
        self, tmp_path_factory: pytest.TempPathFactory, steps: list[str]
    ) -> None:
        path = tmp_path_factory.mktemp("followed")
        sequences: dict[int, int] = defaultdict(lambda: 1)
        with ArchiveStore(path, "quotes", seal_rows=50) as store:
            follower = ArchiveFollower(path)
            for number, step in enumerate(steps):
                who = number % 3
                if step == "append":
                    store.append([batch(who, sequences[who], 10 + number)])
                    store.sync()
                    sequences[who] += 10 + number
                elif step == "seal":
                    store.seal()
                elif step == "collect":
                    store.apply_retention(RetentionLimits(max_messages=30), grace=0)
                else:
                    follower.refresh()
            follower.refresh()
            with Archive.open(path) as archive:
                assert (follower.first_offset, follower.end_offset) == (
                    archive.first_offset,
                    archive.end_offset,
                )
                assert follower.id == archive.id
            for start in range(follower.first_offset, follower.end_offset, 17):
                for stop in (start + 1, start + 20, follower.end_offset):
                    stop = min(stop, follower.end_offset)
                    assert follower.last_sequences(start, stop) == expected(path, start, stop)
                    extent = follower.journal_extent(start, stop)
                    with Archive.open(path, extent) as part, Archive.open(path) as whole:
                        assert rows_in(part, start, stop) == rows_in(whole, start, stop)

    def test_of_the_journal_only_what_is_new_is_read(self, tmp_path: Path) -> None:
        with ArchiveStore(tmp_path, "quotes") as store:
            store.append([batch(1, 1, 10)])
            store.sync()
            follower = ArchiveFollower(tmp_path)
            known = follower.tail_batches[0]
            store.append([batch(1, 11, 5)])
            store.sync()
            follower.refresh()
        assert follower.tail_batches[0] is known
        assert [each.rows for each in follower.tail_batches] == [10, 5]

    def test_another_archive_in_its_place_is_told_apart(self, tmp_path: Path) -> None:
        with ArchiveStore(tmp_path / "a", "quotes", archive_name="one") as store:
            store.append([batch(1, 1, 10)])
            store.sync()
        follower = ArchiveFollower(tmp_path / "a")
        first = follower.id
        (tmp_path / "a").rename(tmp_path / "old")
        with ArchiveStore(tmp_path / "a", "quotes", archive_name="one") as store:
            store.append([batch(2, 1, 3)])
            store.sync()
        follower.refresh()
        assert follower.id != first
        assert follower.end_offset == 3

    def test_a_journal_that_is_lost(self, tmp_path: Path) -> None:
        with ArchiveStore(tmp_path, "quotes") as store:
            store.append([batch(1, 1, 10)])
            store.sync()
        for file in (tmp_path / "journal").glob("*.journal"):
            file.unlink()
        with pytest.raises(CorruptArchiveError, match="the file is missing"):
            ArchiveFollower(tmp_path)

    def test_no_archive(self, tmp_path: Path) -> None:
        with pytest.raises(ArchiveNotFoundError):
            ArchiveFollower(tmp_path)


class TestPlaces:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Rows 0–99 of one and 100–149 of another publisher in a file, 150–199 in the journal."""
        with ArchiveStore(tmp_path, "quotes") as store:
            store.append([batch(1, 1, 100), batch(2, 501, 50)])
            store.seal()
            store.append([batch(1, 101, 50)])
            store.sync()
        return tmp_path

    @pytest.mark.parametrize(
        ("sequence", "offset"), [(1, 0), (41, 40), (100, 99), (120, 100), (520, 119), (9999, 200)]
    )
    def test_a_time_begins_with_the_first_row_that_is_not_before_it(
        self, path: Path, sequence: int, offset: int
    ) -> None:
        assert ArchiveFollower(path).find_offset_at(EARLY + sequence) == offset

    def test_bytes_are_those_on_disk_and_one_row_is_always_given(self, path: Path) -> None:
        follower = ArchiveFollower(path)
        file = follower.manifest.files[0].bytes
        assert follower.offset_after_bytes(0, 1) == 1
        assert follower.offset_after_bytes(0, file) == 150
        assert 70 <= follower.offset_after_bytes(0, file // 2) <= 80
        assert follower.offset_after_bytes(0, 1 << 30) == 200
        assert 150 < follower.offset_after_bytes(0, file + 700) < 200

    def test_covered_by_a_vector(self, path: Path) -> None:
        follower = ArchiveFollower(path)
        one, two = publisher(1).hex(), publisher(2).hex()
        assert follower.first_uncovered_offset({}) == 0
        assert follower.first_uncovered_offset({one: 100, two: 549}) == 0
        assert follower.first_uncovered_offset({one: 100, two: 550}) == 150
        assert follower.first_uncovered_offset({one: 150, two: 550}) == 200

    def test_what_was_collected_counts_as_before(self, path: Path) -> None:
        with ArchiveStore(path, "quotes") as store:
            store.seal()
            store.apply_retention(RetentionLimits(max_messages=0))
        follower = ArchiveFollower(path)
        assert follower.first_offset == follower.end_offset == 200
        assert follower.last_sequences_before(200) == {
            publisher(1).hex(): 150,
            publisher(2).hex(): 550,
        }


class TestId:
    def test_it_stays_and_is_no_others(self, tmp_path: Path) -> None:
        ids = []
        for name in ("a", "a", "b"):
            ArchiveStore(tmp_path / name, "quotes", archive_name="same").close()
            with Archive.open(tmp_path / name) as archive:
                ids.append(archive.id)
        assert ids[0] == ids[1] != ids[2]
        assert len(ids[0]) == 32

    def test_one_of_an_earlier_release_has_its_name_until_it_is_written_again(
        self, tmp_path: Path
    ) -> None:
        ArchiveStore(tmp_path, "quotes", archive_name="old").close()
        (tmp_path / ID_FILE).unlink()
        with Archive.open(tmp_path) as archive:
            assert archive.id == "old"
        ArchiveStore(tmp_path, "quotes", archive_name="old").close()
        with Archive.open(tmp_path) as archive:
            assert len(archive.id) == 32

    def test_a_damaged_one_is_replaced(self, tmp_path: Path) -> None:
        ArchiveStore(tmp_path, "quotes").close()
        (tmp_path / ID_FILE).write_text("torn")
        ArchiveStore(tmp_path, "quotes").close()
        with Archive.open(tmp_path) as archive:
            assert len(archive.id) == 32
