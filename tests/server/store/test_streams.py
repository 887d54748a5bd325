"""The log of a stream on disk: the same cases as in memory, and recovery."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.store import DurabilityListener, MessageStore
from recado.broker.stream_log import StreamLog, StreamReadCache
from recado.definitions.exporter import export_definitions
from recado.definitions.importer import import_definitions
from recado.journal.check import check_segments, repair_segments
from recado.journal.disk import Disk, MemoryDisk
from recado.journal.journal import Journal
from recado.journal.record import CorruptJournalError
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from recado.server.store.streams import DiskStreamFolders, StreamJournal, StreamJournals
from recado.simulator.disk import SimulatedDisk
from tests.broker.stage import new_broker, run_of
from tests.broker.stream_log_cases import (
    NewLog,
    StreamLogCases,
    StreamLogMachine,
    append,
    read_all,
)

SIZE = 4096


class MemoryFolders:
    def __init__(self) -> None:
        self.disks: dict[str, Disk] = {}

    def list_names(self) -> list[str]:
        return sorted(self.disks)

    def open(self, name: str) -> Disk:
        return self.disks.setdefault(name, MemoryDisk())

    def remove(self, name: str) -> None:
        del self.disks[name]


class Clerk(MessageStore):
    """As much of a store as a stream needs."""

    has_disk = True

    def __init__(self) -> None:
        self.folders = MemoryFolders()
        self.failures: list[str] = []
        self.on_failure = self.failures.append
        self.restart()

    def restart(self) -> None:
        """Reopen all streams, as a restart does."""
        self.streams = StreamJournals(self.folders, self)
        self.waiting: list[DurabilityListener] = []

    def notify_when_durable(self, listener: DurabilityListener) -> None:
        self.waiting.append(listener)

    def commit(self) -> None:
        self.streams.write()
        self.streams.sync()
        self.durable_lsn = self.lsn
        self.lsn += 1
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.on_durable()


class Committed:
    """A log that trims only after everything is durable, as streams do."""

    def __init__(self, clerk: Clerk, size: int) -> None:
        self.clerk = clerk
        self.size = size
        self.reopen()

    def reopen(self) -> None:
        self.clerk.restart()
        self.log: StreamJournal = self.clerk.streams.open(1, self.size)

    @property
    def first(self) -> int:
        return self.log.first_offset

    @property
    def next(self) -> int:
        return self.log.next_offset

    def __getattr__(self, name: str) -> object:
        return getattr(self.log, name)

    def trim(self, most: int | None, oldest: int | None, safe: int) -> int | None:
        self.clerk.commit()
        return self.log.trim(most, oldest, safe)


@pytest.fixture
def clerk() -> Clerk:
    return Clerk()


class TestJournalLog(StreamLogCases):
    @pytest.fixture
    def new_log(self, clerk: Clerk) -> NewLog:
        return lambda size: Committed(clerk, size)  # type: ignore[return-value]


class JournalLogMachine(StreamLogMachine):
    def new_log(self) -> StreamLog:
        self.committed = Committed(Clerk(), SIZE)
        return self.committed  # type: ignore[return-value]

    @rule()
    def restart(self) -> None:
        committed = self.committed
        committed.clerk.commit()
        first = committed.first
        committed.reopen()
        assert committed.first == first


TestJournalLogInAnyOrder = JournalLogMachine.TestCase
TestJournalLogInAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────


def test_committed_messages_are_recovered(clerk: Clerk) -> None:
    log = clerk.streams.open(7, SIZE)
    append(log, b"a", b"b", now=5)
    append(log, b"c", now=6)
    assert clerk.durable_ops == 3
    assert [journal.position for journal in clerk.streams.journals()] == [log.journal.position]
    clerk.commit()
    assert clerk.streams.is_durable
    append(log, b"lost")
    clerk.restart()
    again = clerk.streams.open(7, SIZE)
    assert read_all(again) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert again.offset_at(6) == 2
    append(again, b"d", now=1)
    assert again.next_offset == 4
    assert again.offset_at(7) == 4


def test_a_segment_that_a_crash_restored_is_dropped_again(clerk: Clerk) -> None:
    """Removals may be undone by a crash, and not in order."""
    log = clerk.streams.open(1, SIZE)
    for _ in range(20):
        append(log, b"x" * 1000)
    clerk.commit()
    disk = clerk.folders.disks["1"]
    assert isinstance(disk, MemoryDisk)
    before = dict(disk.files)
    log.trim(8000, None, log.next_offset)
    (oldest, *_) = [name for name in before if name not in disk.files]
    first = log.first_offset
    disk.files[oldest] = before[oldest]
    clerk.restart()
    again = clerk.streams.open(1, SIZE)
    assert (again.first_offset, again.next_offset) == (first, 20)
    assert [offset for offset, _ in read_all(again)] == list(range(first, 20))
    assert oldest not in disk.files


def test_a_loss_of_power_at_any_moment(clerk: Clerk) -> None:
    """Committed messages exist at their offsets; further ones were published, in order."""
    disk = clerk.folders.disks["1"] = SimulatedDisk(1)
    log = clerk.streams.open(1, SIZE)
    committed = [(0, 0, 0)]  # (operations, first offset, next offset)
    for i in range(30):
        append(log, *(b"%03d" % (3 * i + k) * 100 for k in range(3)), now=i)
        clerk.commit()
        if i % 7 == 6:
            log.trim(6000, None, log.next_offset)
        committed.append((len(disk.log), log.first_offset, log.next_offset))
    for chance in range(3):
        for moment, after in disk.crash_points(chance):
            _, first, end = max(each for each in committed if each[0] <= moment)
            clerk.folders.disks["1"] = after
            clerk.restart()
            again = clerk.streams.open(1, SIZE)
            found = read_all(again)
            assert again.first_offset <= max(log.first_offset, first)
            assert again.next_offset >= end
            assert found == [
                (i, b"%03d" % i * 100) for i in range(again.first_offset, again.next_offset)
            ]


def test_damaged_messages_are_not_served(clerk: Clerk) -> None:
    log = clerk.streams.open(1, SIZE)
    append(log, b"abc")
    clerk.commit()
    clerk.restart()
    again = clerk.streams.open(1, SIZE)
    disk = clerk.folders.disks["1"]
    assert isinstance(disk, MemoryDisk)
    (content,) = (content for name, content in disk.files.items() if name.endswith(".journal"))
    content[content.index(b"abc")] ^= 1
    with pytest.raises(CorruptJournalError):
        again.read(0, 1)
    assert len(clerk.failures) == 1
    assert "cannot be read" in clerk.failures[0]


# ── after a repair ────────────────────────────────────────────────────────────────────────────────────────


def repaired(clerk: Clerk, damaged: set[int]) -> StreamJournal:
    """A stream of 40 messages of 500 bytes, in segments of 4 KiB, of which some rotted and were dropped."""
    log = clerk.streams.open(1, SIZE)
    for number in range(40):
        append(log, b"<%03d>" % number * 100, now=number)
    clerk.commit()
    disk = clerk.folders.disks["1"]
    assert isinstance(disk, MemoryDisk)
    for content in disk.files.values():
        for number in damaged:
            at = content.find(b"<%03d>" % number)
            if at >= 0:
                content[at] ^= 0x80
    clerk.restart()
    with pytest.raises(CorruptJournalError):
        clerk.streams.open(1, SIZE)
    repair_segments(disk, list(check_segments(disk)))
    clerk.restart()
    return clerk.streams.open(1, SIZE)


@pytest.mark.parametrize(
    "damaged",
    [{0}, {3}, {20}, {3, 4, 20}, set(range(5, 30)), {38}, set(range(15)), {6}, {7}, {8}],
    ids=str,
)
def test_intact_messages_keep_their_offsets_after_a_repair(clerk: Clerk, damaged: set[int]) -> None:
    log = repaired(clerk, damaged)
    left = [number for number in range(40) if number not in damaged]
    for start in (0, 4, 7, 20, 39):
        expected = [(number, b"<%03d>" % number * 100) for number in left if number >= start]
        assert read_all(log, start) == expected
    assert (log.first_offset, log.next_offset) == (left[0], 40)
    assert log.offset_at(20) == min(number for number in left if number >= 20)
    blocks, found, offset = StreamReadCache(), [], 0
    while offset < log.next_offset:
        run, _ = blocks.read(log, offset, log.next_offset)
        offset = max(offset, run.first_position) + 1
        found.append(offset - 1)
    assert found == left
    append(log, b"new", now=50)
    clerk.commit()
    clerk.restart()
    again = clerk.streams.open(1, SIZE)
    assert [offset for offset, _ in read_all(again)] == [*left, 40]


def test_a_repaired_stream_is_trimmed_as_usual(clerk: Clerk) -> None:
    log = repaired(clerk, {*range(5, 20), 30})
    log.trim(3 * SIZE, None, log.next_offset)
    kept = [number for number in range(log.first_offset, 40) if number != 30]
    assert 20 <= log.first_offset < 30
    assert [offset for offset, _ in read_all(log)] == kept
    clerk.commit()
    clerk.restart()
    again = clerk.streams.open(1, SIZE)
    assert [offset for offset, _ in read_all(again)] == kept
    again.trim(0, None, again.next_offset)
    assert len([name for name in clerk.folders.disks["1"].names() if "journal" in name]) == 1


def test_a_folder_that_is_missing_is_damage(clerk: Clerk) -> None:
    with pytest.raises(CorruptJournalError, match=r"streams/1 is damaged .* the folder is missing"):
        clerk.streams.open(1, SIZE, existing=True)
    assert clerk.folders.list_names() == []


# ── together with the store ──────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_is_tried_again(clerk: Clerk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = clerk.streams.open(1, SIZE)
    append(log, b"a")
    with monkeypatch.context() as full:
        full.setattr(log, "write", _no_space)
        with pytest.raises(OSError, match="no space"):
            clerk.streams.write()
    assert not clerk.streams.is_durable
    clerk.commit()
    clerk.restart()
    assert read_all(clerk.streams.open(1, SIZE)) == [(0, b"a")]


def _no_space() -> None:
    raise OSError("no space")


def test_a_stream_is_removed_once_its_end_is_safe(clerk: Clerk) -> None:
    log = clerk.streams.open(1, SIZE)
    append(log, b"a")
    clerk.streams.write()
    append(log, b"b")
    clerk.streams.delete(1)
    clerk.streams.on_durable()
    assert clerk.folders.list_names() == ["1"]
    clerk.commit()
    assert clerk.folders.list_names() == []


class LimitedFolders(MemoryFolders):
    """There is space for some folders; a folder that does not fit remains without its files."""

    def __init__(self, space: int) -> None:
        super().__init__()
        self.space = space

    def open(self, name: str) -> Disk:
        opened = super().open(name)
        if len(self.disks) > self.space:
            raise OSError("no space")
        return opened


def test_an_import_with_streams_is_atomic_on_a_full_disk(disk: MemoryDisk) -> None:
    folders = LimitedFolders(3)
    store, broker = started(disk, folders)
    queues = [
        {"name": name, "vhost": "new", "type": kind, "durable": True, "auto_delete": False}
        for name, kind in (("a", "stream"), ("b", "classic"), ("c", "stream"), ("d", "stream"))
    ]
    old = {**queues[0], "vhost": "/", "name": "old"}
    import_definitions(broker, {"queues": [old]}, 0)
    before = export_definitions(broker)
    wanted = {
        "users": [{"name": "ana", "password_hash": ""}],
        "vhosts": [{"name": "new"}],
        "global_parameters": [{"name": "cluster_name", "value": "shop"}],
        "queues": [old, *queues],
    }
    with pytest.raises(OSError, match="no space"):
        import_definitions(broker, wanted, 0)
    assert export_definitions(broker) == before
    assert len(folders.disks) == 1
    store.write()
    assert export_definitions(started(disk, folders)[1]) == before

    folders.space = 4
    store, broker = started(disk, folders)
    import_definitions(broker, wanted, 0)
    for name in ("a", "c", "d"):
        broker.vhosts["new"].queues[name].publish(run_of([name.encode()]), 0)
    store.write()
    after = export_definitions(broker)
    assert {each["name"] for each in after["queues"]} == {"old", "a", "b", "c", "d"}
    _, broker = started(disk, folders)
    assert export_definitions(broker) == after
    assert [broker.vhosts["new"].queues[name].ready for name in "abcd"] == [1, 0, 1, 1]


class Shut(MemoryFolders):
    """There is no space for another folder."""

    def open(self, name: str) -> Disk:
        if name not in self.disks:
            raise OSError("no space")
        return super().open(name)


def test_a_stream_without_room_for_its_folder_is_not_there(disk: MemoryDisk) -> None:
    """Otherwise publishers to it would fail, and so would the next start."""
    folders: MemoryFolders = Shut()
    wanted = QueueSettings(durable=True, queue_type="stream", arguments={"x-queue-type": "stream"})
    store, broker = started(disk, folders)
    with pytest.raises(OSError, match="no space"):
        broker.create_queue(broker.vhosts["/"], "s", wanted, None, 0)
    assert "s" not in broker.vhosts["/"].queues
    store.write()
    folders = MemoryFolders()
    store, broker = started(disk, folders)
    assert "s" not in broker.vhosts["/"].queues
    stream = broker.create_queue(broker.vhosts["/"], "s", wanted, None, 0)
    stream.publish(run_of([b"a"]), 0)
    store.write()
    _, broker = started(disk, folders)
    assert broker.vhosts["/"].queues["s"].ready == 1


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def started(disk: Disk, folders: MemoryFolders) -> tuple[JournalStore, Broker]:
    store = JournalStore(Journal(disk), folders)
    broker = new_broker(store)
    restore_broker(store, broker, 0)
    return store, broker


def test_folders_that_a_crash_left_are_removed(clerk: Clerk) -> None:
    for number in (1, 2, 3):
        clerk.streams.open(number, SIZE)
    clerk.restart()
    clerk.streams.remove_orphans({2})
    assert clerk.folders.list_names() == ["2"]


def test_closing_makes_all_durable(clerk: Clerk) -> None:
    append(clerk.streams.open(1, SIZE), b"a")
    append(clerk.streams.open(2, SIZE), b"b")
    clerk.streams.delete(2)
    clerk.streams.close()
    clerk.restart()
    assert clerk.folders.list_names() == ["1"]
    assert read_all(clerk.streams.open(1, SIZE)) == [(0, b"a")]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[StreamJournals]:
    streams = StreamJournals(DiskStreamFolders(tmp_path / "streams"), Clerk())
    yield streams
    streams.close()


def test_real_folders(real: StreamJournals, tmp_path: Path) -> None:
    folders = DiskStreamFolders(tmp_path / "streams")
    assert folders.list_names() == []
    log = real.open(5, SIZE)
    append(log, b"a")
    real.write()
    real.sync()
    assert folders.list_names() == ["5"]
    assert read_all(StreamJournal(folders.open("5"), SIZE, real)) == [(0, b"a")]
    folders.remove("5")
    assert folders.list_names() == []
