"""Verification finds every damage, and repair drops nothing else."""

from __future__ import annotations

import pytest

from recado.journal import check as check_module
from recado.journal.check import check_segments, repair_segments
from recado.journal.disk import Disk, MemoryDisk
from recado.journal.journal import Journal
from recado.journal.mark import MARK_FILE as MARK
from recado.journal.record import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, CorruptJournalError
from recado.journal.segment import file_name

PAYLOADS = [bytes([number]) * 20 for number in range(12)]
SIZE = RECORD_HEADER_BYTES + 20


def opened(disk: Disk) -> Journal:
    journal = Journal(disk, segment_bytes=200)
    for _ in journal.recover():
        pass
    return journal


def contents(disk: Disk) -> list[bytes]:
    return [payload for _, payload in Journal(disk).recover()]


@pytest.fixture
def disk() -> MemoryDisk:
    """Three files: five records, five of which the last two are a group, two."""
    disk = MemoryDisk()
    journal = opened(disk)
    for payload in PAYLOADS[:8]:
        journal.append(payload)
    journal.append(*PAYLOADS[8:10])
    for payload in PAYLOADS[10:]:
        journal.append(payload)
    journal.close()
    assert [found.record_count for found in check_segments(disk)] == [5, 5, 2]
    return disk


def damages(disk: Disk) -> list[tuple[str, int, int]]:
    return [
        (found.file, damage.position - found.base, damage.size)
        for found in check_segments(disk)
        for damage in found.damages
    ]


def test_nothing_is_wrong_with_a_whole_journal(disk: MemoryDisk) -> None:
    before = {name: bytes(content) for name, content in disk.files.items()}
    found = list(check_segments(disk))
    assert [file.file for file in found] == disk.names()[:-1]
    assert [file.sealed for file in found] == [True, True, False]
    assert not any(file.damages or file.unfinished_bytes for file in found)
    assert disk.files == before
    assert list(check_segments(MemoryDisk())) == []


def test_a_damaged_record_is_dropped_and_no_other(disk: MemoryDisk) -> None:
    first = disk.names()[0]
    disk.files[first][FILE_HEADER_BYTES + 2 * SIZE + 15] ^= 4
    assert damages(disk) == [(first, FILE_HEADER_BYTES + 2 * SIZE, SIZE)]
    repair_segments(disk, check_segments(disk))
    assert damages(disk) == []
    assert contents(disk) == PAYLOADS[:2] + PAYLOADS[3:]


def test_a_large_record_is_accepted_if_another_follows(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "_SMALL_RECORD_MAX_BYTES", 0)
    first = disk.names()[0]
    disk.files[first][FILE_HEADER_BYTES + 15] ^= 4
    assert damages(disk) == [(first, FILE_HEADER_BYTES, SIZE)]
    disk.files[first][FILE_HEADER_BYTES + 2 * SIZE + 4] = 255
    assert damages(disk) == [(first, FILE_HEADER_BYTES, 3 * SIZE)]


def test_every_flipped_bit_costs_one_record_at_most(disk: MemoryDisk) -> None:
    ends = {file.file: file.size for file in check_segments(disk)}
    for name in disk.names():
        for bit in range(0, 8 * ends.get(name, 0), 3):
            copy = MemoryDisk()
            copy.files = {other: bytearray(content) for other, content in disk.files.items()}
            copy.files[name][bit // 8] ^= 1 << bit % 8
            with pytest.raises(CorruptJournalError):
                contents(copy)
            assert len(damages(copy)) == 1
            repair_segments(copy, check_segments(copy))
            assert damages(copy) == []
            left = contents(copy)
            assert left == [payload for payload in PAYLOADS if payload in left]
            assert len(left) >= len(PAYLOADS) - 1
            journal = opened(copy)
            journal.append(b"next")
            journal.close()
            assert contents(copy) == [*left, b"next"]


def test_the_rest_of_a_group_stays(disk: MemoryDisk) -> None:
    second = disk.names()[1]
    disk.files[second][FILE_HEADER_BYTES + 4 * SIZE + 15] ^= 4
    repair_segments(disk, check_segments(disk))
    assert contents(disk) == PAYLOADS[:9] + PAYLOADS[10:]


def test_a_group_whose_end_is_lost_with_the_files_end_is_dropped(disk: MemoryDisk) -> None:
    second = disk.names()[1]
    del disk.files[second][FILE_HEADER_BYTES + 4 * SIZE + 15 :]
    assert damages(disk) == [(second, FILE_HEADER_BYTES + 3 * SIZE, SIZE + 15)]
    repair_segments(disk, check_segments(disk))
    assert contents(disk) == PAYLOADS[:8] + PAYLOADS[10:]


@pytest.mark.parametrize("largest", [1 << 20, 0])
def test_a_file_whose_end_is_lost_reaches_to_the_next_unless_that_is_far_away(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    monkeypatch.setattr(check_module, "_VOID_MAX_BYTES", largest)
    first, second, *_ = disk.names()
    del disk.files[first][FILE_HEADER_BYTES + SIZE :]
    repair_segments(disk, check_segments(disk))
    assert damages(disk) == []
    journal = opened(disk)
    assert (journal.segments[0].end == int(second.split(".")[0])) == bool(largest)
    journal.close()


def test_two_damages_in_one_file_are_two(disk: MemoryDisk) -> None:
    first = disk.names()[0]
    for number in (0, 3):
        disk.files[first][FILE_HEADER_BYTES + number * SIZE] ^= 1
    assert [at for _, at, _ in damages(disk)] == [FILE_HEADER_BYTES, FILE_HEADER_BYTES + 3 * SIZE]
    repair_segments(disk, check_segments(disk))
    assert contents(disk) == PAYLOADS[1:3] + PAYLOADS[4:]


def test_the_end_of_the_last_file_is_lost(disk: MemoryDisk) -> None:
    last = disk.names()[2]
    del disk.files[last][FILE_HEADER_BYTES + SIZE + 15 :]
    assert damages(disk) == [(last, FILE_HEADER_BYTES + SIZE, 15)]
    repair_segments(disk, check_segments(disk))
    assert damages(disk) == []
    assert contents(disk) == PAYLOADS[:11]


def test_the_last_file_is_cut_between_two_records(disk: MemoryDisk) -> None:
    del disk.files[disk.names()[2]][FILE_HEADER_BYTES + SIZE :]
    (found,) = [file for file in check_segments(disk) if file.damages]
    assert found.damages[0].reason == "its end is missing"


def test_the_last_file_is_lost(disk: MemoryDisk) -> None:
    last = disk.names()[2]
    disk.remove(last)
    assert damages(disk) == [(last, 0, FILE_HEADER_BYTES + 2 * SIZE)]
    repair_segments(disk, check_segments(disk))
    assert damages(disk) == []
    assert contents(disk) == PAYLOADS[:10]


def test_an_unfinished_write_is_no_damage(disk: MemoryDisk) -> None:
    last = disk.names()[2]
    disk.files[last] += b"unfinished" + bytes(50)
    found = list(check_segments(disk))
    assert [file.unfinished_bytes for file in found] == [0, 0, 10]
    assert not any(file.damages for file in found)
    assert contents(disk) == PAYLOADS


def test_behind_an_unfinished_write_nothing_counts(disk: MemoryDisk) -> None:
    """Three files were written and none synced; the power failed, and of the second one nothing is left."""
    disk.remove(MARK)
    first, second, third = disk.names()
    for name in (second, third):
        disk.files[name][:FILE_HEADER_BYTES] = bytes(FILE_HEADER_BYTES)
    found = list(check_segments(disk))
    assert [file.record_count for file in found] == [5, 0, 0]
    assert [file.unfinished_bytes > 0 for file in found] == [False, True, True]
    assert contents(disk) == PAYLOADS[:5]
    assert [name for name in disk.names() if name != MARK] == [first]
    assert first == file_name(0)
