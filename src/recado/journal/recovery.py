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

from .disk import Disk, File
from .record import CHUNK, HEADER_SIZE, Corrupt, Stop, mark_in, walk
from .segment import Segment, file_name, file_of

_ZEROS = bytes(CHUNK)


class Recovered(NamedTuple):
    position: int
    cut: int


def recover(
    disk: Disk, segments: list[Segment], mark: int
) -> Generator[tuple[int, bytes], None, Recovered]:
    """Position and payload of every record. `segments` are those that were found, then those that are left."""
    known = known_durable(segments, mark)
    position = cut = 0
    for number, segment in enumerate(segments):
        if segment.base < position:
            what = f"the segment before it ends at {position}"
            raise Corrupt(disk.folder / segment.name, segment.base, what)
        stop = yield from records(segment)
        position = segment.end = segment.base + stop.at
        segment.sealed = stop.sealed
        if not stop.sealed:
            if position < known:
                what = stop.damage or "the rest of it is missing"
                raise Corrupt(disk.folder / segment.name, position, what)
            cut = _cut(disk, segments, number + 1 if stop.at else number)
            break
    if position < known:
        raise Corrupt(disk.folder / file_name(position), position, "the file is missing")
    for segment in segments:
        if segment.end > known:
            _secure(segment, known)
    disk.sync_names()
    return Recovered(position, cut)


def known_durable(segments: list[Segment], mark: int) -> int:
    """The position before which everything was durable, by all that is left of the evidence."""
    return max([mark, *(mark_of(segment) or 0 for segment in segments)])


def records(segment: Segment) -> Generator[tuple[int, bytes], None, Stop]:
    """The records of one file, whole groups only."""
    if mark_of(segment) is None:
        return Stop(0, damage="its header is wrong")
    file = file_of(segment)
    size = file.size()
    return (yield from walk(file.read, segment.base, HEADER_SIZE, size, size, groups=True))


def mark_of(segment: Segment) -> int | None:
    return mark_in(file_of(segment).read(0, HEADER_SIZE), segment.base)


def _cut(disk: Disk, segments: list[Segment], count: int) -> int:
    """Keep `count` segments, the last of them up to its end; gives the bytes that were behind it."""
    cut = 0
    for segment in reversed(segments[count:]):
        file = file_of(segment)
        cut += filled(file, 0)
        file.close()
        disk.remove(segment.name)
        # Before an older one goes: without that, this one would seem to follow one that was dropped.
        disk.sync_names()
    del segments[count:]
    if segments and not segments[-1].sealed:
        last = segments[-1]
        file = file_of(last)
        end = last.end - last.base
        rest = filled(file, end) - end
        if rest > 0:
            file.truncate(end)
            file.sync()
            cut += rest
    return cut


def filled(file: File, at: int) -> int:
    """Where the file's last byte ends that is no zero, from `at` on; reserved room is zeros."""
    filled = at
    while chunk := file.read(at, CHUNK):
        if chunk != _ZEROS[: len(chunk)]:
            filled = at + len(chunk.rstrip(b"\0"))
        at += len(chunk)
    return filled


def _secure(segment: Segment, known: int) -> None:
    file = file_of(segment)
    at = max(known - segment.base, 0)
    end = segment.end - segment.base
    while at < end:
        chunk = file.read(at, min(CHUNK, end - at))
        file.write(at, chunk)
        at += len(chunk)
    file.sync()
