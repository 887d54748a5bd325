"""Verification of a whole journal, and its repair: damaged records are dropped, all others stay where they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .disk import Disk, File
from .mark import NAME as MARK
from .mark import Mark
from .record import CHUNK, HEAD, HEADER_SIZE, OVERHEAD, SEAL, VOID, header, record, walk
from .recovery import filled, known_durable, mark_of
from .segment import Segment, file_name, file_of, open_segments

KINDS = re.compile(rb"[\x01-\x04]")
KIND_AT = 4  # in a record


class Damage(NamedTuple):
    """What cannot be read of a file: `size` bytes from a position on."""

    position: int
    size: int
    what: str
    last: bool = False
    """Nothing whole comes behind it."""


class Checked(NamedTuple):
    """What was found in one file."""

    file: str
    base: int
    records: int
    size: int
    damages: list[Damage]
    unfinished: int = 0
    """Bytes of a write that nobody was told of; the next start cuts them off."""


def check(disk: Disk) -> Iterator[Checked]:
    """Verify every record, file by file, oldest first. Nothing is changed."""
    segments = open_segments(disk)
    known = known_durable(segments, Mark(disk).read() if MARK in disk.names() else 0)
    position = 0
    going_on = True
    for segment in segments:
        if going_on:
            checked, position, going_on = _check(segment, known)
        else:
            checked = Checked(segment.name, segment.base, 0, 0, [], filled(file_of(segment), 0))
        yield checked
        file_of(segment).close()
    if going_on and position < known:
        lost = Damage(position, known - position, "the file is missing", last=True)
        yield Checked(file_name(position), position, 0, 0, [lost])


def _check(segment: Segment, known: int) -> tuple[Checked, int, bool]:
    """Also where the segment ends, and whether the journal goes on behind it."""
    file, base = file_of(segment), segment.base
    size = file.size()
    at = HEADER_SIZE
    records = unfinished = 0
    damages: list[Damage] = []
    if mark_of(segment) is None:
        if base >= known:
            return Checked(segment.name, base, 0, 0, [], filled(file, 0)), base, False
        damages.append(Damage(base, HEADER_SIZE, "its header is wrong"))
    while True:
        count, stop = _walk(file, base, at, size, groups=True)
        records += count
        at = stop.at
        if stop.sealed or base + at >= known:
            break
        count, stop = _walk(file, base, at, size, groups=False)  # up to the damage within a group
        what = stop.damage or "its end is missing"
        after = _next_whole(file, base, stop.at, size)
        if after is None:
            damages.append(Damage(base + at, filled(file, at) - at, what, last=True))
            break
        records += count
        damages.append(Damage(base + stop.at, after - stop.at, what))
        at = after
    if not stop.sealed and not (damages and damages[-1].last):
        unfinished = filled(file, at) - at
    checked = Checked(segment.name, base, records, at, damages, unfinished)
    ...


def _walk(file: File, base: int, at: int, size: int, *, groups: bool) -> tuple[int, Stop]:
    """How many records there are from an offset on, and what ends them."""
    stop = Stop(at)

    def records() -> Iterator[object]:
        nonlocal stop
        stop = yield from walk(file.read, base, at, size, size, groups=groups)

    return sum(1 for _ in records()), stop
