"""From the journal to a broker as it was: topology, facts, and how many messages each queue has on its shelves.

Records are applied in order. A checkpoint replaces all that is known but for where messages are stored, because
what is before it may be incomplete: segments of which no message was live were dropped. So what a segment says
of queues and settled messages counts only behind the last checkpoint; its messages count always.

RV1  A message is live if a record has it, nothing settled it, and it is not a loan.
RV2  If two records have the same place the later one counts: the message was moved.

No message is loaded. 1 M messages of 16 bytes that were published one by one take 2.2 s, half of it the
journal's own; 1 GB in messages of 1 KiB takes 3.1 s.
"""

from collections import defaultdict
from operator import itemgetter

from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.journal.record import CorruptJournalError

from . import paged_out, records
from .catalogue import QualifiedName, StoreCatalogue
from .journal_store import JournalStore
from .pending import PagedOutBucket
from .queue_index import QueueIndex
from .ranges import RangeSet
from .segments import SegmentStats

_NO_INDEX = QueueIndex(0, None, lasting=False)  # numbers begin with 1
_END_POSITION = 1 << 63


def restore_broker(store: JournalStore, broker: Broker, now: int) -> None:
    """Make a new broker, whose keeper is this ledger, what the journal says it was. Raises Corrupt."""
    found = RecoveredState(store)
    found.read()
    found.restore(broker, now)


class RecoveredState:
    """What the journal is found to say."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._catalogue = StoreCatalogue()
        self._indexes: dict[int, QueueIndex] = {}
        self._spilled: dict[int, RangeSet] = defaultdict(RangeSet)
        # Ids, each with the position of its record.
        self._message_ids: dict[QualifiedName | int, list[tuple[int, list[tuple[bytes, int]]]]] = (
            defaultdict(list)
        )
        self._next_queue_id = 1
        self._checkpoint_base = 0  # the segment with the last checkpoint

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────

    def read(self) -> None:
        journal, pages = self._store.journal, self._store.segments
        run, unpack, loan = records.RUN, records.unpack_run_start, records.SPILLED_FLAG
        number, account = 0, _NO_INDEX  # of the run before
        page, base, end = SegmentStats(0), 0, 0
        for position, record in journal.recover():
            if position >= end:
                base = journal.segment_base(position)
                bases = (segment.base for segment in journal.segments)
                end = min((each for each in bases if each > base), default=_END_POSITION)
                page = pages.stats_of(base)
            if record[0] == run:
                _, _, more, count, queue, first, expires = unpack(record)
                if more or expires >= 0 or queue >= loan:
                    self._apply_run(record, position - base, page)
                    continue
                if queue != number:
                    number, account = queue, self._index(queue)
                account.add_stored(first, count, position - base, len(record), page)
            elif record[0] == records.MOVED_RUN:
                self._apply_run(record, position - base, page)
            else:
                self._apply(record, base, position)
                number = 0
        self._check_for_gaps()

    def _check_for_gaps(self) -> None:
        """Segments are dropped once a later checkpoint is durable. Without it, what is left makes no sense."""
        end = 0
        for segment in self._store.journal.segments:
            if end < segment.base > self._checkpoint_base:
                what = "what was before it was dropped, and is not told of"
                raise CorruptJournalError(self._store.journal.path_of(segment), end, what)
            end = segment.end

    def _index(self, number: int) -> QueueIndex:
        account = self._indexes.get(number)
        if account is None:
            account = self._indexes[number] = QueueIndex(number, None, lasting=True)
            self._next_queue_id = max(self._next_queue_id, number + 1)
        return account

    def _apply_run(self, record: bytes, at: int, page: SegmentStats) -> None:
        """Any run, not only those that are new, durable, for one queue and for ever."""
        _, _, _, count, *_ = records.unpack_run_start(record)
        for flagged, first, expires in records.decode_destinations(record):
            account, end = self._index(flagged & ~records.SPILLED_FLAG), first + count
            account.may_expire |= expires != records.NO_EXPIRY_CODE
            if flagged >= records.SPILLED_FLAG:
                self._spilled[account.queue_id].add(first, end)
            elif record[0] == records.RUN:
                account.add_stored(first, count, at, len(record), page)
            else:
                # It was live, though it may look as if there never was such a message.
                account.settled.remove(first, end)
                account.stored_end = max(account.stored_end, end)
                account.add_moved(first, end, at, len(record), page)

    def _apply(self, record: bytes, base: int, position: int) -> None:
        match record[0]:
            case records.SETTLED:
                for queue, ranges in records.decode_ranges(record):
                    settled = self._index(queue).settled
                    for start, end in ranges:
                        settled.add(start, end)
            case records.DELIVERED:
                for queue, ranges in records.decode_ranges(record):
                    self._index(queue).add_delivered(ranges)
            case records.MESSAGE_IDS:
                owner, ids = records.decode_message_ids(record)
                self._message_ids[_decode_owner(owner)].append((position, ids))
            case records.CHECKPOINT:
                self._apply_checkpoint(record, base, position)
            case _:
                gone = self._catalogue.apply(record)
                if gone is not None:
                    self._message_ids.pop(gone, None)
                if isinstance(gone, int):
                    self._indexes.pop(gone, None)
                    self._next_queue_id = max(self._next_queue_id, gone + 1)

    def _apply_checkpoint(self, record: bytes, base: int, position: int) -> None:
        self._catalogue = StoreCatalogue()
        self._checkpoint_base = base
        known, self._indexes = self._indexes, {}
        ids_from = position
        self._next_queue_id, parts = records.decode_checkpoint(record)
        for part in parts:
            if part[0] == records.MESSAGE_IDS_START:
                ids_from = records.decode_message_ids_start(part)
                self._checkpoint_base = self._store.journal.segment_base(ids_from)
            elif part[0] == records.QUEUE_INDEX:
                number, stored, (settled, *delivered) = records.decode_queue_index(part)
                account = known.get(number) or QueueIndex(number, None, lasting=True)
                account.stored_end = stored
                account.settled = RangeSet(settled)
                account.delivered = list(map(RangeSet, delivered))
                self._indexes[number] = account
            else:
                self._apply(part, base, position)
        for owner, seen in self._message_ids.items():
            self._message_ids[owner] = [each for each in seen if each[0] >= ids_from]

    def _sorted_ids(self, owner: QualifiedName | int) -> list[tuple[bytes, int]]:
        """Oldest first; new ones may have been written before older ones were written again."""
        found = [pair for _, ids in self._message_ids.get(owner, ()) for pair in ids]
        return sorted(found, key=itemgetter(1))

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────

    def restore(self, broker: Broker, now: int) -> None:
        ledger = self._store
        ledger.catalogue = self._catalogue
        numbers = self._catalogue.queue_ids()
        ledger.restored_indexes = {name: self._index(number) for name, number in numbers.items()}
        ledger.next_queue_id = self._next_queue_id
        left = self._catalogue.restore_to(broker, now)
        ledger.restored_indexes = None
        for page in ledger.segments.all_stats():
            page.live_count = 0
        ledger.segments.resume(self._checkpoint_base)
        accounts = list(ledger.queue_indexes.values())
        for account in accounts:
            self._finish_index(account)
        for account in accounts:
            assert account.queue is not None
            shelved = {lane: held.stored_count for lane, held in account.paged_out.items()}
            if account.stored_end:
                account.queue.restore(account.stored_end, shelved, now, has_ttl=account.may_expire)
            if account.queue.deduplication_window is not None:
                account.queue.deduplication_window.restore(self._sorted_ids(account.queue_id))
        for name, exchange in ledger.exchanges.items():
            if exchange.deduplication_window is not None:
                exchange.deduplication_window.restore(self._sorted_ids(name))
        for account in accounts:
            if account.stored_end and account.queue is not None:
                account.queue.finish_restore(now)
        for record in left:
            ledger.append_record(record)
        self._drop_orphans()

    def _finish_index(self, account: QueueIndex) -> None:
        """Find out what is live, and put it on shelves."""
        assert account.queue is not None
        for start, end in self._spilled.get(account.queue_id, ()):
            for low, high in account.settled.missing(start, end):
                account.settled.add(low, high)
                # To be told again, or nobody would know once the segment with the loan is dropped.
                self._store.settle(account.queue, low, high - low, 1)
            account.stored_end = max(account.stored_end, end)
        account.finish_recovery()
        if account.max_priority:
            lanes: dict[int, int] = paged_out.count_live(self._store.journal, account)
        else:
            lanes = {0: account.stored_end - account.settled.size}
        for lane, count in lanes.items():
            if count:
                held = account.paged_out[lane] = PagedOutBucket(account.settled.first_missing)
                held.stored_count = count

    def _drop_orphans(self) -> None:
        """Halves of what a crash cut through: a queue of a delayed exchange that is not there, and the like."""
        ledger = self._store
        for number in [each for each in self._catalogue.queues if each not in ledger.queue_indexes]:
            ledger.append_record(self._catalogue.remove_queue(number))
        if ledger.streams is not None:
            ledger.streams.remove_orphans(list(ledger.queue_indexes))


def _decode_owner(table: FieldTable) -> QualifiedName | int:
    number = table.get("number")
    if isinstance(number, int):
        return number
    return str(table["vhost"]), str(table["name"])
