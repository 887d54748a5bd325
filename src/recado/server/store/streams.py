"""The logs of streams on disk: a journal each, in a folder named after the id of its queue.

A record is a run with one destination, as in `records`. The position is the offset of the first message, and
the field for the expiry has the time of publishing. Two indexes find the record of an offset or of a time. They
are in memory, with an entry for every 64 KiB, and are rebuilt at a restart.

If offsets are missing and whole segments are missing there too, the stream was trimmed. Otherwise a repair
removed damaged records: that leaves a gap, and the offsets before and after it stay as they are.

Records are written and synced together with the store's own journal, before any publisher is confirmed. The
folder of a deleted stream is removed when the deletion is durable; a folder without a queue was left by a
crash.
"""

import contextlib
import shutil
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Protocol

from recado.broker.run import Run
from recado.broker.store import DurabilityListener
from recado.broker.stream_log import READ_BYTES, take_portion
from recado.journal.disk import Disk, FolderDisk
from recado.journal.journal import Journal
from recado.journal.record import CorruptJournalError

from .records import (
    LIKE_REST,
    LIKE_START,
    POSITION_FIELD,
    RUN_HEADER_BYTES,
    decode_origin,
    decode_run,
    encode_run,
    payload_offset,
    unpack_run_start,
)

INDEX_STRIDE_BYTES = 64 * 1024
READ_MESSAGES_MAX = 1024  # reading that many single messages takes some milliseconds
# The newest messages stay in memory, because most consumers read at the end.
RECENT_BYTES = 128 * 1024

_LIKE_REST = slice(POSITION_FIELD.stop + 8, LIKE_REST.stop)  # without the time, which may differ


class SparseIndex:
    """Finds where to start scanning for a key, when keys grow with journal positions.

    Only some records are added; the others are found by scanning. Keys are offsets or times, and several
    records may have the same key.
    """

    def __init__(self) -> None:
        self._start = 0
        self._keys = array("q")
        self._positions = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, position: int) -> None:
        self._keys.append(key)
        self._positions.append(position)

    def find(self, key: int) -> int:
        """Return a journal position to scan from: no record before it has this key or a greater one."""
        number = bisect_left(self._keys, key)
        return self._positions[number - 1] if number else self._start

    def drop_before(self, position: int) -> None:
        """Forget the records before a position, which were dropped."""
        number = bisect_left(self._positions, position)
        del self._keys[:number], self._positions[:number]
        self._start = max(self._start, position)


class StreamFolders(Protocol):
    """The folders of the streams, by name."""

    def list_names(self) -> list[str]: ...

    def open(self, name: str) -> Disk: ...

    def remove(self, name: str) -> None: ...


class DurabilityTracker(Protocol):
    """The part of a `JournalStore` that streams need."""

    durable_ops: int
    lsn: int
    durable_lsn: int
    on_failure: Callable[[str], None]

    def notify_when_durable(self, listener: DurabilityListener) -> None: ...


class DiskStreamFolders:
    """The folders of streams below a path of the file system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def list_names(self) -> list[str]:
        return sorted(each.name for each in self._path.iterdir()) if self._path.exists() else []

    def open(self, name: str) -> Disk:
        return FolderDisk(self._path / name)

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)


class _SegmentSpan:
    """The messages in one segment of a stream's journal."""

    __slots__ = ("base", "first", "newest_time")

    def __init__(self, base: int, first: int) -> None:
        self.base = base
        self.first = first
        self.newest_time = 0


class StreamJournal:
    """The log of one stream, an implementation of `StreamLog`."""

    def __init__(self, disk: Disk, segment_bytes: int, streams: "StreamJournals") -> None:
        self.first_offset = 0
        self.next_offset = 0
        self._streams = streams
        self._last_time = 0
        self._spans: list[_SegmentSpan] = []
        self._gaps: list[tuple[int, int]] = []  # offsets [start, end) that a repair has removed
        self._offset_index = SparseIndex()
        self._time_index = SparseIndex()
        self._stride_end = 0  # the next index entry is for the first record after this
        self._recent: deque[Run] = deque()
        self._recent_bytes = 0
        self._close_lock = Lock()
        self._closed = False
        self.journal = journal = Journal(disk, segment_bytes=segment_bytes)
        for position, record in journal.recover():
            _, _, _, count, _, offset, time = unpack_run_start(record)
            if offset != self.next_offset:
                if self._is_contiguous(position):
                    self._gaps.append((self.next_offset, offset))
                else:
                    self._restart_at(position, offset)
            self._index_record(position, offset, count, time)
        if self._spans:
            self._drop_before(self._spans[0].base)  # a crash may have undone their removal

    def _is_contiguous(self, position: int) -> bool:
        """Whether no segment is missing between this record and the one before it."""
        if not self._spans:
            return False
        base = self.journal.segment_base(position)
        if base == self._spans[-1].base:
            return True
        return base == max(each.end for each in self.journal.segments if each.base < base)

    def _restart_at(self, position: int, offset: int) -> None:
        """Begin the stream at an offset: all messages before it were trimmed."""
        self._drop_index_before(position)
        self._spans.clear()
        self._gaps.clear()
        self.first_offset = offset

    def _drop_before(self, base: int) -> None:
        journal = self.journal
        for old in [each.base for each in journal.segments if each.base < base]:
            journal.drop(old)
        journal.close_dropped()

    def _index_record(self, position: int, offset: int, count: int, time: int) -> None:
        base = self.journal.segment_base(position)
        if not self._spans or self._spans[-1].base != base:
            self._spans.append(_SegmentSpan(base, offset))
        self._spans[-1].newest_time = self._last_time = time
        if position >= self._stride_end:
            self._offset_index.add(offset, position)
            self._time_index.add(time, position)
            self._stride_end = position + INDEX_STRIDE_BYTES
        self.next_offset = offset + count

    def _drop_index_before(self, position: int) -> None:
        """Forget index entries before a journal position."""
        self._offset_index.drop_before(position)
        self._time_index.drop_before(position)

    def append(self, run: Run, now: int) -> None:
        run.first_position = offset = self.next_offset
        time = max(now, self._last_time)
        record = encode_run(
            ((0, offset, time),),
            run.traits,
            run.origin.names,
            run.channel,
            run.frame_max,
            run.prefix,
            run.payloads,
        )
        (position,) = self.journal.append(record)
        self._index_record(position, offset, len(run), time)
        self._recent.append(run)
        self._recent_bytes += run.memory_bytes()
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().memory_bytes()
        self._streams.mark_dirty(self, len(run))

    def read(self, offset: int, end: int) -> list[Run]:
        offset = max(offset, self.first_offset)
        if self._gaps:  # the returned runs must be contiguous
            at = bisect_right(self._gaps, offset, key=_gap_start)
            if at and offset < self._gaps[at - 1][1]:
                offset = self._gaps[at - 1][1]
            if at < len(self._gaps):
                end = min(end, self._gaps[at][0])
        if offset >= end:
            return []
        end = min(end, offset + READ_MESSAGES_MAX)
        return take_portion(self._runs(offset, end), offset, end)

    def _runs(self, offset: int, end: int) -> Iterator[Run]:
        """Yield the runs with messages in [offset, end)."""
        if self._recent and self._recent[0].first_position <= offset:
            yield from (
                run
                for run in self._recent
                if run.first_position < end and run.first_position + len(run) > offset
            )
            return
        run, model, payload_start, size = None, b"", 0, 0
        start = self._offset_index.find(offset + 1)
        for record in self._records(start, start + INDEX_STRIDE_BYTES + READ_BYTES):
            _, _, _, count, _, first, _ = unpack_run_start(record)
            if first >= end:
                break
            if first + count <= offset:
                continue
            # Most messages that were published one by one are like the one before: 2 µs each here, 9 below.
            if (
                run is not None
                and size < READ_BYTES
                and payload_start
                and record[LIKE_START] == model[LIKE_START]
                and record[_LIKE_REST] == model[_LIKE_REST]
                and record[RUN_HEADER_BYTES:payload_start] == model[RUN_HEADER_BYTES:payload_start]
            ):
                run.payloads.append(record[payload_start:])
                size += len(record)
                continue
            if run is not None:
                yield run
            run, model, size = _decode_stream_run(record, first), record, 0
            payload_start = payload_offset(record)
        if run is not None:
            yield run

    def _records(self, position: int, end: int) -> Iterator[bytes]:
        try:
            for _, record in self.journal.scan(position, end):
                yield record
        except (CorruptJournalError, OSError) as error:
            self._streams.report_failure(f"messages of a stream cannot be read: {error}")
            raise

    def offset_at(self, time: int) -> int:
        for record in self._records(self._time_index.find(time), self.journal.position):
            _, _, _, _, _, offset, record_time = unpack_run_start(record)
            if record_time >= time:
                return int(offset)
        return self.next_offset

    def trim(
        self, bytes_max: int | None, oldest_time: int | None, durable_offset: int
    ) -> int | None:
        spans, journal = self._spans, self.journal
        while len(spans) > 1 and spans[1].first < durable_offset:
            newest_time = spans[0].newest_time
            too_old = oldest_time is not None and newest_time < oldest_time
            if not too_old and (bytes_max is None or journal.position - spans[0].base <= bytes_max):
                return newest_time
            del spans[0]
            self._drop_before(spans[0].base)
            self.first_offset = spans[0].first
            self._gaps = [gap for gap in self._gaps if gap[1] > self.first_offset]
            self._drop_index_before(spans[0].base)
        return None

    @property
    def truncated_bytes(self) -> int:
        """Size of the torn write that recovery removed from the end."""
        return self.journal.truncated_bytes

    # ── as part of the store ──────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        self.journal.write()

    def sync(self) -> None:
        with self._close_lock:
            if not self._closed:
                self.journal.sync()

    def close(self) -> None:
        """Close the journal, after waiting for a sync that is running in another thread."""
        with self._close_lock:
            self._closed = True
            self.journal.close()


def _gap_start(gap: tuple[int, int]) -> int:
    return gap[0]


def _decode_stream_run(record: bytes, first: int) -> Run:
    stored = decode_run(record)
    return Run(
        decode_origin(stored.origin_bytes),
        stored.traits,
        stored.channel,
        stored.frame_max,
        stored.prefix,
        stored.payloads,
        True,
        first,
    )


class StreamJournals:
    """The logs of all streams of a node."""

    def __init__(self, folders: StreamFolders, tracker: DurabilityTracker) -> None:
        self._folders = folders
        self._tracker = tracker
        self._logs: dict[int, StreamJournal] = {}
        self._dirty: dict[StreamJournal, None] = {}  # appended to and not written
        self._unsynced: deque[StreamJournal] = deque()  # written; consumed by the sync thread
        self._pending_deletes: deque[tuple[int, int]] = deque()  # (LSN, queue id)

    def open(self, queue_id: int, segment_bytes: int, *, existing: bool = False) -> StreamJournal:
        """Open the journal of a stream, and recover it.

        An `existing` stream was declared before a restart. Its folder was created before the declaration became
        durable; if it is missing, `CorruptJournalError` is raised.
        """
        name = str(queue_id)
        if existing and name not in self._folders.list_names():
            raise CorruptJournalError(f"streams/{name}", 0, "the folder is missing")
        log = StreamJournal(self._folders.open(name), segment_bytes, self)
        self._logs[queue_id] = log
        return log

    def create(self, queue_id: int, segment_bytes: int) -> None:
        """Open the journal of a new stream. If it raises `OSError`, nothing is left of it."""
        try:
            self.open(queue_id, segment_bytes)
        except OSError:
            self._folders.remove(str(queue_id))  # it may have been created without its files
            raise

    def journals(self) -> list[Journal]:
        return [log.journal for log in self._logs.values()]

    def get(self, queue_id: int) -> StreamJournal:
        return self._logs[queue_id]

    def report_failure(self, reason: str) -> None:
        self._tracker.on_failure(reason)

    def mark_dirty(self, log: StreamJournal, count: int) -> None:
        """Note that messages were appended to a log."""
        self._dirty[log] = None
        self._tracker.durable_ops += count

    @property
    def truncated_bytes(self) -> int:
        return sum(log.truncated_bytes for log in self._logs.values())

    @property
    def is_durable(self) -> bool:
        """Whether all appended records are durable; not meaningful while a sync is running."""
        return not self._dirty and not self._unsynced

    def write(self) -> None:
        """Write all appended records. After an `OSError`, call it again to write the rest."""
        while self._dirty:
            log = next(iter(self._dirty))
            log.write()
            del self._dirty[log]
            self._unsynced.append(log)

    def sync(self) -> None:
        """Make all records durable that were written before the call; in the sync thread."""
        for _ in range(len(self._unsynced)):  # the loop may append further ones meanwhile
            self._unsynced.popleft().sync()

    def delete(self, queue_id: int) -> None:
        """Remove a stream, its folder once the deletion is durable."""
        self._dirty.pop(self._logs[queue_id], None)
        self._pending_deletes.append((self._tracker.lsn, queue_id))
        self._tracker.notify_when_durable(self)

    def on_durable(self) -> None:
        while self._pending_deletes and self._pending_deletes[0][0] <= self._tracker.durable_lsn:
            self.remove(self._pending_deletes.popleft()[1])

    def remove(self, queue_id: int) -> None:
        """Remove a stream and its folder now."""
        with contextlib.suppress(OSError):  # on a full disk the rest of it need not be written
            self._logs.pop(queue_id).close()
        self._folders.remove(str(queue_id))

    def remove_orphans(self, known_ids: Iterable[int]) -> None:
        """After a restart: remove the folders of streams that are not declared."""
        for name in sorted(set(self._folders.list_names()).difference(map(str, known_ids))):
            self._folders.remove(name)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        for _, queue_id in self._pending_deletes:
            self._folders.remove(str(queue_id))
