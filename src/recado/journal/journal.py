"""The journal: records are appended, written, synced; after the end of the process they are found again.

J1  What `sync` covered is recovered: every record up to `durable`, or Corrupt is raised.
J2  What is recovered is a prefix of what was appended, whole groups only, less what was dropped.
J3  A position names one record for ever; dropping segments changes none.
J4  A record is given out only if its checksum is right.

All but `sync` belongs to one thread, the loop's; `sync` may run in another at the same time. What both need
is guarded by `_lock`: how far all is written, and what changed since the last sync.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock

from .checksum import crc32
from .disk import Disk, DiskFile
from .mark import DurableMark
from .record import (
    FILE_HEADER_BYTES,
    GROUP_MAX_BYTES,
    LAST,
    MORE,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    SEAL,
    CorruptJournalError,
    encode_file_header,
    encode_record,
    scan_records,
)
from .recovery import recover_segments
from .segment import Segment, open_segments, require_file

SEGMENT_BYTES = 64 << 20
RESERVE_FREE_FACTOR = 8
"""Room for a segment is reserved while so many times as much is free: on a small disk others need it more."""
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
UNJOINED_PARTS_MAX = 64
"""So many parts are written as they are: to join them costs a copy, and to write many more than the copy."""
_pack = RECORD_HEADER.pack


class WriteBatch:
    """What was appended to a segment and not written yet; it goes to the offset `at`."""

    __slots__ = ("offset", "parts", "segment")

    def __init__(self, segment: Segment, offset: int) -> None:
        self.segment = segment
        self.offset = offset
        self.parts: list[bytes] = []

    def join(self) -> bytes:
        if len(self.parts) > 1:
            self.parts[:] = [b"".join(self.parts)]
        return self.parts[0]

    def write(self, file: DiskFile) -> int:
        """Gives where it ends."""
        if len(self.parts) > UNJOINED_PARTS_MAX:
            self.join()
        file.write(self.offset, *self.parts)
        return self.offset + sum(map(len, self.parts))


class Journal:
    def __init__(self, disk: Disk, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.position = 0
        """Where the next record goes, unless it begins a new segment."""
        self.durable_position = 0
        self.truncated_bytes = 0
        """Bytes that recovery found behind the last whole group, and cut off."""
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._mark: DurableMark | None = None
        self._is_open = False
        self._segment_limit = 0  # no record of the last segment goes beyond this position
        self._batches: deque[WriteBatch] = deque()
        self._parts: list[bytes] = []  # of the last batch
        self._lock = Lock()
        self._written_position = 0
        self._unsynced: dict[Segment, None] = {}  # oldest first
        self._dropped: deque[DiskFile] = deque()
        self._folder_changes = 0  # how often
        self._folder_changes_synced = 0  # how many of these changes
        self._last_creation = 0  # which of these was the last segment's creation
        self._failure: OSError | None = None

    def recover(self) -> Iterator[tuple[int, bytes]]:
        """Position and payload of every record, oldest first, to be taken to the end before the first append.

        What is behind the last whole group is cut off if it may be an unfinished write; else Corrupt is raised.
        """
        self._mark = mark = DurableMark(self._disk)
        self._segments = open_segments(self._disk)
        self._bases = [segment.base for segment in self._segments]
        self.position, self.truncated_bytes = yield from recover_segments(
            self._disk, self._segments, mark.read()
        )
        self._bases = [segment.base for segment in self._segments]
        self._written_position = self.durable_position = self.position
        self._is_open = True
        mark.write(self.durable_position)
        if self._segments and not self._segments[-1].sealed:
            last = self._segments[-1]
            last.unreserved_bytes = self._segment_bytes
            self._segment_limit = last.base + self._segment_bytes - RECORD_HEADER_BYTES
            self._begin_batch(last, last.end - last.base)

    # -- appending ---------------------------------------------------------------------------------

    def append(self, *records: bytes) -> list[int]:
        """Take up records as one group: after a crash all are there, or none. Gives their positions."""
        room = 0
        for payload in records:
            room += RECORD_HEADER_BYTES + len(payload)
        if self.position + room > self._segment_limit and records:
            self._begin_segment(room)
        position = self.position
        positions = []
        left = len(records)
        parts = self._parts
        for payload in records:
            left -= 1
            kind = MORE if left else LAST
            size = len(payload)
            # `record` spelled out: 0.9 µs for a small one instead of 1.1, and 6 instead of 9 for 16 KiB.
            crc = crc32(payload, (position ^ size << 8 ^ kind) & 0xFFFF_FFFF)
            parts.append(_pack(size, kind, crc))
            parts.append(payload)
            positions.append(position)
            position += RECORD_HEADER_BYTES + size
        self.position = position
        return positions

    def _begin_segment(self, room: int) -> None:
        """Seal the last segment, and begin one with room for the next group."""
        if not self._is_open:
            raise RuntimeError("records are appended after recovery and before close")
        if room > GROUP_MAX_BYTES:
            raise ValueError(
                f"a group of {room} bytes is too large; the limit is {GROUP_MAX_BYTES}"
            )
        if self._segments and not self._segments[-1].sealed:
            last = self._segments[-1]
            self._parts.append(encode_record(self.position, SEAL, b""))
            self.position += RECORD_HEADER_BYTES
            last.end = self.position
            last.sealed = True
        base = self.position
        size = max(self._segment_bytes, FILE_HEADER_BYTES + room + RECORD_HEADER_BYTES)
        segment = Segment(base, unreserved_bytes=size)
        self._segments.append(segment)
        self._bases.append(base)
        self.position = base + FILE_HEADER_BYTES
        self._segment_limit = (
            base + size - RECORD_HEADER_BYTES
        )  # so that there is always room for the seal
        self._begin_batch(segment, FILE_HEADER_BYTES)

    def _begin_batch(self, segment: Segment, at: int) -> None:
        batch = WriteBatch(segment, at)
        self._batches.append(batch)
        self._parts = batch.parts

    # -- making it durable -------------------------------------------------------------------------

    def write(self) -> None:
        """Hand to the system what was appended. After an OSError it is still pending, to be tried again."""
        self._raise_failure()
        while self._batches and self._batches[0].parts:
            batch = self._batches[0]
            segment = batch.segment
            end = batch.write(self._prepare_file(segment))
            self._batches.popleft()
            if not self._batches:
                self._begin_batch(segment, end)
            with self._lock:
                self._written_position = segment.base + end
                self._unsynced[segment] = None

    def _prepare_file(self, segment: Segment) -> DiskFile:
        """The segment's file, with room for all that is to come."""
        if segment.file is None:
            # Without the segment before it, this one would seem to follow one that was dropped.
            self._sync_folder(self._last_creation)
            file = self._disk.open(segment.name, create=True)
            self._folder_changes += 1
            self._last_creation = self._folder_changes
            try:
                self._reserve(file, segment.unreserved_bytes)
                file.write(0, encode_file_header(segment.base, self.durable_position))
            except OSError:
                file.close()  # the next attempt begins anew; until then others may use the room
                self._disk.remove(segment.name)
                raise
            segment.file = file
        elif segment.unreserved_bytes:
            self._reserve(segment.file, segment.unreserved_bytes)
        segment.unreserved_bytes = 0
        return segment.file

    def _reserve(self, file: DiskFile, room: int) -> None:
        """Reserved room is synced sooner. Where there is less, the rest can still be written to."""
        if self._disk.free_bytes() < RESERVE_FREE_FACTOR * room:
            return
        try:
            file.reserve(room)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                raise

    def sync(self) -> int:
        """Make durable what is written; gives the position up to which all is. For a thread of its own."""
        self._raise_failure()
        with self._lock:
            position = self._written_position
            segments, self._unsynced = list(self._unsynced), {}
            changes = self._folder_changes
        with self._recording_failure():
            for segment in segments:
                require_file(segment).sync()
        self._sync_folder(changes)
        if position > self.durable_position:
            assert self._mark is not None
            self._mark.write(position)
            self.durable_position = position
        return position

    def sync_mark(self) -> None:
        """Make it durable, too, how far all is. For whoever then drops segments and counts on what is behind
        them: if that has rotted, nobody shall take it for unfinished, and cut it off."""
        assert self._mark is not None
        with self._recording_failure():
            self._mark.sync()

    def _sync_folder(self, changes: int) -> None:
        """Make so many changes to the folder durable, unless they are."""
        if self._folder_changes_synced < changes:
            with self._recording_failure():
                self._disk.sync_folder()
            with self._lock:
                self._folder_changes_synced = max(self._folder_changes_synced, changes)

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """No sync is tried again: the system may have given up what it could not write, and say all is well."""
        try:
            yield
        except OSError as error:
            self._failure = error
            raise

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # -- reading -----------------------------------------------------------------------------------

    def read(self, position: int) -> bytes:
        """The record at a position, pending or not."""
        for _, payload in self.scan(position, position + 1):
            return payload
        raise LookupError(f"there is no record at {position}")

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Position and payload of the records that begin in [start, end), as far as they were not dropped.

        `start` is a record's position, or that of a segment.
        """
        for segment in self.segments[max(bisect_right(self._bases, start) - 1, 0) :]:
            base = segment.base
            first = max(start - base, FILE_HEADER_BYTES)
            until = min(end, segment.end) - base
            if first < until:
                read = partial(self._read, segment)
                size = segment.end - base
                stop = yield from scan_records(read, base, first, until, size, whole_groups=False)
                if stop.damage is not None:
                    raise CorruptJournalError(
                        self.path_of(segment), base + stop.offset, stop.damage
                    )

    def _read(self, segment: Segment, at: int, size: int) -> bytes:
        for batch in self._batches:
            if batch.segment is segment and batch.parts:
                if at >= batch.offset:
                    return batch.join()[at - batch.offset :][:size]
                size = min(size, batch.offset - at)
        return require_file(segment).read(at, size)

    # -- segments ----------------------------------------------------------------------------------

    @property
    def segments(self) -> list[Segment]:
        """All of them, oldest first; records are appended to the last."""
        if self._segments:
            self._segments[-1].end = self.position
        return self._segments

    def path_of(self, segment: Segment) -> Path:
        """To be told when something is wrong with it."""
        return self._disk.folder / segment.name

    def segment_base(self, position: int) -> int:
        """The base of the segment that has this position."""
        return self._bases[bisect_right(self._bases, position) - 1]

    def last_file_bytes(self) -> int:
        """Bytes that the last segment takes up on disk, reserved or written."""
        if not self._segments or self._segments[-1].file is None:
            return 0
        return self._segments[-1].file.size()

    def roll(self) -> None:
        """Let the next record begin a segment, so that the last one can be dropped in time."""
        self._segment_limit = 0

    def drop(self, base: int) -> None:
        """Remove a segment, wherever it is, once something behind it is durable: that says where the journal
        goes on. A crash may undo it until the next sync. Its room is given back by `let_go`."""
        index = self._bases.index(base)
        segment = self._segments[index]
        if segment.end >= self.durable_position:
            raise ValueError(f"nothing behind the segment at {base} is durable yet")
        self._disk.remove(segment.name)
        self._dropped.append(require_file(segment))
        del self._segments[index], self._bases[index]
        self._folder_changes += 1

    def close_dropped(self) -> None:
        """Give back the room of what was dropped; in whichever thread has the time, for the last who closes a
        file of 64 MiB that has no name any more waits for 12 ms."""
        with suppress(IndexError):
            while True:
                file = self._dropped.popleft()
                with suppress(OSError):  # whatever it is, nobody wants to read that file again
                    file.close()

    def close(self) -> None:
        """Make everything durable, and let go of the files."""
        try:
            if self._is_open and self._failure is None:
                self.write()
                self.sync()
                for batch in self._batches:  # what is reserved and not used is given back
                    require_file(batch.segment).truncate(batch.offset)
        finally:
            self._is_open, self._segment_limit = False, 0
            self.close_dropped()
            for segment in self._segments:
                if segment.file is not None:
                    segment.file.close()
            if self._mark is not None:
                self._mark.close()
