"""The journal: records are appended, written and synced; after a restart they are recovered.

`append` only buffers. `write` hands the buffered records to the operating system, and `sync` makes the written
ones durable. Reading sees appended records at once.

J1  Everything that `sync` covered is recovered: every record up to `durable_position`, or `CorruptJournalError`
    is raised.
J2  The recovered records are a prefix of the appended ones, complete groups only, without dropped segments.
J3  The position of a record never changes, and no other record gets it after its segment was dropped.
J4  A record is returned only if its checksum is right.

All methods belong to the thread of the event loop, except `sync`, `sync_mark` and `close_dropped`: these may
run in another thread at the same time. `_lock` guards `_written_position`, `_unsynced` and
`_folder_changes_synced`. Only `sync` sets `durable_position`, and only the loop counts `_folder_changes`.
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
"""Space for a segment is reserved only while this many times its size is free on the disk."""
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
UNJOINED_PARTS_MAX = 64
"""Up to this many parts are written by one pwritev; with more, joining them first is faster."""
_pack = RECORD_HEADER.pack


class WriteBatch:
    """Encoded records that were appended to a segment and not written yet; they go to `offset` in its file."""

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
        """Write the batch; return the offset where it ends."""
        if len(self.parts) > UNJOINED_PARTS_MAX:
            self.join()
        file.write(self.offset, *self.parts)
        return self.offset + sum(map(len, self.parts))


class Journal:
    """An append-only log in the segment files of a folder."""

    def __init__(self, disk: Disk, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Create a journal without opening its files; exhaust `recover` before the first `append`."""
        self.position = 0
        """Where the next record goes, unless it begins a new segment."""
        self.durable_position = 0
        self.truncated_bytes = 0
        """Size of the torn write that recovery removed from the end."""
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
        self._dropped: deque[DiskFile] = deque()  # removed from the folder, still open
        self._folder_changes = 0  # a count: files created or removed
        self._folder_changes_synced = 0  # how many of them are durable
        self._last_creation = 0  # the number of the change that created the last segment
        self._failure: OSError | None = None

    def recover(self) -> Iterator[tuple[int, bytes]]:
        """Yield position and payload of every record, oldest first. Exhaust it before the first append.

        A torn write at the end is truncated. Raises `CorruptJournalError` if synced records are damaged.
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
        """Append records as one group and return their positions. After a crash all of them exist, or none."""
        group_bytes = 0
        for payload in records:
            group_bytes += RECORD_HEADER_BYTES + len(payload)
        if self.position + group_bytes > self._segment_limit and records:
            self._begin_segment(group_bytes)
        position = self.position
        positions = []
        left = len(records)
        parts = self._parts
        for payload in records:
            left -= 1
            kind = MORE if left else LAST
            size = len(payload)
            # `encode_record` inlined: 0.9 µs for a small record instead of 1.1, and 6 instead of 9 for 16 KiB.
            crc = crc32(payload, (position ^ size << 8 ^ kind) & 0xFFFF_FFFF)
            parts.append(_pack(size, kind, crc))
            parts.append(payload)
            positions.append(position)
            position += RECORD_HEADER_BYTES + size
        self.position = position
        return positions

    def _begin_segment(self, group_bytes: int) -> None:
        """Seal the last segment, and begin one that is large enough for the next group."""
        if not self._is_open:
            raise RuntimeError("append is allowed only after recover is exhausted and before close")
        if group_bytes > GROUP_MAX_BYTES:
            raise ValueError(
                f"a group of {group_bytes} bytes is too large: the limit is {GROUP_MAX_BYTES}"
            )
        if self._segments and not self._segments[-1].sealed:
            last = self._segments[-1]
            self._parts.append(encode_record(self.position, SEAL, b""))
            self.position += RECORD_HEADER_BYTES
            last.end = self.position
            last.sealed = True
        base = self.position
        size = max(self._segment_bytes, FILE_HEADER_BYTES + group_bytes + RECORD_HEADER_BYTES)
        segment = Segment(base, unreserved_bytes=size)
        self._segments.append(segment)
        self._bases.append(base)
        self.position = base + FILE_HEADER_BYTES
        self._segment_limit = base + size - RECORD_HEADER_BYTES  # leaves space for the seal
        self._begin_batch(segment, FILE_HEADER_BYTES)

    def _begin_batch(self, segment: Segment, offset: int) -> None:
        batch = WriteBatch(segment, offset)
        self._batches.append(batch)
        self._parts = batch.parts

    # -- making it durable -------------------------------------------------------------------------

    def write(self) -> None:
        """Hand the appended records to the operating system.

        After an `OSError`, call it again to retry. After a failed sync, it raises the error of that sync.
        """
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
        """Return the file of a segment, created and with reserved space."""
        if segment.file is None:
            # The previous segment must be durable in the folder first. Without it, recovery would take this one
            # for the successor of a dropped segment.
            self._sync_folder(self._last_creation)
            file = self._disk.open(segment.name, create=True)
            self._folder_changes += 1
            self._last_creation = self._folder_changes
            try:
                self._reserve(file, segment.unreserved_bytes)
                file.write(0, encode_file_header(segment.base, self.durable_position))
            except OSError:
                file.close()  # the next attempt starts again; until then the space is free for other files
                self._disk.remove(segment.name)
                raise
            segment.file = file
        elif segment.unreserved_bytes:
            self._reserve(segment.file, segment.unreserved_bytes)
        segment.unreserved_bytes = 0
        return segment.file

    def _reserve(self, file: DiskFile, size: int) -> None:
        """Reserve space, which makes syncs faster. On a nearly full disk, write without reserving."""
        if self._disk.free_bytes() < RESERVE_FREE_FACTOR * size:
            return
        try:
            file.reserve(size)
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                raise

    def sync(self) -> int:
        """Make the written records durable; return the durable position. May run in another thread.

        After a failure, every later call raises the same `OSError`.
        """
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
        """Make the durable mark itself durable.

        Call it before dropping segments whose content later records replace. If bit rot damages those records,
        recovery must report corruption; without the mark it would truncate them as a torn write.
        """
        assert self._mark is not None
        with self._recording_failure():
            self._mark.sync()

    def _sync_folder(self, changes: int) -> None:
        """Make the first `changes` changes to the folder durable, unless they are durable already."""
        if self._folder_changes_synced < changes:
            with self._recording_failure():
                self._disk.sync_folder()
            with self._lock:
                self._folder_changes_synced = max(self._folder_changes_synced, changes)

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """Record a failed sync for good. A retry could succeed although the system has discarded the data."""
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
        """Return the record that begins at a position, written or not.

        Raises `LookupError` if the position is in no segment, and `CorruptJournalError` if the bytes there are
        not a valid record.
        """
        for _, payload in self.scan(position, position + 1):
            return payload
        raise LookupError(f"there is no record at {position}")

    def scan(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield position and payload of the records that begin in [start, end), skipping dropped segments.

        `start` is the position of a record or of a segment. Raises `CorruptJournalError` at an invalid record.
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
        """All segments, oldest first; records are appended to the last."""
        if self._segments:
            self._segments[-1].end = self.position
        return self._segments

    def path_of(self, segment: Segment) -> Path:
        """Return the path of a segment, for error messages."""
        return self._disk.folder / segment.name

    def segment_base(self, position: int) -> int:
        """Return the base of the segment that contains a position."""
        return self._bases[bisect_right(self._bases, position) - 1]

    def last_file_bytes(self) -> int:
        """Return the size of the last segment's file, including reserved space."""
        if not self._segments or self._segments[-1].file is None:
            return 0
        return self._segments[-1].file.size()

    def roll(self) -> None:
        """Make the next record begin a new segment, so that the last one can be dropped later."""
        self._segment_limit = 0

    def drop(self, base: int) -> None:
        """Remove any segment but the last; `close_dropped` then frees its space.

        Raises `ValueError` unless a record after it is durable, so that recovery can tell the gap from the end.
        Until the next sync, a crash may undo the removal.
        """
        index = self._bases.index(base)
        segment = self._segments[index]
        if segment.end >= self.durable_position:
            raise ValueError(f"nothing after the segment at {base} is durable yet")
        self._disk.remove(segment.name)
        self._dropped.append(require_file(segment))
        del self._segments[index], self._bases[index]
        self._folder_changes += 1

    def close_dropped(self) -> None:
        """Close the files of dropped segments, which frees their space; from any thread.

        Closing the last descriptor of a removed file of 64 MiB takes 12 ms.
        """
        with suppress(IndexError):
            while True:
                file = self._dropped.popleft()
                with suppress(OSError):  # the file is not needed any more
                    file.close()

    def close(self) -> None:
        """Close the files; before that, make everything durable unless a sync has failed."""
        try:
            if self._is_open and self._failure is None:
                self.write()
                self.sync()
                for batch in self._batches:  # return the reserved space that was not used
                    require_file(batch.segment).truncate(batch.offset)
        finally:
            self._is_open, self._segment_limit = False, 0
            self.close_dropped()
            for segment in self._segments:
                if segment.file is not None:
                    segment.file.close()
            if self._mark is not None:
                self._mark.close()
