"""The logs of streams on disk: a journal each, in a folder named after the number of its queue.

A record is a run with one destination, as in `records`: the place is the offset of its first message, and where
a queue's run has the time that it expires, a stream's has the time that it came. Indexes find the record of an
offset or of a time; they are in memory, with an entry for every 64 KiB, and made anew at a restart.

Offsets that are missing were let go if the journal misses whole segments there too. Else their records were
dropped by a repair: that leaves a gap, and all before and behind it stays as it was.

What was appended is written and synced with the ledger's own journal, before anybody is told. A stream that is
deleted keeps its folder until its end is safe; a folder without a queue is what a crash left of one.
"""

import contextlib
import shutil
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Protocol

from recado.broker.run import Run
from recado.broker.store import DurabilityListener
from recado.broker.stream_log import READ_BYTES, take_portion
from recado.journal.disk import Disk, FolderDisk
from recado.journal.index import SparseIndex
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
READ_MESSAGES_MAX = 1024  # at a time: those that came one by one take some milliseconds to read
RECENT_BYTES = 128 * 1024  # what came last stays in memory: most who read a stream are at its end

_LIKE_REST = slice(
    POSITION_FIELD.stop + 8, LIKE_REST.stop
)  # messages are alike that came at other times


class StreamFolders(Protocol):
    """Where streams have their folders."""

    def list_names(self) -> list[str]: ...

    def open(self, name: str) -> Disk: ...

    def remove(self, name: str) -> None: ...


class DurabilityTracker(Protocol):
    """What streams need of a ledger."""

    durable_ops: int
    lsn: int
    durable_lsn: int
    on_failure: Callable[[str], None]

    def notify_when_durable(self, waiting: DurabilityListener) -> None: ...


class DiskStreamFolders:
    def __init__(self, path: Path) -> None:
        self._path = path

    def list_names(self) -> list[str]:
        return sorted(each.name for each in self._path.iterdir()) if self._path.exists() else []

    def open(self, name: str) -> Disk:
        return FolderDisk(self._path / name)

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)


class _SegmentSpan:
    """What is in one segment of the journal."""

    __slots__ = ("base", "first", "newest_time")

    def __init__(self, base: int, first: int) -> None:
        self.base = base
        self.first = first
        self.newest_time = 0


class StreamJournal:
    """The log of one stream (`StreamLog`)."""

    def __init__(self, disk: Disk, size: int, streams: "StreamJournals") -> None:
        self.first_offset = 0
        self.next_offset = 0
        self._streams = streams
        self._last_time = 0
        self._spans: list[_SegmentSpan] = []
        self._gaps: list[tuple[int, int]] = []  # offsets [start, end) that a repair has dropped
        self._offset_index = SparseIndex()
        self._time_index = SparseIndex()
        self._stride_end = 0  # what is before it need not be in the indexes
        self._recent: deque[Run] = deque()
        self._recent_bytes = 0
        self._close_lock = Lock()
        self._closed = False
        self._journal = journal = Journal(disk, segment_bytes=size)
        for position, record in journal.recover():
            _, _, _, count, _, offset, time = unpack_run_start(record)
            if offset != self.next_offset:
                if self._is_contiguous(position):
                    self._gaps.append((self.next_offset, offset))
                else:
                    self._restart_at(position, offset)
            self._index_record(position, offset, count, time)
        if self._spans:
            self._drop_before(self._spans[0].base)  # let go before, and back after a crash

    def _is_contiguous(self, position: int) -> bool:
        """Whether no whole segments are missing between a record, just found, and the one before it."""
        if not self._spans:
            return False
        base = self._journal.segment_base(position)
        if base == self._spans[-1].base:
            return True
        return base == max(each.end for each in self._journal.segments if each.base < base)

    def _restart_at(self, position: int, offset: int) -> None:
        """Others were let go before it."""
        self._drop_index_before(position)
        self._spans.clear()
        self._gaps.clear()
        self.first_offset = offset

    def _drop_before(self, base: int) -> None:
        journal = self._journal
        for old in [each.base for each in journal.segments if each.base < base]:
            journal.drop(old)
        journal.close_dropped()

    def _index_record(self, position: int, offset: int, count: int, time: int) -> None:
        base = self._journal.segment_base(position)
        if not self._spans or self._spans[-1].base != base:
            self._spans.append(_SegmentSpan(base, offset))
        self._spans[-1].newest_time = self._last_time = time
        if position >= self._stride_end:
            self._offset_index.add(offset, position)
            self._time_index.add(time, position)
            self._stride_end = position + INDEX_STRIDE_BYTES
        self.next_offset = offset + count

    def _drop_index_before(self, position: int) -> None:
        """All before a position is gone, or to be ignored."""
        self._offset_index.drop_before(position)
        self._time_index.drop_before(position)

    def append(self, run: Run, now: int) -> None:
        run.first_position = offset = self.next_offset
        time = max(now, self._last_time)
        record = encode_run(
            ((0, offset, time),),
            run.traits,
            run.origin.first_delivery_end[1:-1],
            run.channel,
            run.frame_max,
            run.prefix,
            run.payloads,
        )
        (position,) = self._journal.append(record)
        self._index_record(position, offset, len(run), time)
        self._recent.append(run)
        self._recent_bytes += run.memory_bytes()
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().memory_bytes()
        self._streams.mark_dirty(self)

    def read(self, offset: int, end: int) -> list[Run]:
        offset = max(offset, self.first_offset)
        if self._gaps:  # what is read together has no gap
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
        """Those that have messages from `offset` on and before `end`."""
        if self._recent and self._recent[0].first_position <= offset:
            yield from (
                run
                for run in self._recent
                if run.first_position < end and run.first_position + len(run) > offset
            )
            return
        run, model, tail, size = None, b"", 0, 0
        start = self._offset_index.find(offset + 1)
        for record in self._records(start, start + INDEX_STRIDE_BYTES + READ_BYTES):
            _, _, _, count, _, first, _ = unpack_run_start(record)
            if first >= end:
                break
            if first + count <= offset:
                continue
            # Most that came one by one are like the one before: 2 µs for each here, 9 by what follows.
            if (
                run is not None
                and size < READ_BYTES
                and tail
                and record[LIKE_START] == model[LIKE_START]
                and record[_LIKE_REST] == model[_LIKE_REST]
                and record[RUN_HEADER_BYTES:tail] == model[RUN_HEADER_BYTES:tail]
            ):
                run.payloads.append(record[tail:])
                size += len(record)
                continue
            if run is not None:
                yield run
            run, model, tail, size = (
                _decode_stream_run(record, first),
                record,
                payload_offset(record),
                0,
            )
        if run is not None:
            yield run

    def _records(self, position: int, end: int) -> Iterator[bytes]:
        try:
            for _, record in self._journal.scan(position, end):
                yield record
        except (CorruptJournalError, OSError) as error:
            self._streams.report_failure(f"messages of a stream cannot be read: {error}")
            raise

    def offset_at(self, time: int) -> int:
        for record in self._records(self._time_index.find(time), self._journal.position):
            _, _, _, _, _, offset, came = unpack_run_start(record)
            if came >= time:
                return int(offset)
        return self.next_offset

    def trim(
        self, bytes_max: int | None, oldest_time: int | None, durable_offset: int
    ) -> int | None:
        spans, journal = self._spans, self._journal
        while len(spans) > 1 and spans[1].first < durable_offset:
            newest = spans[0].newest_time
            too_old = oldest_time is not None and newest < oldest_time
            if not too_old and (bytes_max is None or journal.position - spans[0].base <= bytes_max):
                return newest
            del spans[0]
            self._drop_before(spans[0].base)
            self.first_offset = spans[0].first
            self._gaps = [gap for gap in self._gaps if gap[1] > self.first_offset]
            self._drop_index_before(spans[0].base)
        return None

    @property
    def truncated_bytes(self) -> int:
        """Bytes at the end that recovery found not to be whole."""
        return self._journal.truncated_bytes

    # ── with the ledger ───────────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        self._journal.write()

    def sync(self) -> None:
        with self._close_lock:
            if not self._closed:
                self._journal.sync()

    def close(self) -> None:
        """The loop may have to wait here for a sync that is under way."""
        with self._close_lock:
            self._closed = True
            self._journal.close()


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
        self._unsynced: deque[StreamJournal] = deque()  # written; the syncing thread takes them
        self._pending_deletes: deque[tuple[int, int]] = deque()  # (ticket, number)

    def open(self, number: int, size: int, *, existing: bool = False) -> StreamJournal:
        """`known`: it was declared before a restart, and had its folder before that was durable."""
        name = str(number)
        if existing and name not in self._folders.list_names():
            raise CorruptJournalError(f"streams/{name}", 0, "the folder is missing")
        log = self._logs[number] = StreamJournal(self._folders.open(name), size, self)
        return log

    def get(self, number: int) -> StreamJournal:
        return self._logs[number]

    def report_failure(self, reason: str) -> None:
        self._tracker.on_failure(reason)

    def mark_dirty(self, log: StreamJournal) -> None:
        self._dirty[log] = None
        self._tracker.durable_ops += 1

    @property
    def truncated_bytes(self) -> int:
        return sum(log.truncated_bytes for log in self._logs.values())

    @property
    def is_durable(self) -> bool:
        """Whether all that was appended is on disk; to be asked while nothing is being synced."""
        return not self._dirty and not self._unsynced

    def write(self) -> None:
        """After an OSError the rest stays to be written."""
        while self._dirty:
            log = next(iter(self._dirty))
            log.write()
            del self._dirty[log]
            self._unsynced.append(log)

    def sync(self) -> None:
        """What was written before is durable afterwards. For the thread that syncs."""
        for _ in range(len(self._unsynced)):  # others may come without end
            self._unsynced.popleft().sync()

    def delete(self, number: int) -> None:
        """The stream is gone, once that is safe; nothing is appended to it any more."""
        self._dirty.pop(self._logs[number], None)
        self._pending_deletes.append((self._tracker.lsn, number))
        self._tracker.notify_when_durable(self)

    def on_durable(self) -> None:
        while self._pending_deletes and self._pending_deletes[0][0] <= self._tracker.durable_lsn:
            self._remove(self._pending_deletes.popleft()[1])

    def _remove(self, number: int) -> None:
        with contextlib.suppress(OSError):  # a full disk need not take what nobody wants any more
            self._logs.pop(number).close()
        self._folders.remove(str(number))

    def remove_orphans(self, known_ids: Iterable[int]) -> None:
        """After a restart: remove the folders of streams that are no more."""
        for name in sorted(set(self._folders.list_names()).difference(map(str, known_ids))):
            self._folders.remove(name)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        for _, number in self._pending_deletes:
            self._folders.remove(str(number))
