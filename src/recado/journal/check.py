"""Verification of a whole journal, and its repair: damaged records are dropped, all others stay in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .disk import Disk, DiskFile
from .mark import MARK_FILE as MARK
from .mark import DurableMark
from .record import (
    FILE_HEADER_BYTES,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    SEAL,
    VOID,
    ScanEnd,
    checksum,
    encode_file_header,
    encode_record,
    scan_records,
)
from .recovery import find_data_end, known_durable_position, read_mark
from .segment import Segment, file_name, list_bases, open_segments, require_file

_KIND_PATTERN = re.compile(rb"[\x01-\x04]")
_KIND_OFFSET = 4  # in a record
_HIGHEST_KIND = bytes((VOID,))  # none, or nothing at all, is less
_SMALL_RECORD_MAX_BYTES = 1 << 20  # bytes
_VOID_MAX_BYTES = (
    256 << 20
)  # bytes: where the next file is farther away, others were dropped between


class DamagedRange(NamedTuple):
    """`size` bytes from a position on cannot be read."""

    position: int
    size: int
    reason: str
    is_last: bool = False
    """Nothing in the file is whole behind it."""


class SegmentReport(NamedTuple):
    """What was found in one file."""

    file: str
    base: int
    record_count: int = 0
    size: int = 0
    sealed: bool = False
    damages: tuple[DamagedRange, ...] = ()
    unfinished_bytes: int = 0
    """Bytes of a write that nobody was told of; the next start cuts them off."""

    @property
    def continues(self) -> bool:
        """Whether what is in the next file counts."""
        return self.sealed or any(damage.is_last for damage in self.damages)


def check_segments(disk: Disk) -> Iterator[SegmentReport]:
    """Verify every record, file by file, oldest first. Nothing is changed."""
    segments = open_segments(disk)
    known = known_durable_position(segments, _read_mark(disk))
    checked = SegmentReport(file_name(0), 0, sealed=True)
    for segment in segments:
        if checked.continues:
            checked = _check_segment(segment, known)
            yield checked
        else:
            yield SegmentReport(
                segment.name, segment.base, unfinished_bytes=find_data_end(require_file(segment), 0)
            )
        require_file(segment).close()
    end = checked.base + checked.size
    if checked.sealed and end < known:
        missing = DamagedRange(end, known - end, "the file is missing", is_last=True)
        yield SegmentReport(file_name(end), end, damages=(missing,))


def _read_mark(disk: Disk) -> int:
    if MARK not in disk.names():
        return 0
    mark = DurableMark(disk)
    position = mark.read()
    mark.close()
    return position


def _check_segment(segment: Segment, known: int) -> SegmentReport:
    file, base = require_file(segment), segment.base
    size = file.size()
    at, records = FILE_HEADER_BYTES, 0
    damages: list[DamagedRange] = []
    if read_mark(segment) is None:
        if base >= known:
            return SegmentReport(segment.name, base, unfinished_bytes=find_data_end(file, 0))
        damages.append(DamagedRange(base, FILE_HEADER_BYTES, "its header is wrong"))
    while True:
        count, stop = _scan(file, base, at, size, groups=True)
        records += count
        at = stop.offset
        if stop.sealed or base + at >= known:
            break
        count, stop = _scan(file, base, at, size, groups=False)  # as far as the group is whole
        what = stop.damage or "its end is missing"
        after = _find_next_record(file, base, stop.offset)
        if after is None:
            damages.append(
                DamagedRange(base + at, find_data_end(file, at) - at, what, is_last=True)
            )
            break
        damages.append(DamagedRange(base + stop.offset, after - stop.offset, what))
        records += count
        at = after
    unfinished = 0 if stop.sealed or base + at < known else find_data_end(file, at) - at
    return SegmentReport(segment.name, base, records, at, stop.sealed, tuple(damages), unfinished)


def _scan(file: DiskFile, base: int, at: int, size: int, *, groups: bool) -> tuple[int, ScanEnd]:
    """How many records there are from an offset on, and what ends them."""
    stop = ScanEnd(at)

    def records() -> Iterator[object]:
        nonlocal stop
        stop = yield from scan_records(file.read, base, at, size, size, whole_groups=groups)

    return sum(1 for _ in records()), stop


def _find_next_record(file: DiskFile, base: int, at: int) -> int | None:
    """Where the next record begins behind a damaged one, whose own size is not to be trusted."""
    content = file.read(at, file.size())
    view = memoryview(content)
    for match in _KIND_PATTERN.finditer(content, _KIND_OFFSET + 1):
        start = match.start() - _KIND_OFFSET
        behind = start + RECORD_HEADER_BYTES
        if behind <= len(content):
            size, kind, crc = RECORD_HEADER.unpack_from(content, start)
            after = behind + size
            # What seems to be a large one, and not to be followed by any, is not worth its checksum: 16 MB of
            # chance bytes take 0.4 s instead of 1.4.
            kind_behind = content[after + _KIND_OFFSET : after + _KIND_OFFSET + 1]
            if (
                after <= len(content)
                and (size <= _SMALL_RECORD_MAX_BYTES or kind_behind <= _HIGHEST_KIND)
                and checksum(base + at + start, kind, view[behind:after]) == crc
            ):
                return at + start
    return None


def repair_segments(disk: Disk, reports: Iterable[SegmentReport]) -> None:
    """Drop what is damaged: a record is made void, an end is cut off or sealed, a header written anew."""
    bases = list_bases(disk)
    files = [file_name(base) for base in bases]
    behind = dict(zip(bases, [*bases[1:], None], strict=True))
    mark = DurableMark(disk)
    for checked in reports:
        for damage in checked.damages:
            if damage.is_last and checked.file not in files[:-1]:
                mark.write(damage.position)
                mark.sync()
            if checked.file in files:
                file = disk.open(checked.file)
                _repair_range(file, checked.base, damage, behind[checked.base])
                file.sync()
                file.close()
    mark.close()


def _repair_range(file: DiskFile, base: int, damage: DamagedRange, following: int | None) -> None:
    """`following` is where the next file begins."""
    at = damage.position - base
    if at == 0:
        file.write(0, encode_file_header(base, 0))
    elif not damage.is_last:
        payload = file.read(at + RECORD_HEADER_BYTES, damage.size - RECORD_HEADER_BYTES)
        file.write(at, encode_record(damage.position, VOID, payload))
    elif following is None:
        file.truncate(at)
    else:  # up to the next file: a hole between them would mean that whole files were dropped there
        seal = following - RECORD_HEADER_BYTES
        room = seal - damage.position - RECORD_HEADER_BYTES
        if 0 <= room <= _VOID_MAX_BYTES:
            file.write(at, encode_record(damage.position, VOID, bytes(room)))
            at = seal - base
        file.write(at, encode_record(base + at, SEAL, b""))
