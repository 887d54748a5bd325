"""What threads and processes do at the worst moment, made to happen at that moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recado.feeds.archive import store as stores
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.layout import JOURNAL_FOLDER, ReadOnlyDisk, ReadOnlyTree
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.vector import Vector

from .making import batch, publisher, rows_in, rows_of

COUNT = 30
SEQUENCES = list(range(1, 3 * COUNT + 1))


class Interrupted(ReadOnlyTree):
    """Something happens between the reading of the manifest and that of the journal, the first time."""

    def __init__(self, root: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self._meanwhile: Callable[[], None] | None = meanwhile

    def disk(self, folder: str) -> ReadOnlyDisk:
        if folder == JOURNAL_FOLDER and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        return super().disk(folder)


def fill(store: ArchiveStore) -> None:
    for number in range(COUNT):
        store.append([batch(1, 1 + 3 * number, 3)])
    store.sync()


def test_the_tail_is_sealed_while_somebody_opens_the_archive(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f", segment_size=500) as store:
        fill(store)
        with Archive._open_tree(Interrupted(tmp_path, store.seal)) as archive:
            assert archive.manifest.tail.offset == 3 * COUNT
            assert [row[1] for row in rows_in(archive)] == SEQUENCES


def test_the_tail_is_sealed_and_goes_on_while_somebody_reads_it(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f", segment_size=500) as store:
        fill(store)
        with Archive.open(tmp_path) as archive:
            messages = archive.messages()
            found = [next(messages).sequence]
            store.seal()
            store.append([batch(1, 3 * COUNT + 1, 3)])
            store.sync()
            found += [message.sequence for message in messages]
            assert found == [row[1] for row in rows_in(archive)] == SEQUENCES


def test_a_recall_between_the_manifest_and_the_end_of_a_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "CHECKPOINT_BYTES", 300)
    with ArchiveStore(tmp_path, "f", segment_size=500) as store:
        fill(store)
        sealing, answers = store._files.seal, []

        def seal(*arguments: object) -> None:
            sealing(*arguments)  # type: ignore[arg-type]
            answers.append(store.query(ArchiveQuery(Vector())))

        monkeypatch.setattr(store._files, "seal", seal)
        store.seal()
        answers.append(store.query(ArchiveQuery(Vector())))
        for answer in answers:
            assert [row[1] for row in rows_of(answer.batches)] == SEQUENCES
            assert (answer.offset, answer.has_more) == (3 * COUNT, False)


def test_what_is_appended_during_a_sync_is_not_covered_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = publisher(1)
    with ArchiveStore(tmp_path, "f") as store:
        store.append([batch(1, 1, 3)])
        syncing = store._journal.sync

        def sync() -> int:
            position = syncing()
            store.append([batch(1, 4, 3)])
            return position

        monkeypatch.setattr(store._journal, "sync", sync)
        store.sync()
        monkeypatch.undo()
        assert (store.durable_offset, dict(store.durable_vector)) == (3, {one: 3})
        store.sync()
        assert (store.durable_offset, dict(store.durable_vector)) == (6, {one: 6})
