"""`JournalStore`: the message store that writes a journal.

During a turn of the loop, the calls of the broker only collect changes in a `TurnBatch`. `flush` at its end
encodes them: messages first, then settled and delivered positions, which no client waits for.

ST3  Everything stored between `begin_atomic_group` and `end_atomic_group` is one group of the journal.
ST4  A checkpoint agrees with all records before it in the journal. The ids of `x-message-deduplication` are
     written before it, in several turns; the checkpoint says where they begin.
ST5  A segment is dropped when no message in it is live, and both a later checkpoint and the records that
     settled its messages are durable.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from recado.amqp.traits import MessageTraits
from recado.amqp.values import FieldTable
from recado.broker.arguments import QueueSettings
from recado.broker.binding import Binding
from recado.broker.exchange import Exchange
from recado.broker.priority_bucket import ReadLimits
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX, Steps, StepTask, chunks
from recado.broker.stream_log import StreamLog, clamp_segment_bytes
from recado.journal.journal import Journal
from recado.journal.record import CorruptJournalError

from . import paged_out
from .bucket_change import BucketChange
from .catalogue import QualifiedName, StoreCatalogue
from .lsn import DeferredActions, LsnTracker
from .pending_run import PagedOutBucket
from .queue_index import QueueIndex
from .ranges import RangeSet
from .records import (
    DELIVERED,
    MOVED_RUN,
    NO_EXPIRY_CODE,
    SETTLED,
    SPILLED_FLAG,
    Destination,
    decode_run,
    encode_checkpoint,
    encode_message_ids,
    encode_message_ids_start,
    encode_queue_index,
    encode_ranges,
    encode_run,
)
from .segments import StoreSegments
from .streams import StreamFolders, StreamJournals
from .sync import SecondaryJournal, SyncJob
from .turn_batch import TurnBatch

REWRITE_UNITS_MAX = 4 * STEP_UNITS_MAX  # in one turn, for the ids of a checkpoint
IDS_PER_STEP = 1024
UNITS_PER_FOLDER = 40  # to remove the folder of a stream: 0.2 ms
RECORDED_RANGES_PER_STEP = 2048
UNITS_PER_LATE_RECORD = 3  # to encode messages and write them to the journal
# Ready messages of one priority of a queue in memory; further ones are paged out.
PAGE_OUT_BYTES = 64 << 20
PAGE_OUT_LOW_MEMORY_BYTES = 1 << 20  # the same under memory pressure


class JournalStore(LsnTracker):
    """Implements `MessageStore`, which documents the methods that the broker calls."""

    def __init__(
        self,
        journal: Journal,
        folders: StreamFolders | None = None,
        *,
        page_out_bytes: int = PAGE_OUT_BYTES,
    ) -> None:
        """Store in a journal that is to be recovered by `recovery.restore_broker`.

        `folders` holds the journals of streams; without it, streams are in memory. Each
        priority of a queue has up to `page_out_bytes` of ready messages in memory; further ones are paged out.
        """
        super().__init__()
        self.journal = journal
        self.segments = StoreSegments(journal)
        self.streams = None if folders is None else StreamJournals(folders, self)
        self.secondary_journals: set[SecondaryJournal] = (
            set() if self.streams is None else {self.streams}
        )
        """Written and synced together with `journal`."""
        self.on_failure: Callable[[str], None] = _ignore_failure
        """Called when stored messages cannot be read any more."""
        self.find_disk_shortage: Callable[[], str | None] = _no_disk_shortage
        self.catalogue = StoreCatalogue()
        self.queue_indexes: dict[int, QueueIndex] = {}
        self.next_queue_id = 1
        self.restored_indexes: dict[QualifiedName, QueueIndex] | None = None
        """While a broker is being restored: its queues are in the journal already, and not written again."""
        self._bucket_changes: dict[QueueIndex, BucketChange] = {}
        self._prepared_ids: dict[QualifiedName, int] = {}  # of streams whose journals are open
        self.page_out_bytes = self._normal_page_out_bytes = page_out_bytes
        self._index_of: dict[Queue, QueueIndex] = {}
        self.exchanges: dict[QualifiedName, Exchange[Any]] = {}
        self._batch = TurnBatch()
        self._deferred = DeferredActions(self)
        # Ids of messages that go to a stream and are not durable there yet, and the LSN that makes them
        # durable. A checkpoint must not contain these ids (see `record_message_id`).
        self._unsynced_ids: dict[tuple[Exchange[Any], bytes], int] = {}
        self._id_rewrite: StepTask[None] | None = None  # writes the message ids of a checkpoint
        self._ids_start: int | None = None  # journal position of the first of them
        self._ids_bytes = 0

    def attach(
        self, *, on_failure: Callable[[str], None], find_disk_shortage: Callable[[], str | None]
    ) -> None:
        """Set the callbacks of the committer: what to do on failure, and whether disk space is short."""
        self.on_failure = on_failure
        self.find_disk_shortage = find_disk_shortage

    def begin_restore(
        self,
        catalogue: StoreCatalogue,
        indexes: dict[QualifiedName, QueueIndex],
        next_queue_id: int,
    ) -> None:
        """Take over the recovered state. Declarations are not written to the journal until `end_restore`."""
        self.catalogue = catalogue
        self.restored_indexes = indexes
        self.next_queue_id = next_queue_id

    def end_restore(self) -> None:
        self.restored_indexes = None

    @property
    def metadata(self) -> dict[tuple[str, str, str], bytes]:
        """Small values by kind, vhost and name, such as users and policies."""
        return self.catalogue.metadata

    @property
    def truncated_bytes(self) -> int:
        """Size of the torn writes that recovery removed from the ends of the journals."""
        return self.journal.truncated_bytes + (
            0 if self.streams is None else self.streams.truncated_bytes
        )

    # ── topology and metadata ───────────────────────────────────────────────────────────────────────────

    def append_record(self, record: bytes) -> None:
        """Append a change of topology or metadata, whose reply waits until it is durable."""
        self.durable_ops += 1
        self.topology_lsn = self.lsn
        self._batch.add_record(record)

    def exchange_declared(self, vhost: str, exchange: Exchange[Any]) -> None:
        self.exchanges[vhost, exchange.name] = exchange
        if self.restored_indexes is None:
            self.append_record(self.catalogue.add_exchange(vhost, exchange))

    def exchange_deleted(self, vhost: str, exchange: Exchange[Any]) -> None:
        del self.exchanges[vhost, exchange.name]
        self.append_record(self.catalogue.remove_exchange(vhost, exchange))

    def prepare_stream(self, vhost: str, name: str, settings: QueueSettings) -> None:
        if self.streams is not None:
            self.streams.create(self.next_queue_id, clamp_segment_bytes(settings.segment_bytes))
            self._prepared_ids[vhost, name] = self.next_queue_id
            self.next_queue_id += 1

    def discard_prepared_streams(self) -> Steps[None]:
        while self._prepared_ids and self.streams is not None:
            _, queue_id = self._prepared_ids.popitem()
            self.streams.remove(queue_id)
            yield UNITS_PER_FOLDER

    def queue_declared(self, queue: Queue) -> None:
        name = queue.vhost.name, queue.name
        index = (self.restored_indexes or {}).get(name)
        prepared_id = self._prepared_ids.pop(name, None)
        is_stream = queue.declared_settings.queue_type == "stream"
        if self.streams is not None and is_stream and prepared_id is None:
            # Before the record: on a full disk the folder cannot be created, and the queue is not declared.
            queue_id = self.next_queue_id if index is None else index.queue_id
            segment_bytes = clamp_segment_bytes(queue.settings.segment_bytes)
            self.streams.open(queue_id, segment_bytes, existing=index is not None)
        if index is not None:
            self._register_index(index, queue)
        else:
            index = self._open_index(queue, prepared_id)
            self.append_record(self.catalogue.add_queue(index.queue_id, queue))

    def queue_deleted(self, queue: Queue) -> None:
        index = self._index_of.pop(queue, None)
        if index is not None:
            index.discard()
            self._batch.discard(index)
            self._bucket_changes.pop(index, None)
            del self.queue_indexes[index.queue_id]
            if index.queue_id in self.catalogue.queues:
                self.append_record(self.catalogue.remove_queue(index.queue_id))
            if self.streams is not None and queue.declared_settings.queue_type == "stream":
                self.streams.delete(index.queue_id)

    def begin_storing(self, queue: Queue, end_position: int) -> Steps[None]:
        self.flush()  # messages before `end_position` are in records of their own
        index = self._index_of.get(queue) or self._open_index(queue)
        ranges = [(SETTLED, index.settled)]
        if not index.durable:  # nothing else of the queue was recorded
            ranges += [(DELIVERED, each) for each in index.delivered]
        index.durable = True
        index.reserve(end_position)
        return self._record_ranges(index, ranges, end_position)

    def _record_ranges(
        self, index: QueueIndex, sets: list[tuple[int, RangeSet]], end_position: int
    ) -> Steps[None]:
        """Record what recovery cannot know.

        Among others these are the positions never stored, which count as settled (`QueueIndex.reserve`).
        """
        for kind, positions in sets:
            position = 0
            while position < end_position and not index.deleted:
                ranges = positions.ranges_from(position, RECORDED_RANGES_PER_STEP)
                if not ranges:
                    break
                self.append_record(encode_ranges(kind, [(index.queue_id, ranges)]))
                position = ranges[-1][1]
                yield STEP_UNITS_MAX

    def end_storing(self, queue: Queue) -> None:
        if queue in self._index_of:
            self._index_of[queue].durable = queue.survives_restart

    def store_late(self, queue: Queue, run: Run, deliveries: int) -> None:
        index = self._index_of[queue]
        self._append_run_late(index, run)
        for start, end, known in index.split_by_deliveries(run.first_position, run.end_position):
            for _ in range(known, deliveries):
                self.record_delivery(queue, start, end - start, 1)

    def _append_run_late(self, index: QueueIndex, run: Run, flag: int = 0) -> None:
        expires_at = NO_EXPIRY_CODE if run.expires_at is None else run.expires_at
        self._append_late(
            index,
            (index.queue_id | flag, run.first_position, expires_at),
            run.traits,
            run.origin.names,
            run.channel,
            run.frame_max,
            run.prefix,
            run.payloads[run.taken_count :] if run.taken_count else run.payloads,
        )
        run.stored = True

    def _append_late(
        self,
        index: QueueIndex,
        destination: Destination,
        traits: MessageTraits,
        origin_bytes: bytes,
        channel: int,
        frame_max: int,
        prefix: bytes,
        payloads: list[bytes],
    ) -> None:
        self.flush()  # settlements must precede the messages in the journal, as for moved ones
        content = traits, origin_bytes, channel, frame_max, prefix, payloads
        record = encode_run((destination,), *content, kind=MOVED_RUN)
        stats, offset = self.segments.append(record)
        first = destination[1]
        index.add_late(first, first + len(payloads), offset, len(record), stats)
        self.durable_ops += 1

    def store_paged_out_late(
        self, queue: Queue, stores_late: Callable[[MessageTraits], bool], end_position: int
    ) -> Steps[None]:
        index = self._index_of[queue]
        first = min((each.next_position for each in index.paged_out.values()), default=end_position)
        cursor = PagedOutBucket(first)
        while cursor.next_position < end_position and not index.deleted:
            self.flush()  # what is read is live
            with self._reporting_read_errors(queue):
                found, cost = paged_out.read_located(self.journal, index, cursor, end_position)
            for record, record_first, low, high, expires_at in found:
                run = decode_run(record)
                if stores_late(run.traits):
                    destination = index.queue_id, low, expires_at
                    payloads = run.payloads[low - record_first : high - record_first]
                    frames = run.channel, run.frame_max, run.prefix, payloads
                    self._append_late(index, destination, run.traits, run.origin_bytes, *frames)
            yield cost + UNITS_PER_LATE_RECORD * len(found)

    def begin_rebucketing(self, queue: Queue, max_priority: int) -> Steps[None]:
        self.flush()
        index = self._index_of.get(queue) or self._open_index(queue)
        change = self._bucket_changes[index] = BucketChange(index, max_priority)
        return self._count_priorities(queue, index, change)

    def _count_priorities(
        self, queue: Queue, index: QueueIndex, change: BucketChange
    ) -> Steps[None]:
        while not (change.is_complete or index.deleted):
            self.flush()  # what is read is live
            with self._reporting_read_errors(queue):
                cost = change.count_some(self.journal)
            yield cost

    def end_rebucketing(self, queue: Queue) -> None:
        index = self._index_of.get(queue)
        if index is not None:
            self._bucket_changes.pop(index, None)

    def page_out_late(self, queue: Queue, run: Run) -> int:
        index = self._index_of[queue]
        change = self._bucket_changes[index]
        bucket = change.bucket(run.traits.priority)
        if not bucket.stored_count or run.end_position <= change.first:
            return len(run)
        kept = max(change.first - run.first_position, 0)
        moved = run.copy_range(run.first_position + kept, run.end_position) if kept else run
        self.flush()
        if not moved.stored:
            index.reserve(moved.end_position)
            self._append_run_late(index, moved, SPILLED_FLAG)
        if moved.redelivered and not index.durable:
            index.add_delivered([(moved.first_position, moved.end_position)])
        change.add(moved)
        return kept

    def finish_rebucketing(self, queue: Queue) -> dict[int, int]:
        """Install the new buckets."""
        self.flush()
        index = self._index_of[queue]
        buckets = self._bucket_changes.pop(index).buckets
        index.paged_out = {
            priority: each for priority, each in buckets.items() if each.stored_count
        }
        return {priority: each.stored_count for priority, each in index.paged_out.items()}

    def queue_altered(self, queue: Queue) -> None:
        index = self._index_of.get(queue)
        if queue.survives_restart:
            assert index is not None
            self.append_record(self.catalogue.add_queue(index.queue_id, queue))
        elif index is not None and index.queue_id in self.catalogue.queues:
            index.durable = False
            self.append_record(self.catalogue.remove_queue(index.queue_id))

    def binding_added(self, vhost: str, binding: Binding[Any]) -> None:
        if self.restored_indexes is None:
            record = self.catalogue.add_binding(vhost, binding)
            if record is not None:
                self.append_record(record)

    def binding_removed(self, vhost: str, binding: Binding[Any]) -> None:
        record = self.catalogue.remove_binding(vhost, binding)
        if record is not None:
            self.append_record(record)

    def set_metadata(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        if self.metadata.get((kind, vhost, name)) != value:
            self.append_record(self.catalogue.set_metadata(kind, vhost, name, value))

    def record_message_id(
        self,
        vhost: str,
        owner: Queue | Exchange[Any],
        message_id: bytes,
        seen_at: int,
        targets: Iterable[Queue],
    ) -> None:
        if isinstance(owner, Exchange):
            table: FieldTable = {"vhost": vhost, "name": owner.name}
        else:
            table = {"number": self._index_of[owner].queue_id}
        record = encode_message_ids(table, [(message_id, seen_at)])
        self.durable_ops += 1
        if isinstance(owner, Exchange) and self._includes_stream(targets):
            # A stream has its own journal, so the message and its id cannot be one group. The id is written
            # once the message is durable: otherwise a crash could leave the id alone, and the message that the
            # publisher sends again would be dropped as a duplicate.
            self._unsynced_ids[owner, message_id] = self.lsn
            self._deferred.add(partial(self._append_message_id, vhost, owner, message_id, record))
        else:
            self._batch.add_record(record)
            # After a crash, both the message and its id exist or neither.
            self._batch.is_atomic = True

    def _append_message_id(
        self, vhost: str, owner: Exchange[Any], message_id: bytes, record: bytes
    ) -> None:
        if self._unsynced_ids.get((owner, message_id), 0) <= self.durable_lsn:
            self._unsynced_ids.pop((owner, message_id), None)
        if self.exchanges.get((vhost, owner.name)) is owner:
            self.durable_ops += 1
            self._batch.add_record(record)

    def require_sync(self) -> None:
        self.durable_ops += 1

    def open_stream(self, queue: Queue) -> StreamLog:
        if self.streams is None:
            return super().open_stream(queue)
        return self.streams.get(self._index_of[queue].queue_id)

    def _open_index(self, queue: Queue, prepared_id: int | None = None) -> QueueIndex:
        queue_id = self.next_queue_id if prepared_id is None else prepared_id
        index = QueueIndex(queue_id, queue, durable=queue.survives_restart)
        self.next_queue_id = max(self.next_queue_id, queue_id + 1)
        self._register_index(index, queue)
        return index

    def _register_index(self, index: QueueIndex, queue: Queue) -> None:
        index.queue = queue
        self.queue_indexes[index.queue_id] = self._index_of[queue] = index

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────

    def append_run(self, queue: Queue, run: Run) -> None:
        self.durable_ops += len(run.payloads)
        self._batch.add_run(self._index_of[queue], run)

    def page_out(self, queue: Queue, run: Run, priority: int, *, durable: bool) -> None:
        index = self._index_of.get(queue) or self._open_index(queue)
        if durable:
            self.durable_ops += len(run.payloads)
        bucket = index.paged_out.get(priority)
        if bucket is None:
            bucket = index.paged_out[priority] = PagedOutBucket(run.first_position)
        self._batch.add_paged_out(index, bucket, run, not durable)
        if index in self._bucket_changes:
            self._bucket_changes[index].add(run)

    def page_in(self, queue: Queue, priority: int) -> list[Run]:
        index = self._index_of[queue]
        with self._reporting_read_errors(queue):
            runs = paged_out.page_in(self.journal, index, priority)
        if index in self._bucket_changes:
            self._bucket_changes[index].remove(runs)
        bucket = index.paged_out[priority]
        if not bucket.stored_count and not bucket.unwritten:
            del index.paged_out[priority]
        return runs

    def read_paged_out(
        self, queue: Queue, priority: int, limits: ReadLimits
    ) -> Iterator[tuple[list[Run], int]]:
        index = self._index_of.get(queue)
        if index is None:  # a transient queue that was never paged out
            return
        cursor = PagedOutBucket(0)
        is_last = False
        while not is_last and (bucket := index.paged_out.get(priority)) is not None:
            if bucket.unwritten:
                self.flush()
            with self._reporting_read_errors(queue):
                runs, cost, is_last = paged_out.read_portion(
                    self.journal, index, bucket, cursor, priority, limits
                )
            yield runs, cost

    def take_paged_out(self, queue: Queue, run: Run, priority: int) -> None:
        index = self._index_of[queue]
        bucket = index.paged_out[priority]
        bucket.take(run)
        if index in self._bucket_changes:
            self._bucket_changes[index].remove((run,))
        if not bucket.stored_count and not bucket.unwritten:
            del index.paged_out[priority]

    def paged_out_bytes(self, queue: Queue) -> int:
        index = self._index_of.get(queue)
        if index is None:
            return 0
        with self._reporting_read_errors(queue):
            return paged_out.sum_body_bytes(self.journal, index)

    @contextmanager
    def _reporting_read_errors(self, queue: Queue) -> Iterator[None]:
        try:
            yield
        except (CorruptJournalError, OSError) as error:
            self.on_failure(f"messages of queue {queue.name!r} cannot be read: {error}")
            raise

    def drop_paged_out(self, queue: Queue) -> Steps[None]:
        index = self._index_of[queue]
        buckets, index.paged_out = index.paged_out, {}
        for bucket in buckets.values():
            if index.max_priority:
                index.settled_spans += [
                    (entry.first_position, pending.count, 1) for pending, entry in bucket.unwritten
                ]
            else:  # without priorities, all messages from `next_position` on are paged out
                index.settled_spans += [
                    (start, end - start, 1)
                    for start, end in bucket.taken.missing(bucket.next_position, index.end_position)
                ]
            bucket.unwritten.clear()
        if index in self._bucket_changes:
            self._bucket_changes[index].restart(index.end_position)
        self._batch.touch(index)
        self._batch.is_urgent = True
        return self._settle_stored(index, buckets if index.max_priority else {})

    def _settle_stored(
        self, index: QueueIndex, buckets: Mapping[int, PagedOutBucket]
    ) -> Steps[None]:
        """Settle the stored messages of priority buckets, which have to be read to know their priorities."""
        stored = {priority: each for priority, each in buckets.items() if each.stored_count}
        end = index.stored_end
        cursor = PagedOutBucket(min((each.next_position for each in stored.values()), default=end))
        while cursor.next_position < end and not index.deleted:
            assert index.queue is not None
            with self._reporting_read_errors(index.queue):
                spans, cost = paged_out.next_live_spans(self.journal, index, cursor, stored, end)
            index.settled_spans += spans
            self._batch.touch(index)
            self._batch.is_urgent = True
            yield cost

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        self.acknowledge(queue, first_position, count, stride)
        self._batch.is_urgent = True

    def acknowledge(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        index = self._index_of[queue]
        index.settled_spans.append((first_position, count, stride))
        self._batch.touch(index)

    def settle_forwarded(
        self, queue: Queue, first_position: int, count: int, stride: int, targets: Iterable[Queue]
    ) -> None:
        if self._includes_stream(targets):
            self._deferred.add(
                partial(self._settle_if_exists, queue, first_position, count, stride)
            )
        else:
            self.settle(queue, first_position, count, stride)
            # Otherwise a crash could leave both the dead letter and its original, which would be forwarded
            # again.
            self._batch.is_atomic = True

    def _includes_stream(self, targets: Iterable[Queue]) -> bool:
        """Whether a target is a stream, whose journal may become durable later than this one."""
        return self.streams is not None and any(
            each.declared_settings.queue_type == "stream" for each in targets
        )

    def _settle_if_exists(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        if queue in self._index_of:
            self.settle(queue, first_position, count, stride)

    def queue_purged(self, queue: Queue) -> None:
        self.durable_ops += 1
        self.topology_lsn = self.lsn

    def record_delivery(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        index = self._index_of[queue]
        if index.durable:
            index.delivered_spans.append((first_position, count, stride))
            self._batch.touch(index)
            # Otherwise a crash could redeliver it without the redelivered flag.
            self._batch.is_urgent = True

    def set_memory_pressure(self, *, active: bool) -> None:
        self.memory_pressure = active
        self.page_out_bytes = (
            min(PAGE_OUT_LOW_MEMORY_BYTES, self._normal_page_out_bytes)
            if active
            else self._normal_page_out_bytes
        )

    def disk_shortage(self) -> str | None:
        return self.find_disk_shortage()

    # ── to the journal ────────────────────────────────────────────────────────────────────────────────

    def begin_atomic_group(self) -> None:
        self.flush()

    def end_atomic_group(self) -> None:
        if self._batch:
            self.durable_ops += 1
            self._batch.is_atomic = True
            self._batch.write_to(self.segments)

    def flush(self) -> None:
        """Append the collected changes to the journal, and a part of a checkpoint that is due."""
        if self._batch:
            self._batch.write_to(self.segments)
        if self.segments.checkpoint_due:
            self._advance_checkpoint()

    def roll(self) -> None:
        """Begin a segment and a checkpoint, so that the last segment can be dropped (`StoreSegments.roll`)."""
        self.segments.roll()
        self._id_rewrite = None  # ids in the last segment have to be written again

    def _advance_checkpoint(self) -> None:
        """Write the message ids, some in each turn, then everything else in one record."""
        if self._id_rewrite is None:
            self._id_rewrite = StepTask(self._rewrite_ids())
            self._ids_start, self._ids_bytes = None, 0
        self._id_rewrite.advance(REWRITE_UNITS_MAX)
        if self._id_rewrite.is_done:
            self._id_rewrite = None
            self.segments.append_checkpoint(
                self._encode_checkpoint(), self._ids_start, self._ids_bytes
            )

    def _rewrite_ids(self) -> Steps[None]:
        """Write the known message ids of all queues and exchanges; new ones are written as they arrive."""
        for index in list(self.queue_indexes.values()):
            queue = index.queue
            if index.durable and queue is not None and queue.deduplication_window is not None:
                for ids in chunks(queue.deduplication_window.ids(), IDS_PER_STEP):
                    if ids and not index.deleted:
                        self._append_ids(
                            {"number": index.queue_id},
                            queue.deduplication_window.persistent_ids(ids),
                        )
                    yield STEP_UNITS_MAX
        for (vhost, name), exchange in list(self.exchanges.items()):
            if exchange.deduplication_window is not None:
                for ids in chunks(exchange.deduplication_window.ids(), IDS_PER_STEP):
                    if ids and not exchange.deleted:
                        known = exchange.deduplication_window.persistent_ids(ids)
                        durable = [
                            each for each in known if (exchange, each[0]) not in self._unsynced_ids
                        ]
                        self._append_ids({"vhost": vhost, "name": name}, durable)
                    yield STEP_UNITS_MAX

    def _append_ids(self, owner: FieldTable, ids: Iterable[tuple[bytes, int]]) -> None:
        record = encode_message_ids(owner, ids)
        stats, offset = self.segments.append(record)
        self._ids_bytes += len(record)
        if self._ids_start is None:
            self._ids_start = stats.base + offset

    def _encode_checkpoint(self) -> bytes:
        """Encode the whole state except messages and message ids."""
        records = list(self.catalogue.encode_all())
        if self._ids_start is not None:
            records.append(encode_message_ids_start(self._ids_start))
        for index in self.queue_indexes.values():
            if index.durable and index.stored_end:
                index.prune_delivered()
                ranges = [list(each) for each in (index.settled, *index.delivered)]
                records.append(encode_queue_index(index.queue_id, index.stored_end, ranges))
        return encode_checkpoint(self.next_queue_id, records)

    # ── to the disk ───────────────────────────────────────────────────────────────────────────────────

    @property
    def has_pending_writes(self) -> bool:
        """Whether to write or to sync at the end of this turn."""
        return self._batch.is_urgent or self.needs_sync

    @property
    def has_deferred_writes(self) -> bool:
        return bool(self._batch) or self._id_rewrite is not None

    @property
    def unsynced_bytes(self) -> int:
        """Size of the records that are not durable yet."""
        return self.journal.position - self.journal.durable_position

    @property
    def is_durable(self) -> bool:
        """Whether all appended records are durable."""
        return self.journal.durable_position == self.journal.position and all(
            secondary.is_durable for secondary in self.secondary_journals
        )

    def write(self) -> None:
        """Hand all records to the operating system. After an `OSError`, call it again to write the rest."""
        self.flush()
        self.journal.write()
        for secondary in self.secondary_journals:
            secondary.write()

    def begin_sync(self, *, disk_full: bool = False) -> SyncJob:
        """Return a sync of everything written, to be run and passed to `end_sync`. Call it right after `write`.

        With `disk_full`, the write was incomplete: the sync only allows segments to be dropped, and reports no
        operation as durable.
        """
        lsn = self.durable_lsn if disk_full else self.advance_lsn()
        empty = self.segments.droppable_when_full() if disk_full else self.segments.find_empty()
        return SyncJob(lsn, self.journal, tuple(self.secondary_journals), empty)

    def end_sync(self, sync: SyncJob) -> None:
        self.segments.mark_durable()
        self.segments.drop(sync.empty_segments)
        self.mark_durable(sync.lsn)

    def close(self) -> None:
        """Make everything durable and close the files, without notifying listeners."""
        if self._deferred:
            self.write()
            sync = self.begin_sync()
            sync.run()
            self.durable_lsn = sync.lsn
            self._deferred.on_durable()
        self.flush()
        self.journal.close()
        for secondary in self.secondary_journals:
            secondary.close()


def _ignore_failure(_reason: str) -> None:
    pass


def _no_disk_shortage() -> None:
    return None
