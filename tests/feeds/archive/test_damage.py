"""A store with a damaged Parquet file: it serves all other rows, and says which messages are lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from recado.feeds.archive.columns import MAX_GROUP_ROWS
from recado.feeds.archive.layout import FolderTree
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.vector import Vector
from recado.feeds.views import FoundRange, LostRange

from .damaging import damage_column, file_of, flip
from .making import batch, publisher, rows_of

Key = tuple[bytes, int]


def recalled(store: ArchiveStore) -> set[Key]:
    """All messages that the store gives, which must be as they were stored."""
    found = set()
    offset, more = 0, True
    while more:
        answer = store.query(ArchiveQuery(Vector(), offset=offset))
        for who, sequence, _, body in rows_of(answer.batches):
            number = int.from_bytes(who)
            assert body == b"%d/%d" % (number, sequence) + b"." * (sequence % 12)
            found.add((who, sequence))
        offset, more = answer.offset, answer.has_more
    return found


def lost_in(store: ArchiveStore) -> set[Key]:
    """All messages that the damages found since the last call have cost."""
    return {
        (lost.publisher, sequence)
        for damage in store.take_new_damages()
        for lost in store.find_lost(damage)
        for sequence in range(lost.first, lost.last + 1)
    }


def keys(number: int, first: int, count: int) -> set[Key]:
    return {(publisher(number), sequence) for sequence in range(first, first + count)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Messages of two publishers in a file, and others in the journal."""
    with ArchiveStore(tmp_path, "f") as store:
        for first in (1, 101, 201):
            store.append([batch(1, first, 100), batch(2, first, 100)])
        store.seal()
        store.append([batch(1, 301, 100)])
        store.sync()
    return tmp_path


def test_a_damaged_row_group_is_left_out_and_reported_once(tmp_path: Path) -> None:
    count = MAX_GROUP_ROWS + 5_000
    with ArchiveStore(tmp_path, "f") as store:
        for first in range(1, count, 5_000):
            store.append([batch(1, first, 5_000)])
        store.seal()
        store.append([batch(1, count + 1, 10)])
        damage_column(file_of(tmp_path), "body")
        kept = keys(1, MAX_GROUP_ROWS + 1, 5_010)
        assert recalled(store) == kept
        (damage,) = store.take_new_damages()
        assert (damage.group, damage.first, damage.end) == (0, 0, MAX_GROUP_ROWS)
        assert damage.error.file == str(file_of(tmp_path))
        assert store.find_lost(damage) == [LostRange(publisher(1), 1, MAX_GROUP_ROWS)]
        assert recalled(store) == kept
        assert store.take_new_damages() == []


@pytest.mark.parametrize("column", ["body", "publisher", "sequence", "view"])
def test_which_messages_are_lost_is_known_whatever_is_damaged(folder: Path, column: str) -> None:
    damage_column(file_of(folder), column)
    with ArchiveStore(folder, "f") as store:
        assert recalled(store) == keys(1, 301, 100)
        assert lost_in(store) == keys(1, 1, 300) | keys(2, 1, 300)


def test_messages_of_a_flipped_bit_are_served_or_lost(folder: Path) -> None:
    path = file_of(folder)
    everything = keys(1, 1, 400) | keys(2, 1, 300)
    damaged = 0
    for bit in Random(5).sample(range(8 * path.stat().st_size), 60):
        flip(path, bit)
        with ArchiveStore(folder, "f") as store:
            served, lost = recalled(store), lost_in(store)
            damaged += bool(lost)
            assert served | lost == everything
            assert not served & lost
        flip(path, bit)
    assert damaged > 30


def test_a_missing_file_is_damage(folder: Path) -> None:
    file_of(folder).unlink()
    with ArchiveStore(folder, "f") as store:
        assert recalled(store) == keys(1, 301, 100)
        assert lost_in(store) == keys(1, 1, 300) | keys(2, 1, 300)


def test_a_missing_file_does_not_keep_others_from_being_merged(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f") as store:
        store.append([batch(1, 1, 10)])
        store.seal()
        file_of(tmp_path).unlink()
        store.append([batch(1, 11, 10)])
        store.seal()
        assert recalled(store) == keys(1, 11, 10)


def test_messages_that_another_row_has_are_not_lost(folder: Path) -> None:
    damage_column(file_of(folder), "sequence")
    with ArchiveStore(folder, "f") as store:
        store.append([LostRange(publisher(2), 1, 150)])
        store.append([FoundRange(publisher(2), 1, 100), batch(2, 1, 100)])
        recalled(store)
        (damage,) = store.take_new_damages()
        lost = {lost.publisher: (lost.first, lost.last) for lost in store.find_lost(damage)}
        assert lost == {publisher(1): (1, 300), publisher(2): (151, 300)}
        store.append(store.find_lost(damage))
        assert store.find_lost(damage) == []
        assert {lost.publisher: (lost.first, lost.last) for lost in store.archive_state().lost} == {
            publisher(1): (1, 300),
            publisher(2): (101, 300),
        }


def test_messages_that_were_found_and_are_damaged_are_lost_again(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f") as store:
        store.append([LostRange(publisher(1), 1, 10), batch(1, 11, 10)])
        store.seal()
        store.append([FoundRange(publisher(1), 1, 10), batch(1, 1, 10)])
        store.seal()
        assert store.archive_state().lost == ()
    damage_column(file_of(tmp_path), "body")
    for _ in range(2):
        with ArchiveStore(tmp_path, "f") as store:
            assert recalled(store) == set()
            for damage in store.take_new_damages():
                store.append(store.find_lost(damage))
            assert store.archive_state().lost == (LostRange(publisher(1), 1, 20),)


def test_a_damaged_file_that_was_collected_meanwhile_costs_nothing(folder: Path) -> None:
    damage_column(file_of(folder), "body")
    with ArchiveStore(folder, "f") as store:
        recalled(store)
        (damage,) = store.take_new_damages()
        store.apply_retention(RetentionLimits(max_messages=1))
        assert store.find_lost(damage) == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_too_few_resources_are_no_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> pa.NativeFile:
        raise OSError(number, os.strerror(number))

    with ArchiveStore(folder, "f") as store:
        monkeypatch.setattr(FolderTree, "parquet", refuse)
        with pytest.raises(OSError, match=os.strerror(number)):
            recalled(store)
        assert store.take_new_damages() == []
