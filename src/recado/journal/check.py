"""Verification of a whole journal, and its repair: damaged records are dropped, all others stay in place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .disk import Disk, File
from .mark import NAME as MARK
from .mark import Mark
from .record import HEAD, HEADER_SIZE, OVERHEAD, SEAL, VOID, Stop, checksum, header, record, walk
from .recovery import filled, known_durable, mark_of
from .segment import Segment, bases_in, file_name, file_of, open_segments

_KINDS = re.compile(rb"[\x01-\x04]")
_KIND_AT = 4  # in a record
_HIGHEST_KIND = bytes((VOID,))  # none, or nothing at all, is less
_SMALL = 1 << 20  # bytes
_LARGEST_VOID = 256 << 20  # bytes: where the next file is farther away, others were dropped between


class Damage(NamedTuple):
    """`size` bytes from a position on cannot be read."""

    position: int
    size: int
    what: str
    last: bool = False
    """Nothing in the file is whole behind it."""


class Checked(NamedTuple):
    """What was found in one file."""

    file: str
    base: int
    records: int = 0
    size: int = 0
    sealed: bool = False
    damages: tuple[Damage, ...] = ()
    unfinished: int = 0
    """Bytes of a write that nobody was told of; the next start cuts them off."""

    @property
    def goes_on(self) -> bool:
        """Whether what is in the next file counts."""
        return self.sealed or any(damage.last for damage in self.damages)


def check(disk: Disk) -> Iterator[Checked]:
    """Verify every record, file by file, oldest first. Nothing is changed."""
    segments = open_segments(disk)
    known = known_durable(segments, _mark(disk))
    checked = Checked(file_name(0), 0, sealed=True)
    for segment in segments:
        if checked.goes_on:
            checked = _check(segment, known)
            yield checked
        else:
            yield Checked(segment.name, segment.base, unfinished=filled(file_of(segment), 0))
        file_of(segment).close()
    end = checked.base + checked.size
    if checked.sealed and end < known:
        missing = Damage(end, known - end, "the file is missing", last=True)
        yield Checked(file_name(end), end, damages=(missing,))


def _mark(disk: Disk) -> int:
    if MARK not in disk.names():
        return 0
    mark = Mark(disk)
    position = mark.read()
    mark.close()
    return position


def _check(segment: Segment, known: int) -> Checked:
    file, base = file_of(segment), segment.base
    size = file.size()
    at, records = HEADER_SIZE, 0
    damages: list[Damage] = []
    if mark_of(segment) is None:
        if base >= known:
            return Checked(segment.name, base, unfinished=filled(file, 0))
        damages.append(Damage(base, HEADER_SIZE, "its header is wrong"))
    while True:
        count, stop = _walk(file, base, at, size, groups=True)
        records += count
        at = stop.at
        if stop.sealed or base + at >= known:
            break
        count, stop = _walk(file, base, at, size, groups=False)  # as far as the group is whole
        what = stop.damage or "its end is missing"
        after = _next_whole(file, base, stop.at)
        if after is None:
            damages.append(Damage(base + at, filled(file, at) - at, what, last=True))
            break
        damages.append(Damage(base + stop.at, after - stop.at, what))
        records += count
        at = after
    unfinished = 0 if stop.sealed or base + at < known else filled(file, at) - at
    return Checked(segment.name, base, records, at, stop.sealed, tuple(damages), unfinished)


def _walk(file: File, base: int, at: int, size: int, *, groups: bool) -> tuple[int, Stop]:
    """How many records there are from an offset on, and what ends them."""
    stop = Stop(at)

    def records() -> Iterator[object]:
        nonlocal stop
        stop = yield from walk(file.read, base, at, size, size, groups=groups)

    return sum(1 for _ in records()), stop


def _next_whole(file: File, base: int, at: int) -> int | None:
    """Where the next record begins behind a damaged one, whose own size is not to be trusted."""
    content = file.read(at, file.size())
    view = memoryview(content)
    for match in _KINDS.finditer(content, _KIND_AT + 1):
        start = match.start() - _KIND_AT
        behind = start + OVERHEAD
        if behind <= len(content):
            size, kind, crc = HEAD.unpack_from(content, start)
            after = behind + size
            # What seems to be a large one, and not to be followed by any, is not worth its checksum: 16 MB of
            # chance bytes take 0.4 s instead of 1.4.
            kind_behind = content[after + _KIND_AT : after + _KIND_AT + 1]
            if (
                after <= len(content)
                and (size <= _SMALL or kind_behind <= _HIGHEST_KIND)
                and checksum(base + at + start, kind, view[behind:after]) == crc
            ):
                return at + start
    return None


def repair(disk: Disk, found: Iterable[Checked]) -> None:
    """Drop what is damaged: a record is made void, an end is cut off or sealed, a header written anew."""
    bases = bases_in(disk)
    files = [file_name(base) for base in bases]
    behind = dict(zip(bases, [*bases[1:], None], strict=True))
    mark = Mark(disk)
    for checked in found:
        for damage in checked.damages:
            if damage.last and checked.file not in files[:-1]:
                mark.write(damage.position)
                mark.sync()
            if checked.file in files:
                file = disk.open(checked.file)
                _mend(file, checked.base, damage, behind[checked.base])
                file.sync()
                file.close()
    mark.close()


def _mend(file: File, base: int, damage: Damage, following: int | None) -> None:
    """`following` is where the next file begins."""
    at = damage.position - base
    if at == 0:
        file.write(0, header(base, 0))
    elif not damage.last:
        payload = file.read(at + OVERHEAD, damage.size - OVERHEAD)
        file.write(at, record(damage.position, VOID, payload))
    elif following is None:
        file.truncate(at)
    else:  # up to the next file: a hole between them would mean that whole files were dropped there
        seal = following - OVERHEAD
        room = seal - damage.position - OVERHEAD
        if 0 <= room <= _LARGEST_VOID:
            file.write(at, record(damage.position, VOID, bytes(room)))
            at = seal - base
        file.write(at, record(base + at, SEAL, b""))
