"""The changes that a turn of the event loop collects, and how they are appended to the journal at its end.

ST2  A run is not written if all its messages are settled in the turn in which they were published.

Messages and declarations come first, in the order of events, then the records of settled and delivered
positions.
"""

from collections.abc import Mapping

from recado.broker.run import Run

from .pending_run import PagedOutBucket, PendingRun, QueueEntry
from .queue_index import QueueIndex
from .ranges import clip_ranges, is_covered, merge_spans
from .records import DELIVERED, NO_EXPIRY_CODE, SETTLED, SPILLED_FLAG, encode_ranges, encode_run
from .segments import StoreSegments


class TurnBatch:
    """Collects runs, records and the queues with settled or delivered messages."""

    __slots__ = (
        "_has_deleted_queue",
        "_last",
        "_paging_out",
        "_pending",
        "_touched",
        "is_atomic",
        "is_urgent",
    )

    def __init__(self) -> None:
        self._pending: list[PendingRun | bytes] = []
        self._last: PendingRun | None = None
        self._touched: dict[QueueIndex, None] = {}  # with settled or delivered spans
        self._paging_out: dict[PagedOutBucket, None] = {}  # with unwritten runs
        self._has_deleted_queue = False  # some pending entries may be of a deleted queue
        self.is_atomic = False
        """Whether the whole batch must be one group of the journal."""
        self.is_urgent = False
        """Whether to write it at the end of this turn: a client waits for a record, or sees its effect."""

    def __bool__(self) -> bool:
        return bool(self._pending or self._touched)

    def add_record(self, record: bytes) -> None:
        """Add an encoded record that is not a run of messages."""
        self._pending.append(record)
        self._last = None
        self.is_urgent = True

    def add_run(self, index: QueueIndex, run: Run) -> None:
        """Add durable messages. Single messages of several clients share one record if they are alike."""
        last = self._last
        if last is not None and last.can_absorb(index, run):
            run.stored = True
            index.end_position = run.first_position + len(run.payloads)
            last.absorb(run.payloads)
        else:
            self._add_pending(index, run, spilled=False)

    def _add_pending(
        self, index: QueueIndex, run: Run, *, spilled: bool
    ) -> tuple[PendingRun, QueueEntry]:
        run.stored = True
        payloads, expires_at = run.payloads, run.expires_at
        entry = QueueEntry(
            index,
            run.first_position,
            NO_EXPIRY_CODE if expires_at is None else expires_at,
            spilled,
        )
        count = len(payloads)
        index.end_position = run.first_position + count
        last = self._last
        if last is not None and last.payloads is payloads:  # the same messages in a further queue
            last.entries.append(entry)
            return last, entry
        last = PendingRun(
            run.origin, run.traits, run.channel, run.frame_max, run.prefix, payloads, count, [entry]
        )
        self._last = last
        self._pending.append(last)
        self.is_urgent = True
        return last, entry

    def add_paged_out(
        self, index: QueueIndex, bucket: PagedOutBucket, run: Run, spilled: bool
    ) -> None:
        """Add messages that leave memory; `spilled` ones are transient."""
        pending, entry = self._add_pending(index, run, spilled=spilled)
        pending.is_paged_out = True
        bucket.unwritten.append((pending, entry))
        self._paging_out[bucket] = None

    def touch(self, index: QueueIndex) -> None:
        """Note that a queue has new `settled_spans` or `delivered_spans`."""
        self._touched[index] = None

    def discard(self, index: QueueIndex) -> None:
        """Forget the changes of a queue that was deleted."""
        self._has_deleted_queue = True
        self._touched.pop(index, None)

    def write_to(self, segments: StoreSegments) -> None:
        """Append the whole batch to the journal, and start an empty one."""
        self.is_urgent = False
        if self._touched or self._has_deleted_queue or self.is_atomic:
            self._append_all(segments)
        else:
            self._append_messages(segments)

    def _append_messages(self, segments: StoreSegments) -> None:
        """Do the same as `_append_all` for the common case: 5 µs for a single message instead of 8."""
        pending, self._pending, self._last = self._pending, [], None
        for each in pending:
            if isinstance(each, bytes):
                segments.append(each)
            else:
                record = _encode(each, each.entries)
                stats, offset = segments.append(record)
                for entry in each.entries:
                    entry.index.add_stored(
                        entry.first_position, each.count, offset, len(record), stats
                    )
        if self._paging_out:
            self._mark_readable()

    def _mark_readable(self) -> None:
        """Count the paged-out messages that can now be read from the journal."""
        for bucket in self._paging_out:
            bucket.stored_count += sum(each.count for each, _ in bucket.unwritten)
            bucket.unwritten.clear()
        self._paging_out.clear()

    def _append_all(self, segments: StoreSegments) -> None:
        pending, self._pending, self._last = self._pending, [], None
        touched, self._touched = self._touched, {}
        settled = {
            index: merge_spans(index.settled_spans) for index in touched if index.settled_spans
        }
        records: list[bytes] = []
        # Number of the record, count, entries.
        written: list[tuple[int, int, list[QueueEntry]]] = []
        written_end: dict[QueueIndex, int] = {}
        for each in pending:
            if isinstance(each, bytes):
                records.append(each)
                continue
            entries = [
                entry for entry in each.entries if not _is_obsolete(entry, each.count, settled)
            ]
            if entries:
                written.append((len(records), each.count, entries))
                records.append(_encode(each, entries))
                for entry in entries:
                    written_end[entry.index] = entry.first_position + each.count
        delivered = {index: _delivered_ranges(index) for index in touched if index.delivered_spans}
        for kind, ranges_by_index in ((SETTLED, settled), (DELIVERED, delivered)):
            for index, ranges in ranges_by_index.items():
                # Leave out positions after the last written message: after a restart they are assigned to new
                # messages, which must not count as settled.
                end = written_end.get(index, index.stored_end)
                ranges_by_index[index] = clip_ranges(ranges, end)
            durable = [
                (index.queue_id, ranges)
                for index, ranges in ranges_by_index.items()
                if ranges and index.durable
            ]
            if durable:
                records.append(encode_ranges(kind, durable))
        if self.is_atomic and records:
            locations = segments.append_group(records)
        else:
            locations = [segments.append(record) for record in records]
        for number, count, entries in written:
            stats, offset = locations[number]
            for entry in entries:
                entry.index.add_stored(
                    entry.first_position, count, offset, len(records[number]), stats
                )
        self.is_atomic = self._has_deleted_queue = False
        self._mark_readable()
        for index, ranges in settled.items():
            index.settled_spans.clear()
            index.settle(ranges)
        for index, ranges in delivered.items():
            index.delivered_spans.clear()
            index.add_delivered(ranges)


def _is_obsolete(
    entry: QueueEntry, count: int, settled: Mapping[QueueIndex, list[tuple[int, int]]]
) -> bool:
    """Whether all messages were settled, or their queue was deleted, before they were written."""
    if entry.index.deleted:
        return True
    ranges = settled.get(entry.index)
    end = entry.first_position + count
    return ranges is not None and is_covered(ranges, entry.first_position, end)


def _delivered_ranges(index: QueueIndex) -> list[tuple[int, int]]:
    """Return the positions delivered in this turn.

    If the queue counts deliveries, a position that was delivered several times is in several ranges.
    """
    if index.counts_deliveries:
        return [ranges for span in index.delivered_spans for ranges in merge_spans([span])]
    return merge_spans(index.delivered_spans)


def _encode(pending: PendingRun, entries: list[QueueEntry]) -> bytes:
    payloads, count = pending.payloads, pending.count
    destinations = []
    for entry in entries:
        queue_id = entry.index.queue_id
        if entry.spilled:
            queue_id |= SPILLED_FLAG
        destinations.append((queue_id, entry.first_position, entry.expires_at))
    return encode_run(
        destinations,
        pending.traits,
        pending.origin.names,
        pending.channel,
        pending.frame_max,
        pending.prefix,
        payloads if len(payloads) == count else payloads[:count],
    )
