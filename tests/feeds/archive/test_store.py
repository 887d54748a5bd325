"""The store against a model so simple that it is obviously right: a list of rows."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pyarrow.parquet as parquet
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from recado.feeds.archive import store as stores
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.columns import MAX_GROUP_ROWS
from recado.feeds.archive.errors import ArchiveMismatchError
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import MAX_READ_BATCHES, ArchiveQuery, MessageBatch, MessageRange
from recado.feeds.vector import Vector
from recado.feeds.views import (
    AcknowledgementRecord,
    FoundRange,
    LostRange,
    MemberId,
    View,
    ViewId,
    ViewRecord,
)
from recado.journal.disk import FolderInUseError

from .making import Clock, Row, batch, publisher, rows_in, rows_of
from .simulated import SimulatedTree

PUBLISHERS = (1, 2, 3)


def vector_of(rows: list[Row]) -> Vector:
    return Vector({who: sequence for who, sequence, *_ in rows})


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.clock = Clock()
        self.tree = SimulatedTree()
        self.store = self.open()
        self.rows: list[Row] = []
        self.first = 0
        self.next = dict.fromkeys(PUBLISHERS, 1)

    def open(self) -> ArchiveStore:
        return ArchiveStore(
            "", "f", tree=self.tree, segment_size=900, seal_rows=30, clock=self.clock
        )

    def teardown(self) -> None:
        self.store.close()

    @rule(sizes=st.lists(st.tuples(st.sampled_from(PUBLISHERS), st.integers(1, 9)), max_size=5))
    def append(self, sizes: list[tuple[int, int]]) -> None:
        entries = []
        for who, count in sizes:
            entries.append(batch(who, self.next[who], count))
            self.next[who] += count
        self.rows += rows_of(entries)
        assert self.store.append(entries) == len(self.rows)

    @rule()
    def sync(self) -> None:
        self.store.sync()
        assert self.store.durable_offset == len(self.rows)
        assert self.store.durable_vector == vector_of(self.rows)

    @rule(hours=st.integers(0, 30))
    def seal(self, hours: int) -> None:
        self.clock.now += 3600 * hours
        self.store.seal()

    @rule(keep=st.integers(0, 60))
    def collect(self, keep: int) -> None:
        report = self.store.apply_retention(RetentionLimits(max_messages=keep), grace=0)
        assert report.messages == report.first - self.first
        assert len(self.rows) - report.first >= min(keep, len(self.rows) - self.first)
        self.first = report.first

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule(data=st.data(), limit=st.sampled_from((1, 200, 1 << 20)))
    def recall_behind_a_vector(self, data: st.DataObject, limit: int) -> None:
        after = Vector({publisher(p): data.draw(st.integers(0, s)) for p, s in self.next.items()})
        wanted = [row for row in self.rows[self.first :] if row[1] > after.last_of(row[0])]
        self.check(ArchiveQuery(after, limit_bytes=limit), wanted)

    @rule(data=st.data(), limit=st.sampled_from((1, 200, 1 << 20)))
    def recall_ranges(self, data: st.DataObject, limit: int) -> None:
        ranges = [
            MessageRange(publisher(p), low, data.draw(st.integers(low, s + 1)))
            for p, s in self.next.items()
            if (low := data.draw(st.integers(0, s))) > 0
        ]
        if ranges:
            wanted = [
                row
                for row in self.rows[self.first :]
                if any(r.publisher == row[0] and r.first <= row[1] <= r.last for r in ranges)
            ]
            self.check(ArchiveQuery(Vector(), tuple(ranges), limit_bytes=limit), wanted)

    @rule(data=st.data())
    def recall_from_an_offset(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(0, len(self.rows)))
        self.check(ArchiveQuery(Vector(), offset=start), self.rows[max(start, self.first) :])

    def check(self, query: ArchiveQuery, wanted: list[Row]) -> None:
        found: list[MessageBatch] = []
        while True:
            answer = self.store.query(query)
            found += answer.batches
            assert answer.reached == vector_of(self.rows[: answer.offset]) or query.ranges
            if not answer.has_more:
                break
            assert answer.offset > query.offset
            query = ArchiveQuery(query.after, query.ranges, answer.offset, query.limit_bytes)
        assert rows_of(found) == wanted
        if not query.ranges:
            assert answer.offset == len(self.rows)
            assert answer.reached == self.store.durable_vector == vector_of(self.rows)

    @invariant()
    def a_reader_sees_the_same(self) -> None:
        with Archive._open_tree(self.tree) as archive:
            end = archive.end_offset
            assert self.store.durable_offset <= end <= len(self.rows)
            assert archive.first_offset == self.first
            assert rows_in(archive) == self.rows[self.first : end]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_the_core_begins_with_what_was_stored(tmp_path: Path) -> None:
    view = ViewRecord(View(ViewId(1, publisher(9)), ()), Vector({publisher(1): 2}), ())
    ack = AcknowledgementRecord(
        MemberId("desk", publisher(8)), view.view.id, Vector(), Vector({publisher(1): 2})
    )
    for _ in range(3):
        with ArchiveStore(tmp_path, "f") as store:
            if not store.next_offset:
                store.append([batch(1, 1, 2), view, LostRange(publisher(1), 3, 4), ack])
            state = store.archive_state()
            assert state.views == (view,)
            assert state.acknowledgements == (ack,)
            assert state.vector == Vector({publisher(1): 4})
            assert state.next_offset == 2
            store.seal()


def test_records_that_the_core_forgets_are_not_kept(tmp_path: Path) -> None:
    acks = [
        AcknowledgementRecord(
            MemberId("desk", publisher(8)),
            ViewId(n, publisher(9)),
            Vector(),
            Vector({publisher(1): n}),
        )
        for n in range(1, 50)
    ]
    with ArchiveStore(tmp_path, "f") as store:
        for ack in acks:
            store.append([ack])
            store.seal()
        with Archive.open(tmp_path) as archive:
            assert [each.record for each in archive.records()] == [acks[-1]]


def test_a_view_that_was_provisional_is_kept_once(tmp_path: Path) -> None:
    view = View(ViewId(1, publisher(9)), ())
    provisional = ViewRecord(view, Vector(), (), provisional=True)
    known = ViewRecord(view, Vector({publisher(1): 2}), ())
    with ArchiveStore(tmp_path, "f") as store:
        store.append([provisional])
        store.seal()
        assert store.archive_state().views == (provisional,)
        store.append([known])
        store.seal()
    with ArchiveStore(tmp_path, "f") as store, Archive.open(tmp_path) as archive:
        assert store.archive_state().views == (known,)
        assert [each.record for each in archive.records()] == [known]


@pytest.mark.parametrize("sealed", [True, False])
def test_an_answer_has_as_many_batches_as_fit_in_a_packet(sealed: bool, tmp_path: Path) -> None:
    count = 2 * MAX_READ_BATCHES + 10
    with ArchiveStore(tmp_path, "quotes", archive_name="a1") as store:
        store.append([batch(each % 2, each // 2 + 1, 1) for each in range(count)])
        store.sync()
        if sealed:
            store.seal()
        offset, sizes = 0, []
        while True:
            answer = store.query(ArchiveQuery(Vector(), offset=offset))
            sizes.append(len(answer.batches))
            offset = answer.offset
            assert sum(answer.reached.values()) == sum(sizes)
            if not answer.has_more:
                break
        assert sizes == [MAX_READ_BATCHES, MAX_READ_BATCHES, 10]


def test_what_is_stored_already_is_refused_whole(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f") as store:
        store.append([batch(1, 1, 3)])
        with pytest.raises(ValueError, match="already stored"):
            store.append([batch(2, 1, 1), batch(1, 3, 3)])
        with pytest.raises(ValueError, match="already stored"):
            store.append([batch(2, 1, 2), batch(2, 2, 1)])
        assert store.append([batch(2, 1, 1)]) == 4


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f"), pytest.raises(FolderInUseError, match=str(os.getpid())):
        ArchiveStore(tmp_path, "f")
    ArchiveStore(tmp_path, "f").close()


def test_another_feed_or_archive_is_not_taken_for_this_one(tmp_path: Path) -> None:
    ArchiveStore(tmp_path, "quotes", archive_name="one").close()
    with pytest.raises(ArchiveMismatchError, match="of the feed 'quotes', not 'trades'"):
        ArchiveStore(tmp_path, "trades")
    with pytest.raises(ArchiveMismatchError, match="with the name 'one', not 'two'"):
        ArchiveStore(tmp_path, "quotes", archive_name="two")
    ArchiveStore(tmp_path, "quotes").close()


def test_sealing_is_due_by_rows_and_by_age(tmp_path: Path) -> None:
    clock = Clock()
    with ArchiveStore(tmp_path, "f", seal_rows=10, seal_interval=60, clock=clock) as store:
        due = [store.needs_sealing]
        store.append([batch(1, 1, 9)])
        due.append(store.needs_sealing)
        store.append([batch(1, 10, 1)])
        due.append(store.needs_sealing)
        store.seal()
        due.append(store.needs_sealing)
        store.append([batch(1, 11, 1)])
        clock.now += 61
        due.append(store.needs_sealing)
        assert due == [False, False, True, False, True]


def test_progress_tells_what_is_not_yet_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with ArchiveStore(tmp_path, "f", clock=clock) as store:
        assert store.measure_progress() == (0, 0, 0, 0, 0.0)
        store.append([batch(1, 1, 9)])
        clock.now += 5
        assert store.measure_progress() == (0, 0, 0, 9, 5.0)
        sync = store._journal.sync

        def hang() -> None:
            clock.now += 60
            store.append([batch(1, 10, 1)])
            assert store.measure_progress() == (0, 0, 0, 10, 65.0)
            sync()

        monkeypatch.setattr(store._journal, "sync", hang)
        store.sync()
        clock.now += 2
        assert store.measure_progress() == (0, 0, 9, 1, 2.0)
        monkeypatch.undo()
        store.sync()
        assert store.measure_progress() == (0, 0, 10, 0, 0.0)
        store.seal()
        assert store.measure_progress() == (0, 10, 10, 0, 0.0)


def test_rows_of_a_day_are_in_its_folder_and_small_files_become_one(tmp_path: Path) -> None:
    clock = Clock()
    with ArchiveStore(tmp_path, "f", clock=clock, grace=0, seal_rows=1000) as store:
        for number in range(16):
            store.append([batch(1, 1 + 2 * number, 2)])
            store.seal()
        store.apply_retention()
        clock.now += 86_400
        store.append([batch(1, 33, 2)])
        store.seal()
        with Archive.open(tmp_path) as archive:
            assert [(file.date, file.rows) for file in archive.manifest.files] == [
                ("2027-01-15", 32),
                ("2027-01-16", 2),
            ]
            on_disk = sorted(
                path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet")
            )
            assert on_disk == sorted(file.path for file in archive.manifest.files)


def test_a_clock_that_is_set_back_disturbs_nothing(tmp_path: Path) -> None:
    clock = Clock()
    with ArchiveStore(tmp_path, "f", clock=clock, seal_interval=60) as store:
        for day in (0, 400, -1, 0):
            clock.now += 86_400 * day
            store.append([batch(1, store.next_offset + 1, 2)])
        clock.now -= 86_400
        assert store.needs_sealing
        store.seal()
        with Archive.open(tmp_path) as archive:
            found = [(file.date, file.rows, file.stored) for file in archive.manifest.files]
            assert [(date, rows) for date, rows, _ in found] == [
                ("2027-01-15", 2),
                ("2028-02-19", 2),
                ("2028-02-18", 4),
            ]
            assert [row[1] for row in rows_in(archive)] == list(range(1, 9))


def test_a_long_tail_becomes_several_files(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "f", seal_rows=100_000) as store:
        for number in range(5):
            store.append([batch(1, 1 + 50_000 * number, 50_000, size=2)])
        store.seal()
        with Archive.open(tmp_path) as archive:
            assert [file.rows for file in archive.manifest.files] == [100_000, 100_000, 50_000]
            for path in archive.parquet_paths:
                metadata = parquet.read_metadata(path)
                groups = range(metadata.num_row_groups)
                assert all(metadata.row_group(each).num_rows <= MAX_GROUP_ROWS for each in groups)


def test_reading_and_sealing_beside_appending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "CHECKPOINT_BYTES", 1000)
    total = 300
    with ArchiveStore(tmp_path, "f", segment_size=3000, grace=0) as store:

        def write() -> None:
            for number in range(total):
                store.append([batch(1, 1 + 3 * number, 3)])

        def seal() -> None:
            while writer.is_alive():
                store.seal()
                store.apply_retention()

        writer, sealer = Thread(target=write), Thread(target=seal)
        writer.start()
        sealer.start()
        offset = 0
        while offset < 3 * total:
            answer = store.query(ArchiveQuery(Vector(), offset=offset, limit_bytes=2000))
            found = [row[1] for row in rows_of(answer.batches)]
            assert found == list(range(offset + 1, answer.offset + 1))
            offset = answer.offset
        writer.join()
        sealer.join()
    with Archive.open(tmp_path) as archive:
        assert [row[1] for row in rows_in(archive)] == list(range(1, 3 * total + 1))


@pytest.mark.parametrize("sealed", [False, True])
def test_what_is_found_late_is_given_in_its_place(sealed: bool, tmp_path: Path) -> None:
    """Its rows have later offsets, which a record says; whoever asks by vector gets them in order."""
    with ArchiveStore(tmp_path, "f") as store:
        store.append(
            [batch(1, 1, 3), LostRange(publisher(1), 4, 6), batch(1, 7, 3), batch(2, 1, 2)]
        )
        assert store.archive_state().lost == (LostRange(publisher(1), 4, 6),)
        if sealed:
            store.sync()
            store.seal()
        with pytest.raises(ValueError, match="is already stored"):
            store.append([batch(1, 4, 2)])
        store.append([FoundRange(publisher(1), 4, 5), batch(1, 4, 2)])
        store.append([batch(1, 10, 1)])
        if sealed:
            store.sync()
            store.seal()
    with ArchiveStore(tmp_path, "f") as store:
        state = store.archive_state()
        assert state.vector == {publisher(1): 10, publisher(2): 2}
        assert state.next_offset == 11
        assert state.lost == (LostRange(publisher(1), 6, 6),)
        found = store.query(ArchiveQuery(Vector({publisher(1): 2})))
        own = [s for p, s, *_ in rows_of(found.batches) if p == publisher(1)]
        assert own == [3, 4, 5, 7, 8, 9, 10]
        assert found.reached == state.vector
        holes = Vector({publisher(1): 10, publisher(2): 2}, {publisher(1): [(2, 2), (5, 6)]})
        found = store.query(ArchiveQuery(holes))
        assert [s for _, s, *_ in rows_of(found.batches)] == [2, 5]
        part = store.query(ArchiveQuery(Vector(), (MessageRange(publisher(1), 4, 6),)))
        assert [s for _, s, *_ in rows_of(part.batches)] == [4, 5]
        little = store.query(ArchiveQuery(Vector({publisher(1): 3}), (), 0, 1))
        assert [s for _, s, *_ in rows_of(little.batches)][:1] == [4]
    with Archive.open(tmp_path) as archive:
        assert [row[1] for row in rows_in(archive)] == [1, 2, 3, 7, 8, 9, 1, 2, 4, 5, 10]
        (record,) = [each for each in archive.records() if isinstance(each.record, FoundRange)]
        assert record.offset == 8
