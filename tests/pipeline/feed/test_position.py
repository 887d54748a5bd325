"""Positions in a feed, and the rows between two of them, in any archive of the feed."""

from __future__ import annotations

import json
import pickle
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from recado.feeds.archive.follower import ArchiveFollower
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import MessageBatch
from recado.pipeline.errors import DataLossError
from recado.pipeline.feed.position import (
    FeedPosition,
    RowRange,
    position_after,
    position_at,
    rows_between,
    rows_from,
    split_range,
)
from recado.pipeline.feed.row_reader import read_rows
from tests.feeds.archive.making import batch, publisher

Had = list[tuple[str, int]]
COLUMNS = ["publisher", "sequence"]


def stored(path: Path, *groups: list[MessageBatch]) -> ArchiveFollower:
    """An archive with a file of each group but the last, which is in the journal."""
    with ArchiveStore(path, "quotes", seal_rows=60) as store:
        for number, group in enumerate(groups):
            store.append(group)
            if number < len(groups) - 1:
                store.seal()
        store.sync()
    return ArchiveFollower(path)


def read(follower: ArchiveFollower, span: RowRange, count: int = 3) -> Had:
    found: Had = []
    for part in split_range(follower, span, count):
        for table in read_rows(str(follower.path), pickle.loads(pickle.dumps(part)), COLUMNS, None):
            found += zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    return found


def batches(
    follower: ArchiveFollower, start: FeedPosition, most: int
) -> tuple[list[Had], FeedPosition]:
    """All that comes from a place on, as Spark would ask for it."""
    found: list[Had] = []
    while True:
        begin = rows_from(follower, start, fail_on_data_loss=True)
        end = position_after(follower, start, begin, min(begin.start + most, begin.stop))
        again = FeedPosition.from_json(json.loads(json.dumps(end.to_json())))
        assert again == end
        if end.to_json() == start.to_json():
            return found, start
        found.append(read(follower, rows_between(follower, start, end, fail_on_data_loss=True)))
        start = end


def messages(number: int, first: int, last: int) -> Had:
    return [(publisher(number).hex(), each) for each in range(first, last + 1)]


class TestOneArchive:
    @settings(max_examples=25)
    @given(most=st.integers(1, 200), begin=st.integers(0, 130), count=st.integers(1, 9))
    def test_each_row_once_in_order(
        self, tmp_path_factory: pytest.TempPathFactory, most: int, begin: int, count: int
    ) -> None:
        path = tmp_path_factory.mktemp("one")
        follower = stored(
            path, [batch(1, 1, 40), batch(2, 1, 30)], [batch(1, 41, 30)], [batch(2, 31, 30)]
        )
        everything = messages(1, 1, 40) + messages(2, 1, 30) + messages(1, 41, 70)
        everything += messages(2, 31, 60)
        found, end = batches(follower, position_at(follower, begin), most)
        assert [*chain.from_iterable(found)] == everything[begin:]
        assert all(len(each) <= most for each in found)
        assert end.vector == follower.last_sequences_before(130)
        assert read(follower, RowRange(begin, 130), count) == everything[begin:]

    def test_as_many_parts_as_asked_for(self, tmp_path: Path) -> None:
        follower = stored(tmp_path, [batch(1, 1, 100)], [batch(1, 101, 20)])
        assert len(split_range(follower, RowRange(0, 120), 1)) == 1
        assert [part.row_range[:2] for part in split_range(follower, RowRange(0, 120), 2)] == [
            (0, 60),
            (60, 120),
        ]
        seven = [
            part.row_range.stop - part.row_range.start
            for part in split_range(follower, RowRange(0, 120), 7)
        ]
        assert sorted(seven) == [17, 17, 17, 17, 17, 17, 18]
        assert len(split_range(follower, RowRange(3, 5), 7)) == 2
        assert split_range(follower, RowRange(5, 5), 7) == []

    def test_what_was_collected_is_a_loss(self, tmp_path: Path) -> None:
        start = position_at(stored(tmp_path, [batch(1, 1, 60)], [batch(1, 61, 10)]), 20)
        with ArchiveStore(tmp_path, "quotes") as store:
            store.seal()
            store.apply_retention(RetentionLimits(max_messages=10))
        follower = ArchiveFollower(tmp_path)
        with pytest.raises(
            DataLossError, match=r"from offset 20 to 59 .* set failOnDataLoss to false"
        ):
            rows_from(follower, start, fail_on_data_loss=True)
        assert rows_from(follower, start, fail_on_data_loss=False) == RowRange(60, 70, {})

    def test_an_older_state_of_it_is_a_loss(self, tmp_path: Path) -> None:
        follower = stored(tmp_path, [batch(1, 1, 10)])
        ahead = FeedPosition(follower.id, 11, {})
        with pytest.raises(DataLossError, match="the archive ends at 10"):
            rows_from(follower, ahead, fail_on_data_loss=True)
        assert rows_from(follower, ahead, fail_on_data_loss=False).start == 10


class TestAnotherArchive:
    """The same messages, stored in another order."""

    @settings(max_examples=25)
    @given(most=st.integers(1, 60), had=st.integers(0, 120), late=st.booleans())
    def test_it_goes_on_by_vector(
        self, tmp_path_factory: pytest.TempPathFactory, most: int, had: int, late: bool
    ) -> None:
        folder = tmp_path_factory.mktemp("two")
        first = stored(folder / "a", [batch(1, 1, 50), batch(2, 1, 20)], [batch(1, 51, 50)])
        later = [batch(2, 1, 10), batch(1, 1, 70), batch(2, 11, 10)]
        second = stored(folder / "b", later, [] if late else [batch(1, 71, 30), batch(3, 1, 5)])
        start = position_at(first, had)
        before = messages(1, 1, 50) + messages(2, 1, 20) + messages(1, 51, 100)
        found, end = batches(second, start, most)
        if late:  # what it lacked yet comes behind what is new
            with ArchiveStore(folder / "b", "quotes") as store:
                store.append([batch(1, 71, 30), batch(3, 1, 5)])
                store.sync()
            second.refresh()
            more, end = batches(second, end, most)
            found += more
        got = [*chain.from_iterable(found)]
        expected = {*before, *messages(3, 1, 5)} - {*before[:had]}
        assert sorted(got) == sorted(expected)
        assert end.archive == second.id
        assert end.skip == {}

    def test_a_batch_is_the_same_with_any_archive(self, tmp_path: Path) -> None:
        first = stored(tmp_path / "a", [batch(1, 1, 50), batch(2, 1, 20)])
        second = stored(tmp_path / "b", [batch(2, 1, 20), batch(1, 1, 90)])
        start, end = position_at(first, 30), position_at(first, 60)
        for follower in (first, second):
            found = read(follower, rows_between(follower, start, end, fail_on_data_loss=True))
            assert sorted(found) == sorted(messages(1, 31, 50) + messages(2, 1, 10))

    def test_one_that_lacks_some_of_a_batch(self, tmp_path: Path) -> None:
        first = stored(tmp_path / "a", [batch(1, 1, 50)])
        second = stored(tmp_path / "b", [batch(1, 1, 20)])
        with pytest.raises(DataLossError, match="it has 20, not 40"):
            rows_between(
                second, position_at(first, 10), position_at(first, 40), fail_on_data_loss=True
            )

    def test_an_older_state_that_lacks_some_of_a_batch(self, tmp_path: Path) -> None:
        follower = stored(tmp_path, [batch(1, 1, 50)])
        start, end = position_at(follower, 10), replace(position_at(follower, 50), next=60)
        with pytest.raises(DataLossError, match="up to offset 60, but the archive ends at 50"):
            rows_between(follower, start, end, fail_on_data_loss=True)
        assert (
            len(read(follower, rows_between(follower, start, end, fail_on_data_loss=False))) == 40
        )

    def test_one_that_begins_too_late(self, tmp_path: Path) -> None:
        start = position_at(stored(tmp_path / "a", [batch(1, 1, 50)]), 10)
        with ArchiveStore(tmp_path / "b", "quotes") as store:
            store.append([batch(1, 1, 30)])
            store.seal()
            store.apply_retention(RetentionLimits(max_messages=0))
        second = ArchiveFollower(tmp_path / "b")
        with pytest.raises(DataLossError, match=r"after sequence 30 .* read only up to 10"):
            rows_from(second, start, fail_on_data_loss=True)
        assert rows_from(second, start, fail_on_data_loss=False).start == 30
