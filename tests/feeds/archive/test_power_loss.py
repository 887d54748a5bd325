"""Loss of power at every moment of appending, syncing, sealing, merging and collecting."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.vector import Vector
from recado.feeds.views import LostRange, View, ViewId, ViewRecord

from .making import Clock, Row, batch, publisher, rows_in, rows_of
from .simulated import SimulatedTree

SEGMENT = 2000
GRACE = 5.0


class Moment(NamedTuple):
    """A disk after a loss of power, and what had been promised before."""

    tree: SimulatedTree
    durable: int
    appended: int
    let_go: tuple[int, int]
    """The first row is no earlier than the one, and no later than the other."""
    records: int


class Work:
    """Does what chance has it, and loses power in between, again and again."""

    def __init__(self, seed: int, steps: int, each: int) -> None:
        self.random = Random(seed)
        self.clock = Clock()
        self.tree = SimulatedTree(seed=seed)
        self.moments: list[Moment] = []
        self.rows: list[Row] = []
        self.views = 0
        self._durable = self._appended = self._records = self._first = 0
        self._sequences = {1: 1, 2: 1, 3: 1}
        self._operations = 0
        self._each = each
        self.store = self.open(self.tree)
        self.tree.watch = self._lose_power
        for _ in range(steps):
            self.clock.now += self.random.choice((0, 1, 40_000))
            self.random.choice((self.append, self.append, self.sync, self.seal, self.collect))()
        self.tree.watch = None

    def open(self, tree: SimulatedTree) -> ArchiveStore:
        return ArchiveStore(
            "", "f", tree=tree, segment_size=SEGMENT, seal_rows=60, clock=self.clock, grace=GRACE
        )

    def _lose_power(self, operation: str) -> None:
        self._operations += 1
        if self._operations % self._each == 0:
            first = self.store._files.manifest.first
            crashed = self.tree.crash(self._operations)
            self.moments.append(
                Moment(crashed, self._durable, len(self.rows), (first, self._first), self._records)
            )

    def append(self) -> None:
        entries = []
        for _ in range(self.random.choice((1, 1, 3))):
            who = self.random.choice(list(self._sequences))
            made = batch(who, self._sequences[who], self.random.choice((1, 5, 20)))
            self._sequences[who] = made.last + 1
            entries.append(made)
        self.rows += rows_of(entries)
        self.views += 1
        view = View(ViewId(self.views, publisher(9)), ())
        self.store.append([*entries, ViewRecord(view, Vector(), ())])

    def sync(self) -> None:
        rows, views = len(self.rows), self.views
        self.store.sync()
        self._durable, self._records = rows, views

    def seal(self) -> None:
        rows, views = len(self.rows), self.views
        self.store.seal()
        self._durable, self._records = rows, views

    def collect(self) -> None:
        keep = self.random.randrange(len(self.rows) + 1)
        files = self.store._files.manifest.files
        self._first = files[-1].end if files else self._first
        self.store.apply_retention(
            RetentionLimits(max_messages=keep), grace=self.random.choice((0.0, GRACE))
        )
        self._first = self.store._files.manifest.first


def check(moment: Moment, rows: list[Row], archive: Archive) -> int:
    """What a reader finds is what was appended, up to somewhere behind what was promised."""
    first, end = archive.first_offset, archive.end_offset
    assert moment.let_go[0] <= first <= max(moment.let_go)
    assert moment.durable <= end <= moment.appended
    assert rows_in(archive) == rows[first:end]
    assert list(archive.verify()) == []
    numbers = [
        each.record.view.id.number
        for each in archive.records()
        if isinstance(each.record, ViewRecord)
    ]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= moment.records
    return end


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_was_synced_is_lost_and_no_row_is_there_twice(seed: int) -> None:
    work = Work(seed, steps=50, each=6)
    assert len(work.moments) > 40
    for moment in work.moments:
        with work.open(moment.tree) as store, Archive._open_tree(moment.tree) as archive:
            end = check(moment, work.rows, archive)
            assert store.next_offset == store.durable_offset == end
            assert store.durable_vector == Vector({who: seq for who, seq, *_ in work.rows[:end]})
            found = store.query(ArchiveQuery(Vector(), limit_bytes=1 << 30))
            assert rows_of(found.batches) == work.rows[archive.first_offset : end]
            assert found.reached == store.durable_vector
            # Go on, and lose power again.
            more = batch(7, 1, 3)
            store.append([more])
            store.seal() if seed % 2 else store.sync()
            again = moment.tree.crash(seed)
            with work.open(again), Archive._open_tree(again) as archive:
                assert rows_in(archive) == work.rows[archive.first_offset : end] + rows_of([more])


def test_a_reader_needs_no_writer_to_recover_first() -> None:
    work = Work(11, steps=50, each=6)
    for moment in work.moments:
        with Archive._open_tree(moment.tree) as archive:
            end = archive.end_offset
            assert end <= moment.appended
            assert rows_in(archive) == work.rows[archive.first_offset : end]


def test_what_is_lost_is_reached() -> None:
    tree = SimulatedTree()
    with ArchiveStore("", "f", tree=tree, segment_size=SEGMENT, clock=Clock()) as store:
        store.append([batch(1, 1, 2), LostRange(publisher(1), 3, 5), batch(1, 6, 1)])
        store.seal()
        store.append([LostRange(publisher(2), 1, 9)])
        store.sync()
        assert store.durable_vector == Vector({publisher(1): 6, publisher(2): 9})
    with ArchiveStore(
        "", "f", tree=tree.crash(mercy=0), segment_size=SEGMENT, clock=Clock()
    ) as store:
        assert (
            store.durable_vector
            == store.archive_state().vector
            == Vector({publisher(1): 6, publisher(2): 9})
        )
        assert store.query(ArchiveQuery(Vector())).reached == store.durable_vector
