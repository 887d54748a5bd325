"""Recovery: torn writes are truncated, rot is reported, and nothing that was truncated comes back."""

from __future__ import annotations

import itertools

import pytest

from recado.journal.disk import Disk, MemoryDisk
from recado.journal.journal import Journal
from recado.journal.mark import MARK_FILE as MARK
from recado.journal.record import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    CorruptJournalError,
    encode_file_header,
)
from recado.journal.segment import file_name, list_bases
from recado.simulator.disk import SimulatedDisk

GROUPS = [[b"one"], [b"two", b"and two"], [b""], [b"three", b"", b"three"], [b"four"]]


def opened(disk: Disk, segment_size: int = 200) -> Journal:
    journal = Journal(disk, segment_bytes=segment_size)
    for _ in journal.recover():
        pass
    return journal


def contents(disk: Disk) -> list[bytes]:
    return [payload for _, payload in Journal(disk).recover()]


def written(segment_size: int = 4096) -> tuple[MemoryDisk, list[int]]:
    """A disk with GROUPS, and where each of them ends."""
    disk = MemoryDisk()
    journal = opened(disk, segment_size)
    ends = []
    for group in GROUPS:
        journal.append(*group)
        ends.append(journal.position)
    journal.close()
    return disk, ends


def without_mark(disk: MemoryDisk, changes: dict[str, bytes] | None = None) -> MemoryDisk:
    copy = MemoryDisk()
    files = {**disk.files, **(changes or {})}
    copy.files = {name: bytearray(content) for name, content in files.items() if name != MARK}
    return copy


def flat(groups: list[list[bytes]]) -> list[bytes]:
    return list(itertools.chain.from_iterable(groups))


@pytest.mark.parametrize("reserved", [0, 1000])
@pytest.mark.parametrize(("segment_size", "segments"), [(4096, 1), (100, 2), (40, 5)])
def test_cut_at_any_byte_the_longest_whole_prefix_is_found(
    reserved: int, segment_size: int, segments: int
) -> None:
    """Also in the last of several files: the records of earlier files are all recovered."""
    disk, ends = written(segment_size)
    bases = list_bases(disk)
    assert len(bases) == segments
    name = file_name(bases[-1])
    whole = bytes(disk.files[name])
    for size in range(len(whole) + 1):
        content = whole[:size] + bytes(reserved)
        cut = without_mark(disk, {name: content})
        journal = Journal(cut, segment_bytes=200)
        found = [payload for _, payload in journal.recover()]
        # A record may end in zeros of its own: then they are not missed.
        sizes = [max(end - bases[-1], 0) for end in ends]
        expected = [
            group for group, end in zip(GROUPS, sizes, strict=True) if content[:end] == whole[:end]
        ]
        assert found == flat(expected)
        journal.append(b"next")
        journal.close()
        assert contents(cut) == [*found, b"next"]


def test_truncated_bytes_are_counted() -> None:
    disk, ends = written()
    disk = without_mark(disk, {file_name(0): bytes(disk.files[file_name(0)])[:-1] + bytes(500)})
    journal = opened(disk)
    assert journal.truncated_bytes == ends[-1] - ends[-2] - 1
    assert journal.position == journal.durable_position == ends[-2]
    assert opened(disk).truncated_bytes == 0


def test_records_before_the_mark_are_not_truncated() -> None:
    disk, ends = written()
    name = file_name(0)
    for size in range(ends[-1]):
        shorter = without_mark(disk, {name: bytes(disk.files[name])[:size]})
        shorter.files[MARK] = disk.files[MARK]
        with pytest.raises(CorruptJournalError) as raised:
            opened(shorter)
        assert raised.value.file == name
        assert raised.value.position <= size


@pytest.mark.parametrize("segment_size", [60, 4096])
def test_every_flipped_bit_is_reported_or_harmless(segment_size: int) -> None:
    disk, _ = written(segment_size)
    used = {part.name: part.end - part.base for part in opened(disk).segments}
    for name in disk.names():
        for bit in range(8 * len(disk.files[name])):
            disk.files[name][bit // 8] ^= 1 << bit % 8
            if bit < 8 * used.get(name, 0):
                with pytest.raises(CorruptJournalError) as raised:
                    opened(disk)
                assert raised.value.file == name
            else:  # the mark itself, or reserved and unused space
                assert contents(disk) == flat(GROUPS)
            disk.files[name][bit // 8] ^= 1 << bit % 8


def test_without_a_mark_a_flipped_bit_ends_the_journal_there() -> None:
    disk, ends = written()
    name = file_name(0)
    for bit in range(8 * ends[-1]):
        damaged = without_mark(disk)
        damaged.files[name][bit // 8] ^= 1 << bit % 8
        whole = [group for group, end in zip(GROUPS, ends, strict=True) if end <= bit // 8]
        assert contents(damaged) == (flat(whole) if bit // 8 >= FILE_HEADER_BYTES else [])


def test_a_header_knows_how_far_all_was_durable_before_it() -> None:
    disk = MemoryDisk()
    journal = opened(disk, 100)
    journal.append(b"x" * 40)
    journal.write()
    journal.sync()
    journal.append(b"y" * 40)
    journal.close()
    damaged = without_mark(disk)
    damaged.files[file_name(0)][FILE_HEADER_BYTES + 20] ^= 1
    with pytest.raises(CorruptJournalError):
        opened(damaged)


def test_files_that_are_gone_are_missed() -> None:
    disk, _ = written(60)
    last = disk.names()[-2]
    disk.remove(last)
    with pytest.raises(CorruptJournalError, match="missing") as raised:
        opened(disk)
    assert raised.value.file == last


def test_segments_that_overlap_are_no_journal() -> None:
    disk, ends = written(60)
    disk.files[file_name(ends[0])] = bytearray(encode_file_header(ends[0], 0))
    with pytest.raises(CorruptJournalError, match="the segment before it ends at"):
        opened(disk)


def test_a_segment_that_was_just_begun_is_begun_again() -> None:
    disk, _ = written(60)
    for start in (b"", b"reca", bytes(100)):
        copy = MemoryDisk()
        copy.files = {name: bytearray(content) for name, content in disk.files.items()}
        journal = opened(copy, 60)
        journal.append(b"x" * 60)  # does not fit
        journal.write()
        copy.files[file_name(journal.segments[-1].base)][:] = start
        again = opened(copy, 60)
        assert again.position == journal.segments[-1].base
        assert again.segments[-1].sealed
        again.append(b"y")
        again.close()
        assert contents(copy) == [*flat(GROUPS), b"y"]


def test_a_position_is_not_used_again_even_if_all_before_it_was_dropped() -> None:
    disk = MemoryDisk()
    journal = opened(disk, 60)
    for _ in range(4):
        journal.append(b"x" * 10)
    journal.write()
    journal.sync()
    for part in journal.segments[:-1]:
        journal.drop(part.base)
    base = journal.segments[-1].base
    lost = without_mark(disk, {file_name(base): b""})
    assert opened(lost).position == base


def test_other_files_are_left_alone() -> None:
    disk = MemoryDisk()
    for name in ("LOCK", "notes.journal", "1.txt"):
        disk.open(name, create=True)
    journal = opened(disk)
    journal.append(b"one")
    journal.close()
    assert contents(disk) == [b"one"]
    assert len(disk.names()) == 5


def test_recovered_records_are_durable() -> None:
    disk = SimulatedDisk()
    journal = opened(disk, 100)
    for number in range(5):
        journal.append(bytes([number]) * 30)
    journal.write()
    found = contents(disk)
    assert len(found) == 5
    assert contents(disk.crash(survival_ratio=0)) == found


def test_a_sealed_end_is_durable_after_recovery_too() -> None:
    disk = SimulatedDisk()
    journal = opened(disk, 100)
    journal.append(b"x" * 30)
    journal.append(b"y" * 30)
    disk.fill(100)
    with pytest.raises(OSError, match="space"):
        journal.write()
    disk.fill(None)
    assert contents(disk) == [b"x" * 30]
    assert contents(disk.crash(survival_ratio=0)) == [b"x" * 30]


def test_after_a_failed_sync_recovered_records_are_written_again() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append(b"one")
    journal.write()
    journal.sync()
    journal.append(b"two")
    journal.write()
    disk.fail_sync()
    with pytest.raises(OSError, match="error"):
        journal.sync()
    assert contents(disk.crash(survival_ratio=0)) == [b"one"]
    assert contents(disk) == [b"one", b"two"]
    assert contents(disk.crash(survival_ratio=0)) == [b"one", b"two"]


def test_truncated_records_never_come_back() -> None:
    """A record was lost, and the next one was not: it would seem to follow a new record of the same size."""
    for chance in range(60):
        disk = SimulatedDisk()
        journal = opened(disk)
        journal.append(b"zero")
        journal.write()
        journal.sync()
        (lost,) = journal.append(b"lost")
        journal.append(b"behind")
        journal.write()
        file = disk.open(file_name(0))
        file.write(lost, bytes(RECORD_HEADER_BYTES + 4))
        file.sync()
        journal = opened(disk)
        assert journal.truncated_bytes == RECORD_HEADER_BYTES + 6 + RECORD_HEADER_BYTES + 4
        journal.append(b"next")
        journal.write()
        assert contents(disk.crash(chance)) in ([b"zero"], [b"zero", b"next"])
        journal.sync()
        assert contents(disk.crash(chance)) == [b"zero", b"next"]


def test_segments_that_were_cut_off_never_come_back() -> None:
    for chance in range(60):
        disk = SimulatedDisk()
        journal = opened(disk, 100)
        journal.append(b"zero")
        journal.write()
        journal.sync()
        journal.append(b"x" * 30)
        journal.append(b"y" * 30)
        journal.write()
        disk.sync_folder()
        behind = journal.segments[-1]
        file = disk.open(file_name(0))
        file.write(FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 4, bytes(10))
        file.sync()
        disk.open(behind.name).sync()
        journal = opened(disk, 100)
        assert journal.truncated_bytes > 0
        journal.append(b"a" * 30)
        journal.append(b"b" * 30)
        journal.write()
        whole = [b"zero", b"a" * 30, b"b" * 30]
        found = contents(disk.crash(chance))
        assert found == whole[: len(found)]


def test_while_records_are_recovered_their_segments_are_known() -> None:
    disk, _ = written(60)
    journal = Journal(disk, segment_bytes=60)
    bases = [journal.segment_base(position) for position, _ in journal.recover()]
    assert sorted(set(bases)) == [part.base for part in journal.segments]
    assert bases == sorted(bases)
