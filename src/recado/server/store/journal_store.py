"""The keeper that writes a journal.

LG3  What is kept between `begin` and `end` is one group of the journal.
LG4  A checkpoint agrees with all that is before it in the journal. Ids of `x-message-deduplication` are written
     before it, in several turns; it says from where on.
LG5  A segment is dropped when nothing in it is live, and both a later checkpoint and whatever settled its
     messages are durable.

During a turn of the loop the broker's calls only gather. `flush` at its end renders what was gathered: messages
first, then what was settled and delivered, which nobody waits for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from recado.amqp.values import FieldTable
from recado.broker.binding import Binding
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX, Steps, StepTask, chunks
from recado.broker.stream_log import StreamLog, clamp_segment_bytes
from recado.journal.journal import Journal
from recado.journal.record import CorruptJournalError

from . import paged_out
from .catalogue import QualifiedName, StoreCatalogue
from .lsn import DeferredActions, LsnTracker
from .pending import PagedOutBucket
from .queue_index import QueueIndex
from .records import (
    encode_checkpoint,
    encode_message_ids,
    encode_message_ids_start,
    encode_queue_index,
)
from .segments import StoreSegments
from .streams import StreamFolders, StreamJournals
from .sync import SecondaryJournal, SyncJob
from .turn_batch import TurnBatch

REWRITE_UNITS_MAX = 4 * STEP_UNITS_MAX  # for a checkpoint, in one turn
IDS_PER_STEP = 1024  # that are written again
PAGE_OUT_BYTES = 64 << 20
PAGE_OUT_LOW_MEMORY_BYTES = 1 << 20


class JournalStore(LsnTracker):
    def __init__(
        self,
        journal: Journal,
        folders: StreamFolders | None = None,
        *,
        page_out_bytes: int = PAGE_OUT_BYTES,
    ) -> None:
        """`folders` are those of streams; `room` is how much a queue may have in memory."""
        super().__init__()
        self.journal = journal
        self.segments = StoreSegments(journal)
        self.streams = None if folders is None else StreamJournals(folders, self)
        self.secondary_journals: set[SecondaryJournal] = (
            set() if self.streams is None else {self.streams}
        )
        """Written and synced together with this one."""
        self.on_failure: Callable[[str], None] = _ignore_failure
        """Told when what was kept cannot be read any more."""
        self.find_disk_shortage: Callable[[], str | None] = _no_disk_shortage
        self.catalogue = StoreCatalogue()
        self.queue_indexes: dict[int, QueueIndex] = {}
        self.next_queue_id = 1
        self.restored_indexes: dict[QualifiedName, QueueIndex] | None = None
        """Accounts of queues that a broker is just being told of: nothing is to be written again."""
        self.page_out_bytes = self._normal_page_out_bytes = page_out_bytes
        self._index_of: dict[Queue, QueueIndex] = {}
        self.exchanges: dict[QualifiedName, Exchange[Any]] = {}
        self._batch = TurnBatch()
        self._deferred = DeferredActions(self)
        # Ids of what is not safe in a stream yet, and the tickets that it waits for.
        self._unsynced_ids: dict[tuple[Exchange[Any], bytes], int] = {}
        self._id_rewrite: StepTask[None] | None = None  # ids, for a checkpoint
        self._ids_start: int | None = None  # the position of the first of them
        self._ids_bytes = 0  # bytes

    @property
    def metadata(self) -> dict[tuple[str, str, str], bytes]:
        """What was remembered, by kind, vhost and name."""
        return self.catalogue.metadata

    @property
    def truncated_bytes(self) -> int:
        """Bytes at the end of journals that recovery found not to be whole."""
        return self.journal.truncated_bytes + (
            0 if self.streams is None else self.streams.truncated_bytes
        )

    # ── topology and facts ────────────────────────────────────────────────────────────────────────────

    def append_record(self, record: bytes) -> None:
        """A change to what is declared or remembered; somebody will wait for it."""
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

    def queue_declared(self, queue: Queue) -> None:
        account = (self.restored_indexes or {}).get((queue.vhost.name, queue.name))
        if self.streams is not None and queue.declared_settings.queue_type == "stream":
            # Before it is noted, for a full disk may have no room for its folder.
            number = self.next_queue_id if account is None else account.queue_id
            size = clamp_segment_bytes(queue.settings.segment_size)
            self.streams.open(number, size, existing=account is not None)
        if account is not None:
            self._register_index(account, queue)
        else:
            account = self._open_index(queue)
            self.append_record(self.catalogue.add_queue(account.queue_id, queue))

    def queue_deleted(self, queue: Queue) -> None:
        account = self._index_of.pop(queue, None)
        if account is not None:
            account.discard()
            self._batch.discard(account)
            del self.queue_indexes[account.queue_id]
            if account.durable:
                self.append_record(self.catalogue.remove_queue(account.queue_id))
            if self.streams is not None and queue.declared_settings.queue_type == "stream":
                self.streams.delete(account.queue_id)

    def bound(self, vhost: str, binding: Binding[Any]) -> None:
        if self.restored_indexes is None:
            self.append_record(self.catalogue.add_binding(vhost, binding))

    def unbound(self, vhost: str, binding: Binding[Any]) -> None:
        self.append_record(self.catalogue.remove_binding(vhost, binding))

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
        note = encode_message_ids(table, [(message_id, seen_at)])
        self.durable_ops += 1
        if isinstance(owner, Exchange) and self._includes_stream(targets):
            self._unsynced_ids[owner, message_id] = self.lsn
            self._deferred.add(partial(self._append_message_id, vhost, owner, message_id, note))
        else:
            self._batch.add_record(note)
            self._batch.is_atomic = True  # or the message might be there without its id

    def _append_message_id(
        self, vhost: str, owner: Exchange[Any], message_id: bytes, note: bytes
    ) -> None:
        if self._unsynced_ids.get((owner, message_id), 0) <= self.durable_lsn:
            self._unsynced_ids.pop((owner, message_id), None)
        if self.exchanges.get((vhost, owner.name)) is owner:
            self.durable_ops += 1
            self._batch.add_record(note)

    def require_sync(self) -> None:
        self.durable_ops += 1

    def open_stream(self, queue: Queue) -> StreamLog:
        if self.streams is None:
            return super().open_stream(queue)
        return self.streams.get(self._index_of[queue].queue_id)

    def _open_index(self, queue: Queue) -> QueueIndex:
        account = QueueIndex(self.next_queue_id, queue, lasting=queue.survives_restart)
        self.next_queue_id += 1
        self._register_index(account, queue)
        return account

    def _register_index(self, account: QueueIndex, queue: Queue) -> None:
        account.queue = queue
        self.queue_indexes[account.queue_id] = self._index_of[queue] = account

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────

    def append_run(self, queue: Queue, run: Run) -> None:
        self.durable_ops += 1
        self._batch.add_run(self._index_of[queue], run)

    def page_out(self, queue: Queue, run: Run, priority: int, *, durable: bool) -> None:
        account = self._index_of.get(queue) or self._open_index(queue)
        self.durable_ops += durable
        held = account.paged_out.get(priority)
        if held is None:
            held = account.paged_out[priority] = PagedOutBucket(run.first_position)
        self._batch.add_paged_out(account, held, run, not durable)

    def page_in(self, queue: Queue, priority: int) -> list[Run]:
        account = self._index_of[queue]
        with self._reporting_read_errors(queue):
            runs = paged_out.page_in(self.journal, account, priority)
        held = account.paged_out[priority]
        if not held.stored_count and not held.unwritten:
            del account.paged_out[priority]
        return runs

    def paged_out_bytes(self, queue: Queue) -> int:
        account = self._index_of.get(queue)
        if account is None:
            return 0
        with self._reporting_read_errors(queue):
            return paged_out.sum_body_bytes(self.journal, account)

    @contextmanager
    def _reporting_read_errors(self, queue: Queue) -> Iterator[None]:
        try:
            yield
        except (CorruptJournalError, OSError) as error:
            self.on_failure(f"messages of queue {queue.name!r} cannot be read: {error}")
            raise

    def drop_paged_out(self, queue: Queue) -> Steps[None]:
        account = self._index_of[queue]
        shelves, account.paged_out = account.paged_out, {}
        for held in shelves.values():
            if account.max_priority:
                account.settled_spans += [
                    (one.first_position, each.count, 1) for each, one in held.unwritten
                ]
            else:  # nothing behind the first is anywhere else
                account.settled_spans.append(
                    (held.next_position, account.end_position - held.next_position, 1)
                )
            held.unwritten.clear()
        self._batch.touch(account)
        self._batch.is_urgent = True
        return self._settle_stored(account, shelves if account.max_priority else {})

    def _settle_stored(
        self, account: QueueIndex, shelves: Mapping[int, PagedOutBucket]
    ) -> Steps[None]:
        """Read which messages were on these shelves, some at each step."""
        nexts = {lane: held.next_position for lane, held in shelves.items() if held.stored_count}
        cursor, end = (
            PagedOutBucket(min(nexts.values(), default=account.stored_end)),
            account.stored_end,
        )
        while cursor.next_position < end and not account.deleted:
            assert account.queue is not None
            with self._reporting_read_errors(account.queue):
                going, cost = paged_out.next_live_spans(self.journal, account, cursor, nexts, end)
            account.settled_spans += going
            self._batch.touch(account)
            self._batch.is_urgent = True
            yield cost

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        self.acknowledge(queue, first_position, count, stride)
        self._batch.is_urgent = True

    def acknowledge(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        account = self._index_of[queue]
        account.settled_spans.append((first_position, count, stride))
        self._batch.touch(account)

    def settle_forwarded(
        self, queue: Queue, first_position: int, count: int, stride: int, targets: Iterable[Queue]
    ) -> None:
        if self._includes_stream(targets):
            self._deferred.add(
                partial(self._settle_if_exists, queue, first_position, count, stride)
            )
        else:
            self.settle(queue, first_position, count, stride)
            self._batch.is_atomic = True  # or both might be there after a crash, and it dies again

    def _includes_stream(self, targets: Iterable[Queue]) -> bool:
        """Whether what they took is in another journal too, which may come to the disk later than this one."""
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
        account = self._index_of[queue]
        if account.durable:
            account.delivered_spans.append((first_position, count, stride))
            self._batch.touch(account)
            self._batch.is_urgent = True  # or a message might come again unmarked after a crash

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
        """Append all that was gathered."""
        if self._batch:
            self._batch.write_to(self.segments)
        if self.segments.checkpoint_due:
            self._advance_checkpoint()

    def roll(self) -> None:
        """Begin a segment and a checkpoint, so that the last segment can be dropped; see `StoreSegments.roll`."""
        self.segments.roll()
        self._id_rewrite = None  # ids that were written there have to be written again

    def _advance_checkpoint(self) -> None:
        """Write ids again, some in each turn, and then all else in one record."""
        if self._id_rewrite is None:
            self._id_rewrite, self._ids_start, self._ids_bytes = (
                StepTask(self._rewrite_ids()),
                None,
                0,
            )
        self._id_rewrite.advance(REWRITE_UNITS_MAX)
        if self._id_rewrite.is_done:
            self._id_rewrite = None
            self.segments.append_checkpoint(
                self._encode_checkpoint(), self._ids_start, self._ids_bytes
            )

    def _rewrite_ids(self) -> Steps[None]:
        """Ids that are known when their queue or exchange has its turn; new ones are written as they come."""
        for account in list(self.queue_indexes.values()):
            queue = account.queue
            if account.durable and queue is not None and queue.deduplication_window is not None:
                for some in chunks(queue.deduplication_window.ids(), IDS_PER_STEP):
                    if some and not account.deleted:
                        self._append_ids(
                            {"number": account.queue_id},
                            queue.deduplication_window.persistent_ids(some),
                        )
                    yield STEP_UNITS_MAX
        for (vhost, name), exchange in list(self.exchanges.items()):
            if exchange.deduplication_window is not None:
                for some in chunks(exchange.deduplication_window.ids(), IDS_PER_STEP):
                    if some and not exchange.deleted:
                        known = exchange.deduplication_window.persistent_ids(some)
                        safe = [
                            each for each in known if (exchange, each[0]) not in self._unsynced_ids
                        ]
                        self._append_ids({"vhost": vhost, "name": name}, safe)
                    yield STEP_UNITS_MAX

    def _append_ids(self, owner: FieldTable, ids: Iterable[tuple[bytes, int]]) -> None:
        record = encode_message_ids(owner, ids)
        page, at = self.segments.append(record)
        self._ids_bytes += len(record)
        if self._ids_start is None:
            self._ids_start = page.base + at

    def _encode_checkpoint(self) -> bytes:
        """All that is known, but for messages and ids."""
        records = list(self.catalogue.encode_all())
        if self._ids_start is not None:
            records.append(encode_message_ids_start(self._ids_start))
        for account in self.queue_indexes.values():
            if account.durable and account.stored_end:
                account.prune_delivered()
                ranges = [list(each) for each in (account.settled, *account.delivered)]
                records.append(encode_queue_index(account.queue_id, account.stored_end, ranges))
        return encode_checkpoint(self.next_queue_id, records)

    # ── to the disk ───────────────────────────────────────────────────────────────────────────────────

    @property
    def has_pending_writes(self) -> bool:
        """Whether there is something to write or to sync."""
        return self._batch.is_urgent or self.needs_sync

    @property
    def has_deferred_writes(self) -> bool:
        return bool(self._batch) or self._id_rewrite is not None

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of the journal that are not on disk yet."""
        return self.journal.position - self.journal.durable_position

    @property
    def is_durable(self) -> bool:
        """Whether all that was appended is on disk."""
        return self.journal.durable_position == self.journal.position and all(
            side.is_durable for side in self.secondary_journals
        )

    def write(self) -> None:
        """Hand all to the system; after an OSError the rest is still to be written."""
        self.flush()
        self.journal.write()
        for side in self.secondary_journals:
            side.write()

    def begin_sync(self, *, disk_full: bool = False) -> SyncJob:
        """To be called right after `write`. If the disk was `full`, it is to make room, and nobody is told."""
        ticket = self.durable_lsn if disk_full else self.advance_lsn()
        empty = self.segments.droppable_when_full() if disk_full else self.segments.find_empty()
        return SyncJob(ticket, self.journal, tuple(self.secondary_journals), empty)

    def end_sync(self, sync: SyncJob) -> None:
        self.segments.mark_durable()
        self.segments.drop(sync.empty_segments)
        self.mark_durable(sync.lsn)

    def close(self) -> None:
        """Make everything durable, and let go of the files; nobody is told any more."""
        if self._deferred:
            self.write()
            sync = self.begin_sync()
            sync.run()
            self.durable_lsn = sync.lsn
            self._deferred.on_durable()
        self.flush()
        self.journal.close()
        for side in self.secondary_journals:
            side.close()


def _ignore_failure(_reason: str) -> None:
    pass


def _no_disk_shortage() -> None:
    return None
