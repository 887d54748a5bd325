"""Recovery: a broker is restored from the journal, with its topology, metadata and messages.

Records are applied in order. Older segments may be incomplete, because segments without live messages are
dropped. So a checkpoint replaces everything known so far, except where messages are stored: declarations and
settlements count only after the last checkpoint, messages always.

No message is loaded into memory: afterwards all messages of a queue are paged out. 1 M messages of 16 bytes
that were published one by one take 2.2 s, half of it in the journal; 1 GB in messages of 1 KiB takes 3.1 s.

RV1  A message is live if a record contains it, no record settles it, and it is not a spilled transient message.
RV2  If two records contain the same position, the later one counts: the message was moved.
"""

from collections import defaultdict
from operator import itemgetter

from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.broker.work_queue import WorkQueue
from recado.journal.record import CorruptJournalError

from . import paged_out, records
from .catalogue import QualifiedName, StoreCatalogue
from .journal_store import JournalStore
from .pending_run import PagedOutBucket
from .queue_index import QueueIndex
from .ranges import RangeSet
from .segments import SegmentStats

_NO_INDEX = QueueIndex(0, None, durable=False)  # a placeholder; ids begin with 1
_END_POSITION = 1 << 63


def restore_broker(store: JournalStore, broker: Broker, now: int) -> None:
    """Restore the state in the journal to a new broker that uses this store.

    Raises `CorruptJournalError` if a durable record is missing or damaged.
    """
    state = RecoveredState(store)
    state.read()
    state.restore(broker, now)


class RecoveredState:
    """The state that the records of a journal add up to."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._catalogue = StoreCatalogue()
        self._indexes: dict[int, QueueIndex] = {}
        self._spilled: dict[int, RangeSet] = defaultdict(RangeSet)
        # By queue id or exchange: the journal position of a record, and the ids in it.
        self._message_ids: dict[QualifiedName | int, list[tuple[int, list[tuple[bytes, int]]]]] = (
            defaultdict(list)
        )
        self._next_queue_id = 1
        self._checkpoint_base = 0  # base of the segment with the last checkpoint
        self._segment_bytes: dict[int, int] = {}  # by base

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────

    def read(self) -> None:
        """Read the whole journal."""
        journal, segments = self._store.journal, self._store.segments
        run, unpack, spilled = records.RUN, records.unpack_run_start, records.SPILLED_FLAG
        last_queue_id, index = 0, _NO_INDEX  # of the run before, which most runs share
        stats, base, end = SegmentStats(0), 0, 0
        for position, record in journal.recover():
            if position >= end:
                base = journal.segment_base(position)
                bases = (segment.base for segment in journal.segments)
                end = min((each for each in bases if each > base), default=_END_POSITION)
                stats = segments.stats_of(base)
            if record[0] == run:
                _, _, more, count, queue_id, first, expires_at = unpack(record)
                if more or expires_at >= 0 or queue_id >= spilled:
                    self._apply_run(record, position - base, stats)
                    continue
                if queue_id != last_queue_id:
                    last_queue_id, index = queue_id, self._index(queue_id)
                index.add_stored(first, count, position - base, len(record), stats)
            elif record[0] == records.MOVED_RUN:
                self._apply_run(record, position - base, stats)
            else:
                self._apply(record, base, position)
                last_queue_id = 0
        self._check_for_gaps()

    def _check_for_gaps(self) -> None:
        """Check that a checkpoint follows each gap: segments are dropped only after a durable checkpoint."""
        end = 0
        for segment in self._store.journal.segments:
            if end < segment.base > self._checkpoint_base:
                reason = "segments before it were dropped, and no checkpoint replaces them"
                raise CorruptJournalError(self._store.journal.path_of(segment), end, reason)
            end = segment.end

    def _index(self, queue_id: int) -> QueueIndex:
        index = self._indexes.get(queue_id)
        if index is None:
            index = self._indexes[queue_id] = QueueIndex(queue_id, None, durable=True)
            self._next_queue_id = max(self._next_queue_id, queue_id + 1)
        return index

    def _apply_run(self, record: bytes, offset: int, stats: SegmentStats) -> None:
        """Apply a run of any kind; `read` has a fast path for new durable runs of one queue without expiry."""
        _, _, _, count, *_ = records.unpack_run_start(record)
        for flagged_id, first, expires_at in records.decode_destinations(record):
            index, end = self._index(flagged_id & ~records.SPILLED_FLAG), first + count
            index.may_expire |= expires_at != records.NO_EXPIRY_CODE
            if flagged_id >= records.SPILLED_FLAG:
                self._spilled[index.queue_id].add(first, end)
            elif record[0] == records.RUN:
                index.add_stored(first, count, offset, len(record), stats)
            else:
                # It was live when it was moved, even if the record that first stored it is gone, or was that
                # of a spilled message.
                if index.queue_id in self._spilled:
                    self._spilled[index.queue_id].remove(first, end)
                index.settled.remove(first, end)
                index.stored_end = max(index.stored_end, end)
                index.add_moved(first, end, offset, len(record), stats)

    def _apply(self, record: bytes, base: int, position: int) -> None:
        match record[0]:
            case records.SETTLED:
                for queue_id, ranges in records.decode_ranges(record):
                    settled = self._index(queue_id).settled
                    for start, end in ranges:
                        settled.add(start, end)
            case records.DELIVERED:
                for queue_id, ranges in records.decode_ranges(record):
                    self._index(queue_id).add_delivered(ranges)
            case records.MESSAGE_IDS:
                owner, ids = records.decode_message_ids(record)
                self._message_ids[_decode_owner(owner)].append((position, ids))
            case records.CHECKPOINT:
                self._apply_checkpoint(record, base, position)
            case _:
                removed = self._catalogue.apply(record)
                if removed is not None:
                    self._message_ids.pop(removed, None)
                if isinstance(removed, int):
                    self._indexes.pop(removed, None)
                    self._next_queue_id = max(self._next_queue_id, removed + 1)

    def _apply_checkpoint(self, record: bytes, base: int, position: int) -> None:
        self._catalogue = StoreCatalogue()
        self._checkpoint_base = base
        known, self._indexes = self._indexes, {}
        ids_start = position
        self._next_queue_id, parts = records.decode_checkpoint(record)
        for part in parts:
            if part[0] == records.MESSAGE_IDS_START:
                ids_start = records.decode_message_ids_start(part)
                self._checkpoint_base = self._store.journal.segment_base(ids_start)
            elif part[0] == records.QUEUE_INDEX:
                queue_id, stored_end, (settled, *delivered) = records.decode_queue_index(part)
                index = known.get(queue_id) or QueueIndex(queue_id, None, durable=True)
                index.stored_end = stored_end
                index.settled = RangeSet(settled)
                index.delivered = list(map(RangeSet, delivered))
                self._indexes[queue_id] = index
            else:
                self._apply(part, base, position)
        for owner, known_ids in self._message_ids.items():
            self._message_ids[owner] = [each for each in known_ids if each[0] >= ids_start]

    def _sorted_ids(self, owner: QualifiedName | int) -> list[tuple[bytes, int]]:
        """Return ids with their times, oldest first: a checkpoint writes old ids again after newer ones."""
        ids_and_times = [pair for _, ids in self._message_ids.get(owner, ()) for pair in ids]
        return sorted(ids_and_times, key=itemgetter(1))

    # ── restoring ─────────────────────────────────────────────────────────────────────────────────────

    def restore(self, broker: Broker, now: int) -> None:
        """Restore everything that was read to the store and to the broker."""
        store = self._store
        queue_ids = self._catalogue.queue_ids()
        indexes = {name: self._index(queue_id) for name, queue_id in queue_ids.items()}
        store.begin_restore(self._catalogue, indexes, self._next_queue_id)
        orphaned_bindings = self._catalogue.restore_to(broker, now)
        store.end_restore()
        broker.usage.queues_created = 0  # by clients
        # While the journal was read, settlements were not subtracted; `finish_recovery` counts live messages
        # anew.
        for stats in store.segments.all_stats():
            stats.live_count = 0
        store.segments.resume(self._checkpoint_base)
        segments = store.journal.segments
        self._segment_bytes = {segment.base: segment.end - segment.base for segment in segments}
        restored = list(store.queue_indexes.values())
        for index in restored:
            self._finish_index(index)
        for index in restored:
            assert index.queue is not None
            counts = {priority: each.stored_count for priority, each in index.paged_out.items()}
            if index.stored_end:
                index.queue.restore(index.stored_end, counts, now, has_ttl=index.may_expire)
            if isinstance(index.queue, WorkQueue):
                index.queue.estimate_paged_out(self._mean_message_bytes(index))
            if index.queue.deduplication_window is not None:
                index.queue.deduplication_window.restore(self._sorted_ids(index.queue_id))
        for name, exchange in store.exchanges.items():
            if exchange.deduplication_window is not None:
                exchange.deduplication_window.restore(self._sorted_ids(name))
        for index in restored:
            if index.stored_end and index.queue is not None:
                index.queue.finish_restore(now)
        for record in orphaned_bindings:
            store.append_record(record)
        self._drop_orphans()

    def _mean_message_bytes(self, index: QueueIndex) -> float:
        """Estimate the size of a live message of a queue, by the means of the segments that contain them."""
        total, count = 0.0, 0
        for extents in index.segment_extents:
            stats = extents.stats
            total += extents.live_count * self._segment_bytes[stats.base] / stats.stored_count
            count += extents.live_count
        return total / count if count else 0.0

    def _finish_index(self, index: QueueIndex) -> None:
        """Find the live messages of a queue, and make all of them paged out."""
        assert index.queue is not None
        for start, end in self._spilled.get(index.queue_id, ()):
            for low, high in index.settled.missing(start, end):
                index.settled.add(low, high)
                # Settle them in the journal too: the record of the spilled run may be dropped before the next
                # start.
                self._store.settle(index.queue, low, high - low, 1)
            index.stored_end = max(index.stored_end, end)
        index.finish_recovery()
        if index.max_priority:
            counts: dict[int, int] = paged_out.count_live(self._store.journal, index)
        else:
            counts = {0: index.stored_end - index.settled.size}
        for priority, count in counts.items():
            if count:
                bucket = index.paged_out[priority] = PagedOutBucket(index.settled.first_missing)
                bucket.stored_count = count

    def _drop_orphans(self) -> None:
        """Remove what a crash left of a deletion, such as the queue of a delayed exchange that is gone."""
        store = self._store
        orphans = [each for each in self._catalogue.queues if each not in store.queue_indexes]
        for queue_id in orphans:
            store.append_record(self._catalogue.remove_queue(queue_id))
        if store.streams is not None:
            store.streams.remove_orphans(list(store.queue_indexes))


def _decode_owner(table: FieldTable) -> QualifiedName | int:
    queue_id = table.get("number")
    if isinstance(queue_id, int):
        return queue_id
    return str(table["vhost"]), str(table["name"])
