"""Compaction: files of a day become one, by whoever merges them; readers and rows stay as they were."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.layout import FolderTree
from recado.feeds.archive.manifest import DataFile
from recado.feeds.archive.sealer import find_compactable, merge_files
from recado.feeds.archive.store import ArchiveStore

from .making import Clock, batch, rows_in

DAY = 86_400


def file(first: int, rows: int, date: str) -> DataFile:
    return DataFile(f"{first}", date, first, first + rows, 0, "", "", (0, 0), (0, 0), {})


@given(
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0, 0, 0, 7]), st.booleans())),
    st.integers(1, 100),
)
def test_which_files_go_together(parts: list[tuple[int, int, bool]], most: int) -> None:
    made, offset, day = [], 0, 1
    for rows, gap, tomorrow in parts:
        offset, day = offset + gap, day + tomorrow
        made.append(file(offset, rows, f"{day}"))
        offset += rows
    groups = find_compactable(made, most)
    at = [made.index(each) for group in groups for each in group]
    assert at == sorted(set(at))
    for group in groups:
        assert len(group) > 1
        assert len({each.date for each in group}) == 1
        assert all(one.end == other.first for one, other in pairwise(group))
        assert sum(each.rows for each in group) <= most


def made(folder: Path, clock: Clock) -> list[object]:
    with ArchiveStore(folder, "f", clock=clock) as store:
        sequence = 1
        for rows in (400, 300, 200, 0, 100, 50):
            if rows:
                store.append([batch(1, sequence, rows)])
                sequence += rows
                store.seal()
            else:
                clock.now += DAY
        store.append([batch(1, sequence, 10)])
    with Archive.open(folder) as archive:
        return [*rows_in(archive)]


def test_the_rows_stay(tmp_path: Path) -> None:
    clock = Clock()
    before = made(tmp_path, clock)
    tree = FolderTree(tmp_path)

    def here(groups: Sequence[Sequence[DataFile]], generation: int) -> list[DataFile]:
        return [merge_files(tree, group, generation) for group in groups]

    with (
        ArchiveStore(tmp_path, "f", clock=clock, grace=600) as store,
        Archive.open(tmp_path) as reading,
    ):
        groups = store.compact(here)
        assert [[each.rows for each in group] for group in groups] == [[400, 300, 200], [100, 50]]
        assert len(store.files) == 2
        assert store.compact(here) == []
        assert [*rows_in(reading)] == before
        clock.now += 601
        assert store.apply_retention().removed == 5
    with Archive.open(tmp_path) as archive:
        assert not list(archive.verify())
        assert [*rows_in(archive)] == before


def test_what_was_begun_in_vain_leaves_nothing(tmp_path: Path) -> None:
    clock = Clock()
    before = made(tmp_path, clock)
    names = sorted(tmp_path.rglob("*"))

    def half(groups: Sequence[Sequence[DataFile]], generation: int) -> list[DataFile]:
        merge_files(FolderTree(tmp_path), groups[0], generation)
        raise OSError("the disk is full")

    with ArchiveStore(tmp_path, "f", clock=clock) as store:
        with pytest.raises(OSError, match="full"):
            store.compact(half)
        assert len(store.files) == 5
    assert sorted(tmp_path.rglob("*")) == names
    with Archive.open(tmp_path) as archive:
        assert [*rows_in(archive)] == before
