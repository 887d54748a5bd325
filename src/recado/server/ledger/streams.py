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

from recado.broker.keeper import Waiting
from recado.broker.run import Run
from recado.broker.stream_log import READ_BYTES, portion
from recado.journal.disk import Disk, FolderDisk
from recado.journal.index import SparseIndex
from recado.journal.journal import Journal
from recado.journal.record import Corrupt

from .records import (
    ALIKE,
    ALIKE_TOO,
    FIXED,
    PLACE,
    decode_run,
    encode_run,
    origin_of,
    start_of_tail,
    unpack_start,
)

STRIDE = 64 * 1024
READ_MESSAGES = 1024  # at a time: those that came one by one take some milliseconds to read
RECENT_BYTES = 128 * 1024  # what came last stays in memory: most who read a stream are at its end

_ALIKE_TOO = slice(PLACE.stop + 8, ALIKE_TOO.stop)  # messages are alike that came at other times


class Folders(Protocol):
    """Where streams have their folders."""

    def names(self) -> list[str]: ...

    def open(self, name: str) -> Disk: ...

    def remove(self, name: str) -> None: ...


class Office(Protocol):
    """What streams need of a ledger."""

    entries: int
    ticket: int
    safe: int
    on_failure: Callable[[str], None]

    def tell(self, waiting: Waiting) -> None: ...


class RealFolders:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> list[str]:
        return sorted(each.name for each in self._path.iterdir()) if self._path.exists() else []

    def open(self, name: str) -> Disk:
        return FolderDisk(self._path / name)

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)


class _Span:
    """What is in one segment of the journal."""

    __slots__ = ("base", "first", "newest")

    def __init__(self, base: int, first: int) -> None:
        self.base = base
        self.first = first
        self.newest = 0


class JournalLog:
    """The log of one stream (`StreamLog`)."""

    def __init__(self, disk: Disk, size: int, streams: "Streams") -> None:
        self.first = 0
        self.next = 0
        self._streams = streams
        self._time = 0
        self._spans: list[_Span] = []
        self._gaps: list[tuple[int, int]] = []  # offsets [start, end) that a repair has dropped
        self._offsets = SparseIndex()
        self._times = SparseIndex()
        self._stride_end = 0  # what is before it need not be in the indexes
        self._recent: deque[Run] = deque()
        self._recent_bytes = 0
        self._closing = Lock()
        self._closed = False
        self._journal = journal = Journal(disk, segment_size=size)
        for position, record in journal.recover():
            _, _, _, count, _, offset, time = unpack_start(record)
            if offset != self.next:
                if self._follows_a_record(position):
                    self._gaps.append((self.next, offset))
                else:
                    self._begin_at(position, offset)
            self._note(position, offset, count, time)
        if self._spans:
            self._drop_before(self._spans[0].base)  # let go before, and back after a crash

    def _follows_a_record(self, position: int) -> bool:
        """Whether no whole segments are missing between a record, just found, and the one before it."""
        if not self._spans:
            return False
        base = self._journal.segment_of(position)
        if base == self._spans[-1].base:
            return True
        return base == max(each.end for each in self._journal.segments if each.base < base)

    def _begin_at(self, position: int, offset: int) -> None:
        """Others were let go before it."""
        self._forget(position)
        self._spans.clear()
        self._gaps.clear()
        self.first = offset

    def _drop_before(self, base: int) -> None:
        journal = self._journal
        for old in [each.base for each in journal.segments if each.base < base]:
            journal.drop(old)
        journal.let_go()

    def _note(self, position: int, offset: int, count: int, time: int) -> None:
        base = self._journal.segment_of(position)
        if not self._spans or self._spans[-1].base != base:
            self._spans.append(_Span(base, offset))
        self._spans[-1].newest = self._time = time
        if position >= self._stride_end:
            self._offsets.add(offset, position)
            self._times.add(time, position)
            self._stride_end = position + STRIDE
        self.next = offset + count

    def _forget(self, position: int) -> None:
        """All before a position is gone, or to be ignored."""
        self._offsets.drop_before(position)
        self._times.drop_before(position)

    def append(self, run: Run, now: int) -> None:
        run.first = offset = self.next
        time = max(now, self._time)
        record = encode_run(
            ((0, offset, time),),
            run.facts,
            run.origin.first_time[1:-1],
            run.channel,
            run.frame_max,
            run.head,
            run.tails,
        )
        (position,) = self._journal.append(record)
        self._note(position, offset, len(run), time)
        self._recent.append(run)
        self._recent_bytes += run.weight()
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().weight()
        self._streams.appended(self)

    def read(self, offset: int, end: int) -> list[Run]:
        offset = max(offset, self.first)
        if self._gaps:  # what is read together has no gap
            at = bisect_right(self._gaps, offset, key=_start)
            if at and offset < self._gaps[at - 1][1]:
                offset = self._gaps[at - 1][1]
            if at < len(self._gaps):
                end = min(end, self._gaps[at][0])
        if offset >= end:
            return []
        end = min(end, offset + READ_MESSAGES)
        return portion(self._runs(offset, end), offset, end)

    def _runs(self, offset: int, end: int) -> Iterator[Run]:
        """Those that have messages from `offset` on and before `end`."""
        if self._recent and self._recent[0].first <= offset:
            yield from (
                run for run in self._recent if run.first < end and run.first + len(run) > offset
            )
            return
        run, model, tail, size = None, b"", 0, 0
        start = self._offsets.find(offset + 1)
        for record in self._records(start, start + STRIDE + READ_BYTES):
            _, _, _, count, _, first, _ = unpack_start(record)
            if first >= end:
                break
            if first + count <= offset:
                continue
            # Most that came one by one are like the one before: 2 µs for each here, 9 by what follows.
            if (
                run is not None
                and size < READ_BYTES
                and tail
                and record[ALIKE] == model[ALIKE]
                and record[_ALIKE_TOO] == model[_ALIKE_TOO]
                and record[FIXED:tail] == model[FIXED:tail]
            ):
                run.tails.append(record[tail:])
                size += len(record)
                continue
            if run is not None:
                yield run
            run, model, tail, size = _decoded(record, first), record, start_of_tail(record), 0
        if run is not None:
            yield run

    def _records(self, position: int, end: int) -> Iterator[bytes]:
        try:
            for _, record in self._journal.scan(position, end):
                yield record
        except (Corrupt, OSError) as error:
            self._streams.failed(f"messages of a stream cannot be read: {error}")
            raise

    def offset_at(self, time: int) -> int:
        for record in self._records(self._times.find(time), self._journal.position):
            _, _, _, _, _, offset, came = unpack_start(record)
            if came >= time:
                return int(offset)
        return self.next

    def trim(self, most: int | None, oldest: int | None, safe: int) -> int | None:
        spans, journal = self._spans, self._journal
        while len(spans) > 1 and spans[1].first < safe:
            newest = spans[0].newest
            too_old = oldest is not None and newest < oldest
            if not too_old and (most is None or journal.position - spans[0].base <= most):
                return newest
            del spans[0]
            self._drop_before(spans[0].base)
            self.first = spans[0].first
            self._gaps = [gap for gap in self._gaps if gap[1] > self.first]
            self._forget(spans[0].base)
        return None

    @property
    def cut(self) -> int:
        """Bytes at the end that recovery found not to be whole."""
        return self._journal.cut

    # ── with the ledger ───────────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        self._journal.write()

    def sync(self) -> None:
        with self._closing:
            if not self._closed:
                self._journal.sync()

    def close(self) -> None:
        """The loop may have to wait here for a sync that is under way."""
        with self._closing:
            self._closed = True
            self._journal.close()


def _start(gap: tuple[int, int]) -> int:
    return gap[0]


def _decoded(record: bytes, first: int) -> Run:
    stored = decode_run(record)
    return Run(
        origin_of(stored.names),
        stored.facts,
        stored.channel,
        stored.frame_max,
        stored.head,
        stored.tails,
        True,
        first,
    )


class Streams:
    """The logs of all streams of a node."""

    def __init__(self, folders: Folders, office: Office) -> None:
        self._folders = folders
        self._office = office
        self._logs: dict[int, JournalLog] = {}
        self._dirty: dict[JournalLog, None] = {}  # appended to and not written
        self._unsynced: deque[JournalLog] = deque()  # written; the syncing thread takes them
        self._doomed: deque[tuple[int, int]] = deque()  # (ticket, number)

    def open(self, number: int, size: int, *, known: bool = False) -> JournalLog:
        """`known`: it was declared before a restart, and had its folder before that was durable."""
        name = str(number)
        if known and name not in self._folders.names():
            raise Corrupt(f"streams/{name}", 0, "the folder is missing")
        log = self._logs[number] = JournalLog(self._folders.open(name), size, self)
        return log

    def log_of(self, number: int) -> JournalLog:
        return self._logs[number]

    def failed(self, reason: str) -> None:
        self._office.on_failure(reason)

    def appended(self, log: JournalLog) -> None:
        self._dirty[log] = None
        self._office.entries += 1

    @property
    def cut(self) -> int:
        return sum(log.cut for log in self._logs.values())

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
        self._doomed.append((self._office.ticket, number))
        self._office.tell(self)

    def kept(self) -> None:
        while self._doomed and self._doomed[0][0] <= self._office.safe:
            self._remove(self._doomed.popleft()[1])

    def _remove(self, number: int) -> None:
        with contextlib.suppress(OSError):  # a full disk need not take what nobody wants any more
            self._logs.pop(number).close()
        self._folders.remove(str(number))

    def keep_only(self, numbers: Iterable[int]) -> None:
        """After a restart: remove the folders of streams that are no more."""
        for name in sorted(set(self._folders.names()).difference(map(str, numbers))):
            self._folders.remove(name)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
        for _, number in self._doomed:
            self._folders.remove(str(number))
