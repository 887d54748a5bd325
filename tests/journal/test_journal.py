"""The journal within one process: appending, groups, segments, reading, and disks that fill up or fail."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from recado.journal import journal as journal_module
from recado.journal.disk import Disk, FolderDisk, FolderFile, MemoryDisk, MemoryFile
from recado.journal.journal import Journal
from recado.journal.record import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, CorruptJournalError
from recado.simulator.disk import SimulatedDisk


def opened(disk: Disk, segment_size: int = 200) -> Journal:
    journal = Journal(disk, segment_bytes=segment_size)
    for _ in journal.recover():
        pass
    return journal


def contents(disk: Disk) -> list[bytes]:
    return [payload for _, payload in Journal(disk).recover()]


def test_records_have_positions_that_grow() -> None:
    journal = opened(MemoryDisk())
    assert journal.append() == []
    assert journal.append(b"one") == [FILE_HEADER_BYTES]
    assert journal.append(b"two", b"") == [FILE_HEADER_BYTES + 12, FILE_HEADER_BYTES + 24]
    assert journal.position == FILE_HEADER_BYTES + 33
    assert journal.durable_position == 0


def test_a_record_can_be_read_before_and_after_it_is_written() -> None:
    journal = opened(MemoryDisk())
    first, second = journal.append(b"one", b"two")
    assert journal.read(second) == b"two"
    journal.write()
    (third,) = journal.append(b"three")
    assert [journal.read(at) for at in (first, second, third)] == [b"one", b"two", b"three"]
    assert list(journal.scan(first, third + 1)) == [
        (first, b"one"),
        (second, b"two"),
        (third, b"three"),
    ]
    assert list(journal.scan(second, third)) == [(second, b"two")]


def test_where_there_is_no_record_none_is_read() -> None:
    journal = opened(MemoryDisk())
    with pytest.raises(LookupError):
        journal.read(0)
    journal.append(b"one")
    with pytest.raises(LookupError):
        journal.read(journal.position)
    with pytest.raises(CorruptJournalError):
        journal.read(FILE_HEADER_BYTES + 1)


def test_a_large_record_is_read_whole() -> None:
    journal = opened(MemoryDisk(), segment_size=1 << 24)
    large = bytes(range(256)) * 20_000
    positions = [journal.append(payload)[0] for payload in (b"small", large, b"last")]
    journal.write()
    assert [payload for _, payload in journal.scan(0, journal.position)] == [
        b"small",
        large,
        b"last",
    ]
    assert journal.read(positions[1]) == large


def test_nothing_is_appended_before_recovery_nor_after_the_end() -> None:
    journal = Journal(MemoryDisk())
    with pytest.raises(RuntimeError):
        journal.append(b"early")
    journal.close()
    journal = opened(MemoryDisk())
    journal.append(b"in time")
    journal.close()
    with pytest.raises(RuntimeError):
        journal.append(b"late")


def test_a_group_can_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "GROUP_MAX_BYTES", 300)
    journal = opened(MemoryDisk())
    with pytest.raises(ValueError, match="too large"):
        journal.append(bytes(301))
    journal.append(bytes(290))


def test_a_full_segment_is_sealed_and_a_new_one_begins() -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    for number in range(10):
        journal.append(bytes([number]) * 50)
    journal.write()
    assert [part.sealed for part in journal.segments] == [True] * 4 + [False]
    bases = [part.base for part in journal.segments]
    assert disk.names() == [f"{base:020d}.journal" for base in bases] + ["MARK"]
    assert [part.end for part in journal.segments] == [*bases[1:], journal.position]
    assert journal.segment_base(bases[2]) == journal.segment_base(bases[3] - 1) == bases[2]
    assert contents(disk) == [bytes([number]) * 50 for number in range(10)]


def test_a_group_larger_than_a_segment_gets_a_larger_one() -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    journal.append(b"small")
    journal.append(bytes(150), bytes(150), bytes(150))
    journal.append(b"next")
    journal.write()
    assert len(journal.segments) == 3
    assert contents(disk) == [b"small", bytes(150), bytes(150), bytes(150), b"next"]


def test_after_a_restart_the_last_segment_goes_on() -> None:
    disk = MemoryDisk()
    for number in range(8):
        journal = opened(disk)
        assert journal.truncated_bytes == 0
        journal.append(bytes([number]) * 50)
        journal.close()
    assert contents(disk) == [bytes([number]) * 50 for number in range(8)]
    assert len(disk.names()) == 5


def test_reserved_space_is_freed_at_the_end(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path)
    journal = opened(disk, 1 << 20)
    journal.append(b"one")
    journal.write()
    (name, _) = disk.names()
    assert (tmp_path / name).stat().st_size == 1 << 20
    journal.close()
    assert (tmp_path / name).stat().st_size == FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 3


def test_nothing_is_reserved_on_a_disk_with_little_room() -> None:
    disk = SimulatedDisk()
    disk.fill(8000 - 1)
    journal = opened(disk, 1000)
    journal.append(b"one")
    journal.write()
    assert journal.last_file_bytes() == FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 3


def test_a_quota_may_allow_less_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: MemoryFile, size: int) -> None:
        raise OSError(errno.EDQUOT, "disk quota exceeded")

    disk = MemoryDisk()
    journal = opened(disk)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryFile, "reserve", refuse)
        patched.setattr(MemoryFile, "write", grow_and_write)
        journal.append(b"one")
        journal.write()
    journal.sync()
    assert contents(disk) == [b"one"]


def grow_and_write(file: MemoryFile, at: int, *parts: bytes) -> None:
    content, data = file._content, b"".join(parts)
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


def test_a_roll_begins_a_segment_so_that_the_last_can_be_dropped() -> None:
    disk = MemoryDisk()
    journal = opened(disk, 1000)
    assert journal.last_file_bytes() == 0
    journal.append(b"one")
    assert journal.last_file_bytes() == 0
    journal.write()
    assert journal.last_file_bytes() == 1000
    journal.roll()
    journal.append(b"two")
    journal.write()
    journal.sync()
    assert contents(disk) == [b"one", b"two"]
    journal.drop(0)
    journal.sync()
    assert contents(disk) == [b"two"]
    assert len(journal.segments) == 1


def test_a_segment_is_dropped_wherever_it_is() -> None:
    disk = MemoryDisk()
    journal = opened(disk)
    positions = [journal.append(bytes([number]) * 100)[0] for number in range(4)]
    journal.write()
    middle = journal.segments[1].base
    with pytest.raises(ValueError, match="durable"):
        journal.drop(middle)
    journal.sync()
    journal.drop(middle)
    assert [at for at, _ in journal.scan(0, journal.position)] == [
        positions[0],
        *positions[2:],
    ]
    assert [at for at, _ in journal.scan(middle, journal.position)] == positions[2:]
    with pytest.raises(LookupError):
        journal.read(positions[1])
    with pytest.raises(ValueError, match="durable"):
        journal.drop(journal.segments[-1].base)
    journal.close()
    assert [payload[0] for payload in contents(disk)] == [0, 2, 3]


def test_a_segment_stays_until_the_next_one_is_durable() -> None:
    """Else nothing would be left to tell where the journal goes on."""
    journal = opened(MemoryDisk())
    journal.append(bytes(150))
    journal.write()
    journal.sync()
    journal.append(bytes(150))
    with pytest.raises(ValueError, match="durable"):
        journal.drop(0)
    journal.write()
    with pytest.raises(ValueError, match="durable"):
        journal.drop(0)
    journal.sync()
    journal.drop(0)


def test_no_room_for_a_segment(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    disk.fill(20)
    (position,) = journal.append(b"patience")
    for _ in range(3):
        with pytest.raises(OSError, match="space") as raised:
            journal.write()
        assert raised.value.errno == errno.ENOSPC
        assert disk.free_bytes() == 20
        assert disk.names() == ["MARK"]
    assert journal.read(position) == b"patience"
    assert journal.sync() == 0
    disk.fill(1000)
    journal.write()
    assert journal.sync() == journal.position
    assert contents(disk) == [b"patience"]


def test_no_room_for_the_rest_of_a_batch() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    for number in range(3):
        journal.append(bytes([number]) * 100)
    disk.fill(200)  # for one segment
    for _ in range(2):
        with pytest.raises(OSError, match="space"):
            journal.write()
    journal.sync()
    assert journal.durable_position == journal.segments[0].end
    journal.append(b"more")
    assert [len(payload) for _, payload in journal.scan(0, journal.position)] == [100, 100, 100, 4]
    disk.fill(None)
    journal.write()
    journal.sync()
    assert [payload[:1] for payload in contents(disk)] == [b"\0", b"\1", b"\2", b"m"]


def test_the_last_room_is_written_to_though_a_segment_would_not_fit() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    disk.fill(100)
    journal.append(b"the last")
    journal.write()
    journal.sync()
    assert contents(disk) == [b"the last"]


def test_another_trouble_with_room_is_no_want_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_file: object, _size: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(MemoryFile, "reserve", broken)
    journal = opened(MemoryDisk())
    journal.append(b"one")
    with pytest.raises(OSError, match="input"):
        journal.write()


def test_no_room_to_go_on_after_a_restart() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append(b"one")
    journal.close()
    journal = opened(disk)
    disk.fill(5)
    journal.append(b"two")
    with pytest.raises(OSError, match="space"):
        journal.write()
    disk.fill(None)
    journal.write()
    assert contents(disk) == [b"one", b"two"]


def test_after_a_failed_sync_nothing_is_called_durable_any_more() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append(b"one")
    journal.write()
    disk.fail_sync()
    for _ in range(2):
        with pytest.raises(OSError, match="error"):
            journal.sync()
    with pytest.raises(OSError, match="error"):
        journal.write()
    assert journal.durable_position == 0
    journal.close()


def test_a_folder_that_cannot_be_synced_is_a_failed_sync() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append(bytes(150))
    journal.write()
    journal.append(bytes(150))
    disk.fail_sync()
    with pytest.raises(OSError, match="error"):  # before a second segment, the first one's name
        journal.write()
    with pytest.raises(OSError, match="error"):
        journal.sync()


def test_a_mark_that_cannot_be_written_is_not_an_error() -> None:
    disk = SimulatedDisk()
    disk.fill(FILE_HEADER_BYTES + 200)
    journal = opened(disk)
    disk.fill(200)
    journal.append(b"one")
    journal.write()
    disk.remove("MARK")
    assert journal.sync() == journal.position


def test_the_end_comes_even_if_nothing_can_be_written() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append(b"one")
    disk.fill(0)
    with pytest.raises(OSError, match="space"):
        journal.close()


def test_reading_detects_rot() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    positions = journal.append(b"one", b"two", b"three")
    journal.write()
    name = disk.names()[0]
    disk.flip_bit(name, 8 * (positions[1] + RECORD_HEADER_BYTES) + 3)
    assert journal.read(positions[0]) == b"one"
    with pytest.raises(CorruptJournalError) as raised:
        journal.read(positions[1])
    assert (raised.value.file, raised.value.position) == (name, positions[1])
    assert "checksum" in str(raised.value)
    scan = journal.scan(0, journal.position)
    assert next(scan) == (positions[0], b"one")
    with pytest.raises(CorruptJournalError):
        next(scan)


def test_a_thread_syncs_while_records_are_appended(tmp_path: Path) -> None:
    disk = FolderDisk(tmp_path)
    journal = opened(disk, 4096)
    done = threading.Event()
    synced: list[int] = []

    def keep_syncing() -> None:
        while not done.is_set():
            synced.append(journal.sync())

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    try:
        for number in range(2000):
            journal.append(number.to_bytes(4, "big") * 20)
            journal.write()
            for part in journal.segments[:-3]:
                if part.end < journal.durable_position:
                    journal.drop(part.base)
    finally:
        done.set()
        thread.join()
    assert synced == sorted(synced)
    assert journal.sync() == journal.position
    journal.close()
    found = contents(disk)
    assert found[-1] == (1999).to_bytes(4, "big") * 20
    assert len(found) < 2000


def test_a_dropped_segment_is_unlinked_and_takes_space_until_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[FolderFile] = []
    monkeypatch.setattr(FolderFile, "close", lambda file: closed.append(file))
    journal = opened(FolderDisk(tmp_path))
    for _ in range(2):
        journal.append(bytes(150))
        journal.write()
        journal.sync()
    dropped = journal.segments[0]
    journal.drop(dropped.base)
    assert not journal.path_of(dropped).exists()
    assert closed == []
    journal.close_dropped()
    journal.close_dropped()
    assert closed == [dropped.file]
    monkeypatch.undo()
    for each in closed:
        each.close()
    journal.close()
