"""Recovery: reading the records that a crash of the process or a loss of power left in a folder.

The journal ends after the last complete group before the first damage. If a durable mark says that the damaged
bytes had been synced, this is bit rot, and recovery raises `CorruptJournalError` instead of dropping anything.
Otherwise they are a torn write, which was never confirmed to a client, and recovery truncates them.

Before anything is appended, recovery makes two things durable:
- the truncation, because the removed bytes could otherwise come back after newer records;
- the recovered records after the mark. They may exist in the page cache only, and after a failed sync the
  system can consider them written although they are not. So they are written again and synced.
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
    """The end of a recovered journal."""

    position: int
    """Where the journal ends."""
    truncated_bytes: int


def recover_segments(
    disk: Disk, segments: list[Segment], mark: int
) -> Generator[tuple[int, bytes], None, RecoveryResult]:
    """Yield position and payload of every record, then truncate and sync.

    `segments` are those found in the folder; segments that are removed leave the list.
    """
    durable = known_durable_position(segments, mark)
    position = truncated_bytes = 0
    for number, segment in enumerate(segments):
        if segment.base < position:
            reason = f"the segment before it ends at {position}"
            raise CorruptJournalError(disk.folder / segment.name, segment.base, reason)
        end = yield from read_segment(segment)
        position = segment.end = segment.base + end.offset
        segment.sealed = end.sealed
        if not end.sealed:
            if position < durable:
                reason = end.damage or "the rest of it is missing"
                raise CorruptJournalError(disk.folder / segment.name, position, reason)
            truncated_bytes = _truncate(disk, segments, number + 1 if end.offset else number)
            break
    if position < durable:
        raise CorruptJournalError(
            disk.folder / file_name(position), position, "the file is missing"
        )
    for segment in segments:
        if segment.end > durable:
            _rewrite_and_sync(segment, durable)
    disk.sync_folder()
    return RecoveryResult(position, truncated_bytes)


def known_durable_position(segments: list[Segment], mark: int) -> int:
    """Return the largest position that the mark or any file header proves to have been durable."""
    return max([mark, *(read_mark(segment) or 0 for segment in segments)])


def read_segment(segment: Segment) -> Generator[tuple[int, bytes], None, ScanEnd]:
    """Yield the records of one file, complete groups only."""
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
    """Return the mark that a segment got in its header at its creation, or None if the header is damaged."""
    return decode_mark(require_file(segment).read(0, FILE_HEADER_BYTES), segment.base)


def _truncate(disk: Disk, segments: list[Segment], count: int) -> int:
    """Retain `count` segments, the last of them up to its end.

    Returns the number of bytes removed, not counting reserved space.
    """
    removed = 0
    for segment in reversed(segments[count:]):
        file = require_file(segment)
        removed += find_data_end(file, 0)
        file.close()
        disk.remove(segment.name)
        # Sync before an older segment is removed. A crash between the two would leave a hole before this one,
        # as if the older segment had been dropped on purpose.
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
            removed += rest
    return removed


def find_data_end(file: DiskFile, at: int) -> int:
    """Return where the last byte that is not zero ends, from offset `at` on; reserved space is zeros."""
    end = at
    while chunk := file.read(at, READ_CHUNK_BYTES):
        if chunk != _ZEROS[: len(chunk)]:
            end = at + len(chunk.rstrip(b"\0"))
        at += len(chunk)
    return end


def _rewrite_and_sync(segment: Segment, durable: int) -> None:
    file = require_file(segment)
    at = max(durable - segment.base, 0)
    end = segment.end - segment.base
    while at < end:
        chunk = file.read(at, min(READ_CHUNK_BYTES, end - at))
        file.write(at, chunk)
        at += len(chunk)
    file.sync()
