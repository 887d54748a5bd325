"""A segment: one file of the journal, named by the position where it begins."""

from __future__ import annotations

from .disk import Disk, File
from .record import HEADER_SIZE

SUFFIX = ".journal"


class Segment:
    """The positions [base, end), the header included. Only the last one is not sealed."""

    __slots__ = ("base", "end", "file", "room", "sealed")

    def __init__(self, base: int, file: File | None = None, room: int = 0) -> None:
        self.base = base
        self.end = base + HEADER_SIZE
        self.sealed = False
        self.file = file
        self.room = room
        """What has to be reserved before the next write; 0 when that is done."""

    @property
    def name(self) -> str:
        return file_name(self.base)


def file_name(base: int) -> str:
    return f"{base:020d}{SUFFIX}"


def bases_in(disk: Disk) -> list[int]:
    """Of the segments of a folder, oldest first."""
    stems = [name.removesuffix(SUFFIX) for name in disk.names() if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def open_segments(disk: Disk) -> list[Segment]:
    """The segments of a folder as they are found: none known to be sealed, or where it ends."""
    return [Segment(base, disk.open(file_name(base))) for base in bases_in(disk)]


def file_of(segment: Segment) -> File:
    assert segment.file is not None
    return segment.file
