"""Places in a feed: what is between two of them, whichever archive is there."""

from __future__ import annotations

import json
import pickle
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from recado.feeds.archive.collection import Limits
from recado.feeds.archive.following import Follower
from recado.feeds.archive.store import Store
from recado.feeds.boundary import Batch
from recado.pipeline.feed.errors import DataLoss
from recado.pipeline.feed.offsets import (
    Place,
    Span,
    beginning,
    between,
    parts,
    place_after,
    place_at,
)
from recado.pipeline.feed.reading import rows
from tests.feeds.archive.making import batch, publisher

Had = list[tuple[str, int]]
COLUMNS = ["publisher", "sequence"]


def stored(path: Path, *groups: list[Batch]) -> Follower:
    """An archive with a file of each group but the last, which is in the journal."""
    with Store(path, "quotes", seal_rows=60) as store:
        for number, group in enumerate(groups):
            store.append(group)
            if number < len(groups) - 1:
                store.seal()
        store.sync()
    return Follower(path)


def read(follower: Follower, span: Span, count: int = 3) -> Had:
    found: Had = []
    for part in parts(follower, span, count):
        for table in rows(str(follower.path), pickle.loads(pickle.dumps(part)), COLUMNS, None):
            found += zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
    return found


def batches(follower: Follower, start: Place, most: int) -> tuple[list[Had], Place]:
    """All that comes from a place on, as Spark would ask for it."""
    found: list[Had] = []
    while True:
        begin = beginning(follower, start, fail=True)
        end = place_after(follower, start, begin, min(begin.start + most, begin.stop))
        again = Place.of(json.loads(json.dumps(end.noted())))
        assert again == end
        if end.noted() == start.noted():
            return found, start
        found.append(read(follower, between(follower, start, end, fail=True)))
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
        found, end = batches(follower, place_at(follower, begin), most)
        assert [*chain.from_iterable(found)] == everything[begin:]
        assert all(len(each) <= most for each in found)
        assert end.vector == follower.sequences_before(130)
        assert read(follower, Span(begin, 130), count) == everything[begin:]

    def test_as_many_parts_as_asked_for(self, tmp_path: Path) -> None:
        follower = stored(tmp_path, [batch(1, 1, 100)], [batch(1, 101, 20)])
        assert len(parts(follower, Span(0, 120), 1)) == 1
        assert [part.span[:2] for part in parts(follower, Span(0, 120), 2)] == [(0, 60), (60, 120)]
        seven = [part.span.stop - part.span.start for part in parts(follower, Span(0, 120), 7)]
        assert sorted(seven) == [17, 17, 17, 17, 17, 17, 18]
        assert len(parts(follower, Span(3, 5), 7)) == 2
        assert parts(follower, Span(5, 5), 7) == []

    def test_what_was_collected_is_a_loss(self, tmp_path: Path) -> None:
        start = place_at(stored(tmp_path, [batch(1, 1, 60)], [batch(1, 61, 10)]), 20)
        with Store(tmp_path, "quotes") as store:
            store.seal()
            store.collect(Limits(max_messages=10))
        follower = Follower(tmp_path)
        with pytest.raises(DataLoss, match=r"from offset 20 to 59 .* set failOnDataLoss to false"):
            beginning(follower, start, fail=True)
        assert beginning(follower, start, fail=False) == Span(60, 70, {})

    def test_an_older_state_of_it_is_a_loss(self, tmp_path: Path) -> None:
        follower = stored(tmp_path, [batch(1, 1, 10)])
        ahead = Place(follower.id, 11, {})
        with pytest.raises(DataLoss, match="the archive ends at 10"):
            beginning(follower, ahead, fail=True)
        assert beginning(follower, ahead, fail=False).start == 10


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
        start = place_at(first, had)
        before = messages(1, 1, 50) + messages(2, 1, 20) + messages(1, 51, 100)
        found, end = batches(second, start, most)
        if late:  # what it lacked yet comes behind what is new
            with Store(folder / "b", "quotes") as store:
                store.append([batch(1, 71, 30), batch(3, 1, 5)])
                store.sync()
            second.look()
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
        start, end = place_at(first, 30), place_at(first, 60)
        for follower in (first, second):
            found = read(follower, between(follower, start, end, fail=True))
            assert sorted(found) == sorted(messages(1, 31, 50) + messages(2, 1, 10))

    def test_one_that_lacks_some_of_a_batch(self, tmp_path: Path) -> None:
        first = stored(tmp_path / "a", [batch(1, 1, 50)])
        second = stored(tmp_path / "b", [batch(1, 1, 20)])
        with pytest.raises(DataLoss, match="it has 20, not 40"):
            between(second, place_at(first, 10), place_at(first, 40), fail=True)

    def test_an_older_state_that_lacks_some_of_a_batch(self, tmp_path: Path) -> None:
        follower = stored(tmp_path, [batch(1, 1, 50)])
        start, end = place_at(follower, 10), replace(place_at(follower, 50), next=60)
        with pytest.raises(DataLoss, match="up to offset 60, and the archive ends at 50"):
            between(follower, start, end, fail=True)
        assert len(read(follower, between(follower, start, end, fail=False))) == 40

    def test_one_that_begins_too_late(self, tmp_path: Path) -> None:
        start = place_at(stored(tmp_path / "a", [batch(1, 1, 50)]), 10)
        with Store(tmp_path / "b", "quotes") as store:
            store.append([batch(1, 1, 30)])
            store.seal()
            store.collect(Limits(max_messages=0))
        second = Follower(tmp_path / "b")
        with pytest.raises(DataLoss, match=r"behind sequence 30 .* had 10"):
            beginning(second, start, fail=True)
        assert beginning(second, start, fail=False).start == 30
