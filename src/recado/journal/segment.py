"""A segment: one file of the journal, named after the journal position where it begins."""

from __future__ import annotations

from .disk import Disk, DiskFile
from .record import FILE_HEADER_BYTES

SEGMENT_SUFFIX = ".journal"


class Segment:
    """The journal positions [base, end), including the file header. All segments but the last are sealed."""

    __slots__ = ("base", "end", "file", "sealed", "unreserved_bytes")

    def __init__(self, base: int, file: DiskFile | None = None, unreserved_bytes: int = 0) -> None:
        self.base = base
        self.end = base + FILE_HEADER_BYTES
        self.sealed = False
        self.file = file
        """None until the first write creates the file."""
        self.unreserved_bytes = unreserved_bytes
        """The file size to reserve before the next write; 0 once that was tried."""

    @property
    def name(self) -> str:
        return file_name(self.base)


def file_name(base: int) -> str:
    return f"{base:020d}{SEGMENT_SUFFIX}"


def list_bases(disk: Disk) -> list[int]:
    """Return the positions where the segments of a folder begin, oldest first."""
    stems = [
        name.removesuffix(SEGMENT_SUFFIX) for name in disk.names() if name.endswith(SEGMENT_SUFFIX)
    ]
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def open_segments(disk: Disk) -> list[Segment]:
    """Open the segments of a folder. Recovery has to find their ends, and whether they are sealed."""
    return [Segment(base, disk.open(file_name(base))) for base in list_bases(disk)]


def require_file(segment: Segment) -> DiskFile:
    """Return the file of a segment that is known to have one."""
    assert segment.file is not None
    return segment.file
