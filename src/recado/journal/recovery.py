"""Recovery: the records that the end of the process or of the power left in a folder.

The journal ends behind the last whole group before the first damage. What is behind that was never durable,
unless a mark says so: then it is rot, and Corrupt is raised rather than anything dropped.

Nothing is appended before
- what was cut off is gone from the disk too, or it could come back behind newer records;
- what was found is on the disk too. It may have come from the system's memory alone, and after a failed sync
  that holds it for written: so all that is behind the mark is written again, and synced.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from .disk import Disk, DiskFile
from .record import (
    FILE_HEADER_BYTES,
    READ_CHUNK_BYTES,
    CorruptJournalError,
    ScanEnd,
    decode_mark,
    scan_records,
)
from .segment import Segment, file_name, require_file

_ZEROS = bytes(READ_CHUNK_BYTES)


class RecoveryResult(NamedTuple):
    position: int
    truncated_bytes: int


def recover_segments(
    disk: Disk, segments: list[Segment], mark: int
) -> Generator[tuple[int, bytes], None, RecoveryResult]:
    """Position and payload of every record. `segments` are those that were found, then those that are left."""
    known = known_durable_position(segments, mark)
    position = cut = 0
    for number, segment in enumerate(segments):
        if segment.base < position:
            what = f"the segment before it ends at {position}"
            raise CorruptJournalError(disk.folder / segment.name, segment.base, what)
        stop = yield from read_segment(segment)
        position = segment.end = segment.base + stop.offset
        segment.sealed = stop.sealed
        if not stop.sealed:
            if position < known:
                what = stop.damage or "the rest of it is missing"
                raise CorruptJournalError(disk.folder / segment.name, position, what)
            cut = _truncate(disk, segments, number + 1 if stop.offset else number)
            break
    if position < known:
        raise CorruptJournalError(
            disk.folder / file_name(position), position, "the file is missing"
        )
    for segment in segments:
        if segment.end > known:
            _rewrite_and_sync(segment, known)
    disk.sync_folder()
    return RecoveryResult(position, cut)


def known_durable_position(segments: list[Segment], mark: int) -> int:
    """The position before which everything was durable, by all that is left of the evidence."""
    return max([mark, *(read_mark(segment) or 0 for segment in segments)])


def read_segment(segment: Segment) -> Generator[tuple[int, bytes], None, ScanEnd]:
    """The records of one file, whole groups only."""
    if read_mark(segment) is None:
        return ScanEnd(0, damage="its header is wrong")
    file = require_file(segment)
    size = file.size()
    return (
        yield from scan_records(
            file.read, segment.base, FILE_HEADER_BYTES, size, size, whole_groups=True
        )
    )


def read_mark(segment: Segment) -> int | None:
    return decode_mark(require_file(segment).read(0, FILE_HEADER_BYTES), segment.base)


def _truncate(disk: Disk, segments: list[Segment], count: int) -> int:
    """Keep `count` segments, the last of them up to its end; gives the bytes that were behind it."""
    cut = 0
    for segment in reversed(segments[count:]):
        file = require_file(segment)
        cut += find_data_end(file, 0)
        file.close()
        disk.remove(segment.name)
        # Before an older one goes: without that, this one would seem to follow one that was dropped.
        disk.sync_folder()
    del segments[count:]
    if segments and not segments[-1].sealed:
        last = segments[-1]
        file = require_file(last)
        end = last.end - last.base
        rest = find_data_end(file, end) - end
        if rest > 0:
            file.truncate(end)
            file.sync()
            cut += rest
    return cut


def find_data_end(file: DiskFile, at: int) -> int:
    """Where the file's last byte ends that is no zero, from `at` on; reserved room is zeros."""
    filled = at
    while chunk := file.read(at, READ_CHUNK_BYTES):
        if chunk != _ZEROS[: len(chunk)]:
            filled = at + len(chunk.rstrip(b"\0"))
        at += len(chunk)
    return filled


def _rewrite_and_sync(segment: Segment, known: int) -> None:
    file = require_file(segment)
    at = max(known - segment.base, 0)
    end = segment.end - segment.base
    while at < end:
        chunk = file.read(at, min(READ_CHUNK_BYTES, end - at))
        file.write(at, chunk)
        at += len(chunk)
    file.sync()
