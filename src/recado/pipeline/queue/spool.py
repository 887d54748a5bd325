"""The spool: messages of a queue on disk, until Spark has committed them.

A queue has no offsets and forgets acknowledged messages. So messages are appended here, fsynced, and only then
acknowledged. Spark reads them as rows with increasing offsets, as often as necessary.

SP1  Rows that `sync` made durable are found again after any crash, with the same offsets.
SP2  A message whose id is in the dedup window is dropped. The id is made durable together with its row, and
     stays in the window after the row was removed.
SP3  Offsets have no gaps, across restarts and after all rows were removed.
SP4  Only committed rows are removed.

All methods are called in one thread, except `sync`, which may run in another at the same time.
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

from ..errors import PipelineError
from .dedup_window import DedupWindow, message_id_or_none
from .spool_record import (
    SpoolCommitted,
    SpooledRows,
    SpoolHead,
    SpoolSlice,
    decode,
    to_record_batch,
)

SEGMENT_BYTES = 16 << 20
RECORD_BYTES = 8 << 20  # approximate; a single message may be larger


class WrongSpoolError(PipelineError):
    """The folder has the spool of another queue."""


class _RecordEntry(NamedTuple):
    """A record of rows in the journal: its first offset, its position and its size in bytes."""

    offset: int
    position: int
    size: int


class Spool:
    """Messages of one queue in a journal."""

    def __init__(self, disk: Disk, *, window_size: int, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Call `recover` before anything else. `window_size` is the number of message ids to remember."""
        self.id = b""
        self.end = 0
        """The offset of the next row."""
        self.durable = 0
        """All rows before this offset are durable."""
        self.committed = 0
        self.is_new = False
        self.duplicates = 0
        """The number of messages dropped as duplicates."""
        self._disk = disk
        self._queue = ""
        self._journal = Journal(disk, segment_bytes=segment_bytes)
        self._window = DedupWindow(window_size)
        self._records: list[_RecordEntry] = []
        self._planned_count = 0  # leading records whose rows are all in batches
        self._unplanned_bytes = 0  # size of the other records
        self._head_position = 0  # journal position of the last head
        self._written_end = 0
        self._committed_written = 0
        self._durable_committed = 0
        self._window_size = window_size

    def recover(self, queue: str, make_id: Callable[[], bytes]) -> None:
        """Load the spool of the folder, or create one for this queue.

        Raises WrongSpoolError, or CorruptJournalError if uncommitted rows are missing.
        """
        known_queue = ""
        needed = 0  # rows before this offset are missing, so they must have been committed
        for position, payload in self._journal.recover():
            match decode(payload):
                case SpoolHead(spool_id, next_offset, committed, known_queue, ids):
                    self.id = spool_id
                    self.committed = max(self.committed, committed)
                    self._window = DedupWindow(self._window_size, ids)
                    self._head_position = position
                    if next_offset > self.end:
                        needed = self._restart_at(next_offset)
                case SpooledRows(offset, batch):
                    if offset > self.end:
                        needed = self._restart_at(offset)
                    for header in batch.column("header").to_pylist():
                        self._window.add_new(message_id_or_none(header))
                    self._index_record(position, len(payload), batch.num_rows)
                case SpoolCommitted(offset):
                    self.committed = max(self.committed, offset)
        if needed > self.committed:
            damage = f"rows before offset {needed} are missing, but were never committed"
            raise CorruptJournalError(self._disk.folder, self._journal.position, damage)
        if known_queue not in ("", queue):
            raise WrongSpoolError(
                f"{self._disk.folder} is the spool of the queue '{known_queue}', but this query reads "
                f"'{queue}'. Use a separate folder for each queue and query."
            )
        self._queue, self.is_new = queue, not known_queue
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
        """Discard older records: a crash during a removal can leave useless older segments behind."""
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
        """The size of the rows that are not yet in a batch."""
        return self._unplanned_bytes

    # -- writing -----------------------------------------------------------------------------------

    def append(self, deliveries: Sequence[Delivery], received_us: int) -> int:
        """Append the messages that are not duplicates, received at this time in µs; return their number."""
        add_new = self._window.add_new
        new = [each for each in deliveries if add_new(message_id_or_none(each.raw_properties))]
        self.duplicates += len(deliveries) - len(new)
        for group in _split_by_size(new):
            self._append(SpooledRows(self.end, to_record_batch(group, received_us)))
        return len(new)

    def _append(self, rows: SpooledRows) -> None:
        before = len(self._journal.segments)
        payload = rows.encode()
        [position] = self._journal.append(payload)
        self._index_record(position, len(payload), rows.batch.num_rows)
        if len(self._journal.segments) > before:
            # The ids must outlive the earlier segments, so a segment that rows open gets a head with the
            # recent ids. `remove_committed` drops only segments before a durable head.
            [self._head_position] = self._journal.append(self._head())

    def _index_record(self, position: int, size: int, rows: int) -> None:
        self._records.append(_RecordEntry(self.end, position, size))
        self._unplanned_bytes += size
        self.end += rows

    def write(self) -> None:
        """Pass appended records to the operating system. After an OSError it can be called again."""
        self._journal.write()
        self._written_end, self._committed_written = self.end, self.committed

    def sync(self) -> int:
        """Make written records durable; return the offset before which all rows are durable."""
        end, committed = self._written_end, self._committed_written
        self._journal.sync()
        self.durable, self._durable_committed = end, committed
        return end

    # -- reading -----------------------------------------------------------------------------------

    def slice_rows(self, start: int, end: int, task_bytes: int) -> list[SpoolSlice]:
        """Return where the rows [start, end) are, in slices of similar size of at most about `task_bytes`.

        Raises LookupError if the spool does not have all of them.
        """
        if start >= end:
            return []
        first = bisect_right(self._records, start, key=_first_offset) - 1
        if first < 0 or end > self.durable:
            raise LookupError(
                f"rows {start} to {end} were requested, but the spool has "
                f"{self._records[0].offset if self._records else self.end} to {self.durable}"
            )
        records = list(takewhile(lambda each: each[0].offset < end, self._records_from(first)))
        total = sum(record.size for record, _ in records)
        # Equal shares, because Spark waits for the largest task.
        share_bytes = total / ceil(total / task_bytes)
        slices: list[SpoolSlice] = []
        current = -1, 0  # segment and share of the last slice
        before = 0  # bytes of the records so far
        for record, next_offset in records:
            segment = self._journal.segment_base(record.position)
            stop = record.position + RECORD_HEADER_BYTES + record.size
            middle = before + record.size / 2
            before += record.size
            last = min(next_offset, end)
            if current == (segment, int(middle / share_bytes)):
                slices[-1] = slices[-1]._replace(stop=stop, end=last)
            else:
                current = segment, int(middle / share_bytes)
                begin = max(record.offset, start)
                slices.append(SpoolSlice(segment, record.position, stop, begin, last))
        return slices

    def _records_from(self, index: int) -> Iterator[tuple[_RecordEntry, int]]:
        """Yield the records from an index on, each with the offset after its rows."""
        records = self._records
        while index < len(records):
            next_offset = records[index + 1].offset if index + 1 < len(records) else self.end
            yield records[index], next_offset
            index += 1

    def mark_planned(self, offset: int) -> None:
        """Note that rows before `offset` are in batches; they stay until they are committed."""
        for record, next_offset in self._records_from(self._planned_count):
            if next_offset > offset:
                break
            self._planned_count += 1
            self._unplanned_bytes -= record.size

    # -- removing ----------------------------------------------------------------------------------

    def commit(self, offset: int) -> None:
        """Record that rows before `offset` are not needed; they can be removed once that is durable."""
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
        """Drop the segments whose rows are all committed.

        A segment is dropped only if the commit and the head of a later segment are durable. Otherwise recovery
        after a crash could not know that the missing rows were committed (SP4).
        """
        first_needed = self._records[0].position if self._records else self._journal.position
        for segment in list(self._journal.segments[:-1]):
            end = segment.end
            if (
                end > first_needed
                or end > self._head_position
                or self._head_position >= self._journal.durable_position
            ):
                break
            if self._durable_committed < self.committed:
                break
            self._journal.drop(segment.base)
        self._journal.close_dropped()

    def close(self) -> None:
        """Make all records durable and close the files."""
        self._journal.close()


def _first_offset(record: _RecordEntry) -> int:
    return record.offset


def _split_by_size(deliveries: list[Delivery]) -> Iterator[list[Delivery]]:
    """Split deliveries into groups that make records of about RECORD_BYTES."""
    start = size = 0
    for index, each in enumerate(deliveries):
        size += len(each.body) + len(each.raw_properties)
        if size >= RECORD_BYTES:
            yield deliveries[start : index + 1]
            start, size = index + 1, 0
    if start < len(deliveries):
        yield deliveries[start:]
