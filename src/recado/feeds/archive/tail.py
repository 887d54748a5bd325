"""The tail of an archive: rows in its journal that are in no Parquet file yet, read concurrently with the
writer.

Everything before the journal's durable mark is never written again, so any process can read it at any time. A
segment that the writer drops stays readable for processes that have opened it. A reader that opens it too late
gets `SegmentGoneError` and reads the manifest again, which names a later start of the tail.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

from recado.journal.checksum import crc32
from recado.journal.mark import MARK_BYTES as MARK_SIZE
from recado.journal.mark import MARK_FILE as MARK
from recado.journal.record import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    ScanEnd,
    decode_mark,
    scan_records,
)
from recado.journal.segment import SEGMENT_SUFFIX, file_name

from ..block import MalformedDataError
from .errors import CorruptArchiveError
from .layout import ReadableDisk, ReadableFile
from .records import StoredEntry, decode

_READ_ATTEMPT_COUNT = 100


class SegmentGoneError(Exception):
    """A segment was dropped or is missing."""

    def __init__(self, position: int) -> None:
        super().__init__(f"the journal segment at position {position} was dropped")
        self.position = position


def durable_position(disk: ReadableDisk) -> int:
    """Return the journal's durable mark: all records before this position are durable; 0 if there is none."""
    if MARK not in disk.names():
        return 0
    file = disk.open(MARK)
    try:
        for _ in range(_READ_ATTEMPT_COUNT):  # it may be in the middle of a write
            found = file.read(0, MARK_SIZE)
            if len(found) == MARK_SIZE and crc32(found[:8]) == int.from_bytes(found[8:], "little"):
                return int.from_bytes(found[:8], "little")
        return 0
    finally:
        file.close()


class TailReader:
    """Reads the records in [start, end); both are positions in the journal at which a record ends."""

    def __init__(self, disk: ReadableDisk, start: int, end: int) -> None:
        self._disk = disk
        self._start = start
        self._end = end
        self._files: list[tuple[int, ReadableFile]] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self._start >= self._end:
            return
        stems = [
            name.removesuffix(SEGMENT_SUFFIX)
            for name in self._disk.names()
            if name.endswith(SEGMENT_SUFFIX)
        ]
        bases = sorted(int(stem) for stem in stems if stem.isdecimal() and int(stem) < self._end)
        begin = max((base for base in bases if base <= self._start), default=None)
        if begin is None:
            raise SegmentGoneError(self._start)
        for base in bases[bases.index(begin) :]:
            try:
                self._files.append((base, self._disk.open(file_name(base))))
            except FileNotFoundError:
                raise SegmentGoneError(base) from None

    def close(self) -> None:
        for _, file in self._files:
            file.close()
        self._files.clear()

    def records(self) -> Iterator[tuple[int, StoredEntry]]:
        """Yield the records, each with its end position."""
        position = self._start
        for base, file in self._files:
            path = self._disk.folder / file_name(base)
            if position < base:
                raise CorruptArchiveError(
                    path, f"position {position}", "the previous segment is missing"
                )
            position = yield from self._read_segment(file, base, position, path)
        if position < self._end:
            what = f"records end before position {self._end}"
            raise CorruptArchiveError(self._disk.folder, f"position {position}", what)

    def _read_segment(
        self, file: ReadableFile, base: int, position: int, path: Path
    ) -> Generator[tuple[int, StoredEntry], None, int]:
        """Yield the records of one segment from a position on; return where they end."""
        if decode_mark(file.read(0, FILE_HEADER_BYTES), base) is None:
            raise CorruptArchiveError(path, f"position {base}", "wrong header")
        until = min(self._end - base, file.size())
        first = max(position - base, FILE_HEADER_BYTES)
        stop = ScanEnd(first)

        def payloads() -> Iterator[tuple[int, bytes]]:
            nonlocal stop
            stop = yield from scan_records(file.read, base, first, until, until, whole_groups=False)

        for at, payload in payloads():
            try:
                yield at + RECORD_HEADER_BYTES + len(payload), decode(payload)
            except MalformedDataError as error:
                raise CorruptArchiveError(path, f"position {at}", str(error)) from None
        if stop.damage is not None:
            raise CorruptArchiveError(path, f"position {base + stop.offset}", stop.damage)
        return base + stop.offset
