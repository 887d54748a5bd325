"""Loss of power: whole brokers on simulated disks, by seed and at every moment; and controls to be caught.

`./dev bench powerloss` takes other seeds each time, and twenty times as many. Each failure names its seed;
`python -m bench.powerloss SEED` repeats it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bench.crash.verdict import Kind
from bench.powerloss import work
from bench.powerloss.era import Era, Script, live_through
from bench.powerloss.flips import Result
from bench.powerloss.machine import Machine
from bench.powerloss.node import Node
from bench.powerloss.topology import DISTRICTS
from recado.broker.queue import Queue
from recado.journal import journal, record
from recado.journal.mark import MARK_FILE as MARK
from recado.journal.record import CorruptJournalError
from recado.server.store.journal_store import JournalStore
from recado.server.store.pending_run import PendingRun
from recado.server.store.segments import StoreSegments
from recado.server.store.sync import SyncJob
from recado.server.store.turn_batch import TurnBatch
from recado.simulator.disk import SimulatedDisk

# Every line that these reach has tests of its own: see tests/conftest.py.
pytestmark = pytest.mark.no_cover

SEEDS = 500
PARTS = 5


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_when_the_power_goes(part: int) -> None:
    counts: Counter[str] = Counter()
    flipped: Counter[Result] = Counter()
    for seed in range(part, SEEDS, PARTS):
        outcome = live_through(seed, Script(flips=1 if seed % 4 == 0 else 0))
        assert outcome.problems[:10] == [], f"seed {seed}"
        counts += outcome.verdict.counts
        flipped += outcome.flipped
    assert min(counts[each] for each in ("committed", "refused", "returned", "shown", "again")) > 0
    assert counts["confirmed"] > 5000
    assert flipped[Result.REFUSED] > flipped[Result.CUT] > 0


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_goes_at_every_moment(part: int) -> None:
    for moment in range(part, work.count_moments() + 1, PARTS):
        outcome = work.at_moment(moment)
        assert outcome.problems[:10] == [], f"--moment {moment}"


def test_what_the_script_does() -> None:
    """Else every moment of it would prove little."""
    outcome = work.at_moment(work.NEVER)
    assert outcome.problems == []
    counts = outcome.verdict.counts
    needed = ("confirmed", "committed", "rolled_back", "rejected", "acked", "shown", "redelivered")
    assert {each for each in needed if not counts[each]} == set()
    assert outcome.moments > 200


def test_every_seed_is_the_same_era_again() -> None:
    traces = [live_through(seed, Script(flips=1)).trace for seed in (1, 2, 3)]
    assert traces == [live_through(seed, Script(flips=1)).trace for seed in (1, 2, 3)]
    assert len(set(traces)) == 3


def test_a_bit_that_is_wrong_is_found() -> None:
    """One in fifty; the benchmark tries them all."""
    tally = work.bits(range(0, work.count_bits(), 50))
    assert tally.problems == []
    assert tally.flipped[Result.REFUSED] > 500
    assert set(tally.flipped) <= {Result.REFUSED, Result.HARMLESS}


def test_an_incomplete_journal_is_consistent_or_refused() -> None:
    """Files at the end are missing, and so is the durable mark: segments were dropped on the strength of
    records that are
    missing now."""
    era = Era(work.FOLDER_SEED, work.SMALL)
    era.populate()
    names = [name for name in era.machine.journal.names() if name != MARK]
    refusals = []
    for count in range(len(names)):
        machine = era.machine.copy()
        for name in (*names[count:], MARK):
            machine.journal.remove(name)
        try:
            Node(machine, era.shape, era.now).check()
        except CorruptJournalError as error:
            refusals.append(error.reason)
    assert 0 < len(refusals) < len(names)
    assert all("were dropped" in each for each in refusals)


# ── controls: deliberate bugs are detected ────────────────────────────────────────────────────────────────


def is_caught(count: int, *districts: str, kind: Kind | None = None) -> bool:
    """Whether one of so many eras in these districts has a violation of a kind, or anything wrong at all."""
    chosen = tuple(each for each in DISTRICTS if each.name in districts)
    for seed in range(count):
        outcome = live_through(seed, Script(chosen))
        if outcome.problems if kind is None else outcome.verdict.of(kind):
            return True
    return False


def test_a_sync_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages are lost, or the mark tells of them, and the node does not start."""
    monkeypatch.setattr(SimulatedDisk, "_sync", lambda disk, number: None)
    assert is_caught(10, "orders", "news")


def test_names_that_are_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "_sync_folder", lambda disk: None)
    assert is_caught(10, "orders", "news")


def test_a_disk_that_lies_about_the_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_but_the_last(disk: SimulatedDisk, number: int) -> None:
        inode = disk.inodes[number]
        late, inode.unsynced = inode.unsynced[-1:], inode.unsynced[:-1]
        real(disk, number)
        inode.unsynced = late

    real = SimulatedDisk._sync
    monkeypatch.setattr(SimulatedDisk, "_sync", all_but_the_last)
    assert is_caught(10, "orders", "ranks")


def test_a_confirm_without_a_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncJob, "run", lambda sync: None)
    assert is_caught(30, "orders", "ranks", kind=Kind.LOST)


def test_a_missing_checksum_check_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def constant(_data: bytes, _seed: int = 0) -> int:
        return 7

    monkeypatch.setattr(journal, "crc32", constant)
    monkeypatch.setattr(record, "crc32", constant)
    tally = work.bits(range(0, work.count_bits(), 500))
    assert tally.flipped[Result.SILENT] > 10


def test_a_message_that_is_settled_before_its_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def settle_first(turn: TurnBatch, segments: StoreSegments) -> None:
        pending: list[PendingRun | bytes] = turn._pending
        if turn._touched and pending and not turn.is_atomic:
            turn._pending, turn._last = [], None
            paging_out, turn._paging_out = turn._paging_out, {}
            real(turn, segments)
            turn._pending, turn._paging_out = pending, paging_out
        real(turn, segments)

    def passed_on(
        store: JournalStore, queue: Queue, first: int, count: int, step: int, to: object
    ) -> None:
        store.settle(queue, first, count, step)

    real = TurnBatch.write_to
    monkeypatch.setattr(TurnBatch, "write_to", settle_first)
    monkeypatch.setattr(JournalStore, "settle_forwarded", passed_on)
    assert is_caught(300, "picked", "brief", kind=Kind.LOST)


def test_a_group_that_is_not_written_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(segments: StoreSegments, records: Any) -> Any:
        return [segments.append(each) for each in records]

    monkeypatch.setattr(StoreSegments, "append_group", one_by_one)
    assert is_caught(300, "books", kind=Kind.TORN)


def test_a_machine_whose_folder_was_removed_may_have_it_back() -> None:
    machine = Machine(1)
    machine.open("7").open("a", create=True)
    machine.open("7").sync_folder()
    machine.remove("7")
    assert machine.list_names() == []
    again = set()
    for operations in range(20):
        machine.operations = operations
        again.add(tuple(machine.after_power_loss().list_names()))
    assert again == {(), ("7",)}


def test_each_district_is_fine_by_itself() -> None:
    for district in DISTRICTS:
        outcome = live_through(1, Script((district,), incarnations=2))
        assert outcome.problems == [], district.name
