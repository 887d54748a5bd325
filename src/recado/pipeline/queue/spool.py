"""The spool: what was taken from a queue, on disk until Spark has committed it.

A queue has no offsets, and forgets what was acknowledged. So messages are appended here, synced, and only then
acknowledged; Spark reads the rows, by offsets that count up, as often as it has to.

D1  What `sync` said is durable is found again after any crash: the same rows with the same offsets.
D2  A message whose id is in the window is not taken again; its id is as durable as its row, and outlasts it.
D3  Offsets count up without gaps, also over restarts, also when all rows have been removed.
D4  No row is removed that was not committed.

All but `sync` belongs to one thread; `sync` may run in another at the same time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from math import ceil
from typing import NamedTuple

from recado.client.messages import Delivery
from recado.journal.disk import Disk
from recado.journal.journal import Journal
from recado.journal.record import RECORD_HEADER_BYTES, CorruptJournalError

from .dedup_window import DedupWindow, choose_message_id
from .spool_record import (
    SpoolCommitted,
    SpooledRows,
    SpoolHead,
    SpoolSlice,
    decode,
    to_record_batch,
)

SEGMENT_BYTES = 16 << 20
RECORD_BYTES = 8 << 20  # about; a single message may be larger


class WrongSpoolError(Exception):
    """The folder has the spool of something else."""


class _RecordEntry(NamedTuple):
    """Where the rows from `offset` on are in the journal."""

    offset: int
    position: int
    size: int


class Spool:
    def __init__(self, disk: Disk, *, window_size: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        """To be recovered before it is used; `window` is the number of ids that are remembered."""
        self.id = b""
        self.end = 0
        """The offset of the row that is taken next."""
        self.durable = 0
        """All rows before this offset are safe."""
        self.committed = 0
        self.is_new = False
        self.duplicates = 0
        """How many messages were not taken since they had been before."""
        self._disk = disk
        self._queue = ""
        self._journal = Journal(disk, segment_bytes=segment_bytes)
        self._window = DedupWindow(window_size)
        self._records: list[_RecordEntry] = []
        self._planned_count = 0  # how many of the places are in batches of the reader's
        self._unplanned_bytes = 0  # bytes of the others
        self._head_position = 0  # where the last head is in the journal
        self._written_end = 0
        self._committed_written = 0
        self._durable_committed = 0
        self._window_size = window_size

    def recover(self, queue: str, make_id: Callable[[], bytes]) -> None:
        """What is in the folder; if that is nothing, a new spool for this queue."""
        known = ""
        needed = 0  # what is before this offset is missing: so it must have been committed
        for position, payload in self._journal.recover():
            match decode(payload):
                case SpoolHead(name, following, committed, known, ids):
                    self.id = name
                    self.committed = max(self.committed, committed)
                    self._window = DedupWindow(self._window_size, ids)
                    self._head_position = position
                    if following > self.end:
                        needed = self._restart_at(following)
                case SpooledRows(offset, batch):
                    if offset > self.end:
                        needed = self._restart_at(offset)
                    for header in batch.column("header").to_pylist():
                        self._window.add_new(choose_message_id(header))
                    self._index_record(position, len(payload), batch.num_rows)
                case SpoolCommitted(offset):
                    self.committed = max(self.committed, offset)
        if needed > self.committed:
            what = f"rows before offset {needed} are missing that were never committed"
            raise CorruptJournalError(self._disk.folder, self._journal.position, what)
        if known not in ("", queue):
            raise WrongSpoolError(
                f"{self._disk.folder} is the spool of the queue '{known}', and this query reads '{queue}'. "
                "Give each queue and query a folder of its own."
            )
        self._queue, self.is_new = queue, not known
        if self.is_new:
            self.id = make_id()
            [self._head_position] = self._journal.append(self._head())
            self.write()
            self.sync()
        self.durable = self._written_end = self.end
        self._durable_committed = self.committed
        self._forget_committed()
        self.remove_committed()

    def _restart_at(self, offset: int) -> int:
        """A removal that a crash undid in part leaves older segments behind, which are of no use."""
        self._records.clear()
        self._planned_count = self._unplanned_bytes = 0
        self.end = offset
        return offset

    def _head(self) -> bytes:
        return SpoolHead(
            self.id, self.end, self.committed, self._queue, list(self._window)
        ).encode()

    @property
    def unplanned_bytes(self) -> int:
        """Bytes of rows that are in no batch yet."""
        return self._unplanned_bytes

    # -- writing -----------------------------------------------------------------------------------

    def append(self, deliveries: Sequence[Delivery], received: int) -> int:
        """Take what is new of it; gives how much that is. `received` is in microseconds since 1970."""
        take = self._window.add_new
        new = [each for each in deliveries if take(choose_message_id(each.raw_properties))]
        self.duplicates += len(deliveries) - len(new)
        for some in _split_by_size(new):
            self._append(SpooledRows(self.end, to_record_batch(some, received)))
        return len(new)

    def _append(self, rows: SpooledRows) -> None:
        before = len(self._journal.segments)
        payload = rows.encode()
        [position] = self._journal.append(payload)
        self._index_record(position, len(payload), rows.batch.num_rows)
        if len(self._journal.segments) > before:
            # The ids in the segments before it are needed when those are gone.
            [self._head_position] = self._journal.append(self._head())

    def _index_record(self, position: int, size: int, rows: int) -> None:
        self._records.append(_RecordEntry(self.end, position, size))
        self._unplanned_bytes += size
        self.end += rows

    def write(self) -> None:
        """Hand it to the system. After an OSError it is still pending, to be tried again."""
        self._journal.write()
        self._written_end, self._committed_written = self.end, self.committed

    def sync(self) -> int:
        """Make durable what is written; gives the offset before which all is."""
        end, committed = self._written_end, self._committed_written
        self._journal.sync()
        self.durable, self._durable_committed = end, committed
        return end

    # -- reading -----------------------------------------------------------------------------------

    def slice_rows(self, start: int, end: int, task_bytes: int) -> list[SpoolSlice]:
        """Where the rows [start, end) are, in pieces of about the same size, of about `size` bytes at most;
        LookupError if they are not."""
        if start >= end:
            return []
        first = bisect_right(self._records, start, key=_first_offset) - 1
        if first < 0 or end > self.durable:
            raise LookupError(
                f"rows {start} to {end} are asked for, and the spool has "
                f"{self._records[0].offset if self._records else self.end} to {self.durable}"
            )
        places = list(takewhile(lambda each: each[0].offset < end, self._records_from(first)))
        total = sum(place.size for place, _ in places)
        share = total / ceil(total / task_bytes)  # whoever has the largest is waited for
        pieces: list[SpoolSlice] = []
        current = -1, 0  # the segment and the share of the last piece
        before = 0  # bytes
        for place, behind in places:
            base = self._journal.segment_base(place.position)
            stop = place.position + RECORD_HEADER_BYTES + place.size
            middle = before + place.size / 2
            before += place.size
            if current == (base, int(middle / share)):
                pieces[-1] = pieces[-1]._replace(stop=stop, end=min(behind, end))
            else:
                current = base, int(middle / share)
                begin = max(place.offset, start)
                pieces.append(SpoolSlice(base, place.position, stop, begin, min(behind, end)))
        return pieces

    def _records_from(self, index: int) -> Iterator[tuple[_RecordEntry, int]]:
        """The places from this one on, each with the offset behind its rows."""
        places = self._records
        while index < len(places):
            following = places[index + 1].offset if index + 1 < len(places) else self.end
            yield places[index], following
            index += 1

    def mark_planned(self, offset: int) -> None:
        """All rows before `offset` are in batches, and make room; they stay until they are committed."""
        for place, behind in self._records_from(self._planned_count):
            if behind > offset:
                break
            self._planned_count += 1
            self._unplanned_bytes -= place.size

    # -- removing ----------------------------------------------------------------------------------

    def commit(self, offset: int) -> None:
        """Nobody will ask for rows before `offset` again. When that is synced they can be removed."""
        if offset > self.committed:
            self.committed = offset
            self._journal.append(SpoolCommitted(offset).encode())
            self._forget_committed()

    def _forget_committed(self) -> None:
        self.mark_planned(self.committed)
        done = sum(
            1 for _ in takewhile(lambda each: each[1] <= self.committed, self._records_from(0))
        )
        del self._records[:done]
        self._planned_count -= done

    def remove_committed(self) -> None:
        """Remove the segments in which all is committed, as far as the disk knows that, and where the journal
        goes on: after a crash what is missing must be known to have been of no use (D4)."""
        kept = self._records[0].position if self._records else self._journal.position
        for segment in list(self._journal.segments[:-1]):
            end = segment.end
            if (
                end > kept
                or end > self._head_position
                or self._head_position >= self._journal.durable_position
            ):
                break
            if self._durable_committed < self.committed:
                break
            self._journal.drop(segment.base)
        self._journal.close_dropped()

    def close(self) -> None:
        """Make all durable, and let go of the files."""
        self._journal.close()


def _first_offset(place: _RecordEntry) -> int:
    return place.offset


def _split_by_size(deliveries: list[Delivery]) -> Iterator[list[Delivery]]:
    """In pieces that make records of a bearable size."""
    start = size = 0
    for index, each in enumerate(deliveries):
        size += len(each.body) + len(each.raw_properties)
        if size >= RECORD_BYTES:
            yield deliveries[start : index + 1]
            start, size = index + 1, 0
    if start < len(deliveries):
        yield deliveries[start:]
