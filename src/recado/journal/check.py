"""Verification of a whole journal, and its repair.

Each file is scanned from its start. The size field of a damaged record cannot be trusted, so the search for the
next valid record tries the later offsets where the byte of the kind is plausible, and accepts the first one
whose checksum is right; the checksum depends on the position, so other bytes do not pass. Damage before the
durable mark is reported as a `DamagedRange`. Damage after it is a torn write, which the next start truncates.

A repair removes damaged records and leaves all others at their positions: a damaged range becomes a VOID record
of the same size. If no valid record follows in a file, the last file is truncated; any other file is filled
with a VOID record up to the start of the next file, and sealed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .disk import Disk, DiskFile
from .mark import MARK_FILE, DurableMark
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
_KIND_OFFSET = 4  # of the byte of the kind in a record header
_HIGHEST_KIND = bytes((VOID,))  # at the end of the file, `next_kind` is b"", which is less
_SMALL_RECORD_MAX_BYTES = 1 << 20
# If the next file is farther away than this, segments between the two were dropped on purpose.
_VOID_MAX_BYTES = 256 << 20


class DamagedRange(NamedTuple):
    """`size` bytes, from a journal position on, without a valid record."""

    position: int
    size: int
    reason: str
    is_last: bool = False
    """No valid record follows in the file."""


class SegmentReport(NamedTuple):
    """The result of checking one file."""

    file: str
    base: int
    record_count: int = 0
    size: int = 0
    """The offset in the file up to which it was checked; an unfinished or damaged end comes after it."""
    sealed: bool = False
    damages: tuple[DamagedRange, ...] = ()
    unfinished_bytes: int = 0
    """Bytes of a torn write, which was never confirmed to a client; the next start truncates them."""

    @property
    def continues(self) -> bool:
        """Whether the next file belongs to the journal."""
        return self.sealed or any(damage.is_last for damage in self.damages)


def check_segments(disk: Disk) -> Iterator[SegmentReport]:
    """Verify every record, file by file, oldest first. Nothing is changed."""
    segments = open_segments(disk)
    durable = known_durable_position(segments, _read_mark(disk))
    report = SegmentReport(file_name(0), 0, sealed=True)
    for segment in segments:
        if report.continues:
            report = _check_segment(segment, durable)
            yield report
        else:
            unfinished_bytes = find_data_end(require_file(segment), 0)
            yield SegmentReport(segment.name, segment.base, unfinished_bytes=unfinished_bytes)
        require_file(segment).close()
    end = report.base + report.size
    if report.sealed and end < durable:
        missing = DamagedRange(end, durable - end, "the file is missing", is_last=True)
        yield SegmentReport(file_name(end), end, damages=(missing,))


def _read_mark(disk: Disk) -> int:
    if MARK_FILE not in disk.names():
        return 0
    mark = DurableMark(disk)
    position = mark.read()
    mark.close()
    return position


def _check_segment(segment: Segment, durable: int) -> SegmentReport:
    """Check one file. After damage below the position `durable`, continue at the next valid record."""
    file, base = require_file(segment), segment.base
    size = file.size()
    at, record_count = FILE_HEADER_BYTES, 0
    damages: list[DamagedRange] = []
    if read_mark(segment) is None:
        if base >= durable:
            return SegmentReport(segment.name, base, unfinished_bytes=find_data_end(file, 0))
        damages.append(DamagedRange(base, FILE_HEADER_BYTES, "its header is wrong"))
    while True:
        count, end = _scan(file, base, at, size, whole_groups=True)
        record_count += count
        at = end.offset
        if end.sealed or base + at >= durable:
            break
        count, end = _scan(file, base, at, size, whole_groups=False)  # the valid part of a group
        reason = end.damage or "its end is missing"
        following = _find_next_record(file, base, end.offset)
        if following is None:
            lost = find_data_end(file, at) - at
            damages.append(DamagedRange(base + at, lost, reason, is_last=True))
            break
        damages.append(DamagedRange(base + end.offset, following - end.offset, reason))
        record_count += count
        at = following
    unfinished = 0 if end.sealed or base + at < durable else find_data_end(file, at) - at
    return SegmentReport(
        segment.name, base, record_count, at, end.sealed, tuple(damages), unfinished
    )


def _scan(
    file: DiskFile, base: int, at: int, size: int, *, whole_groups: bool
) -> tuple[int, ScanEnd]:
    """Count the records from an offset on; return also where and why the scan ended."""
    end = ScanEnd(at)

    def records() -> Iterator[object]:
        nonlocal end
        end = yield from scan_records(file.read, base, at, size, size, whole_groups=whole_groups)

    return sum(1 for _ in records()), end


def _find_next_record(file: DiskFile, base: int, at: int) -> int | None:
    """Return the offset of the next valid record after a damaged one, whose size field cannot be trusted."""
    content = file.read(at, file.size())
    view = memoryview(content)
    for match in _KIND_PATTERN.finditer(content, _KIND_OFFSET + 1):
        start = match.start() - _KIND_OFFSET
        payload_start = start + RECORD_HEADER_BYTES
        if payload_start <= len(content):
            size, kind, crc = RECORD_HEADER.unpack_from(content, start)
            after = payload_start + size
            # Computing the checksum of a seemingly large record is skipped if no record seems to follow it:
            # 16 MB of random bytes take 0.4 s instead of 1.4.
            next_kind = content[after + _KIND_OFFSET : after + _KIND_OFFSET + 1]
            if (
                after <= len(content)
                and (size <= _SMALL_RECORD_MAX_BYTES or next_kind <= _HIGHEST_KIND)
                and checksum(base + at + start, kind, view[payload_start:after]) == crc
            ):
                return at + start
    return None


def repair_segments(disk: Disk, reports: Iterable[SegmentReport]) -> None:
    """Remove the damage that `check_segments` reported.

    A damaged record becomes void, a damaged end is truncated or sealed, a damaged header is written again.
    """
    bases = list_bases(disk)
    files = [file_name(base) for base in bases]
    next_base = dict(zip(bases, [*bases[1:], None], strict=True))
    mark = DurableMark(disk)
    for report in reports:
        for damage in report.damages:
            if damage.is_last and report.file not in files[:-1]:
                # The journal now ends here. With the old mark, recovery would miss the records after it.
                mark.write(damage.position)
                mark.sync()
            if report.file in files:
                file = disk.open(report.file)
                _repair_range(file, report.base, damage, next_base[report.base])
                file.sync()
                file.close()
    mark.close()


def _repair_range(file: DiskFile, base: int, damage: DamagedRange, next_base: int | None) -> None:
    """Repair one range of a file; `next_base` is the position where the next file begins."""
    at = damage.position - base
    if at == 0:
        file.write(0, encode_file_header(base, 0))
    elif not damage.is_last:
        payload = file.read(at + RECORD_HEADER_BYTES, damage.size - RECORD_HEADER_BYTES)
        file.write(at, encode_record(damage.position, VOID, payload))
    elif next_base is None:
        file.truncate(at)
    else:  # fill up to the next file: a hole between the two would mean that segments were dropped there
        seal = next_base - RECORD_HEADER_BYTES
        void_bytes = seal - damage.position - RECORD_HEADER_BYTES
        if 0 <= void_bytes <= _VOID_MAX_BYTES:
            file.write(at, encode_record(damage.position, VOID, bytes(void_bytes)))
            at = seal - base
        file.write(at, encode_record(base + at, SEAL, b""))
