"""Paging in: messages that are only on disk are read back as runs, in order of position.

Reading continues where the last read of the bucket stopped. Messages that were published one by one come back
as one run where they are alike, so that handling them costs no more than if they had been published together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recado.broker.priority_bucket import ReadLimits
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX
from recado.journal.journal import Journal
from recado.journal.record import RECORD_HEADER_BYTES, CorruptJournalError

from .pending_run import PagedOutBucket
from .queue_index import QueueIndex, SegmentExtents
from .records import (
    LIKE_REST,
    LIKE_START,
    MOVED_RUN,
    NO_EXPIRY_CODE,
    POSITION_FIELD,
    RUN_HEADER_BYTES,
    SPILLED_FLAG,
    Ranges,
    body_bytes,
    decode_origin,
    decode_run,
    find_destination,
    message_count,
    payload_offset,
    unpack_run_start,
)

# The first read is small, because after a restart a queue often needs only its first messages. Each further
# read is four times as large, up to the maximum.
_READ_MIN_BYTES = 64 << 10
_READ_MAX_BYTES = 1 << 20
_MESSAGES_MAX = 4096
_UNITS_PER_RECORD = 2  # for reading and decoding
_BYTES_PER_UNIT = 8192

_Located = tuple[int, int, int, int, int]
"""Priority, first and end position of the wanted messages, first position of the record, expiry."""


def page_in(journal: Journal, index: QueueIndex, priority: int) -> list[Run]:
    """Remove and return the next messages of a priority. Raises `CorruptJournalError`, `OSError`."""
    bucket = index.paged_out[priority]
    bucket.read_bytes = min(bucket.read_bytes * 4 or _READ_MIN_BYTES, _READ_MAX_BYTES)
    if not bucket.stored_count:
        return _page_in_unwritten(bucket)
    runs: list[Run] = []
    size = count = 0
    # The next record is compared with `model`, the last record that ended a run. If they are alike, its payload
    # (from offset `payload_start` on) is appended to `payloads`, those of the run. This holds within
    # `model_extents` and before position `limit`, up to which all messages are equally settled and delivered.
    model, payload_start, model_extents, limit = b"", RUN_HEADER_BYTES, None, 0
    payloads = [b""]
    for extents, journal_position, record in _scan(journal, index, bucket, bucket.read_bytes):
        if size >= bucket.read_bytes or count >= _MESSAGES_MAX:
            bucket.extents, bucket.journal_position = extents, journal_position
            break
        # Most messages that were published one by one are like the one before: 2 µs each here, 8 below.
        if (
            extents is model_extents
            and record[LIKE_START] == model[LIKE_START]
            and record[LIKE_REST] == model[LIKE_REST]
            and record[RUN_HEADER_BYTES:payload_start] == model[RUN_HEADER_BYTES:payload_start]
            and int.from_bytes(record[POSITION_FIELD], "big") == bucket.next_position < limit
        ):
            payloads.append(record[payload_start:])
            count += 1
            size += len(record)
            bucket.next_position += 1
            continue
        located = _locate(index, bucket.next_position, extents, record)
        if located is None or located[0] != priority:
            continue
        live = _append_runs(index, bucket, record, *located[1:], runs)
        count += live
        size += len(record) if live else 0  # settled messages are skipped, however many they are
        bucket.next_position = located[2]
        model_extents = None
        if runs and runs[-1].first_position + len(runs[-1]) == bucket.next_position:
            model, payload_start, model_extents = record, payload_offset(record), extents
            payloads = runs[-1].payloads
            limit = 0
            if payload_start:
                limit = min(
                    index.uniform_until(bucket.next_position - 1),
                    bucket.taken.next_change(bucket.next_position - 1),
                    extents.end,
                )
        if count >= bucket.stored_count:
            break
    if not count:
        reason = f"queue {index.queue_id} lacks {bucket.stored_count} messages"
        raise CorruptJournalError("the journal", bucket.journal_position, reason)
    bucket.stored_count -= count
    bucket.taken.remove_below(bucket.next_position)
    return runs


def read_portion(
    journal: Journal,
    index: QueueIndex,
    bucket: PagedOutBucket,
    cursor: PagedOutBucket,
    priority: int,
    limits: ReadLimits,
) -> tuple[list[Run], int, bool]:
    """Return some messages of a bucket from the cursor on, the cost, and whether these are the last.

    The messages stay in the bucket; the cursor advances. The journal may change between two calls.
    """
    runs: list[Run] = []
    cost = 0
    count_left, bytes_left = limits.message_count, limits.byte_count
    cursor.next_position = max(cursor.next_position, bucket.next_position)
    for extents, journal_position, record in _scan(journal, index, cursor, _READ_MIN_BYTES):
        if cost >= STEP_UNITS_MAX or count_left <= 0 or bytes_left <= 0:
            cursor.extents, cursor.journal_position = extents, journal_position
            return runs, cost, False
        cost += _UNITS_PER_RECORD + len(record) // _BYTES_PER_UNIT
        located = _locate(index, cursor.next_position, extents, record)
        if located is None or located[0] != priority:
            continue
        _, low, end, record_first, expires_at = located
        bytes_per_message = len(record) // message_count(record)
        high = min(end, low + count_left, low + max(bytes_left // bytes_per_message, not runs))
        count = _append_runs(index, bucket, record, low, high, record_first, expires_at, runs)
        count_left, bytes_left = count_left - count, bytes_left - count * bytes_per_message
        cursor.next_position = high
        if high < end:  # the rest of the record is read by the next call
            cursor.extents, cursor.journal_position = extents, journal_position
            return runs, cost, False
    return runs, cost, True


class LocatedRun(NamedTuple):
    """Paged-out messages of a queue [low, high) in a record, whose first position is `record_first`."""

    record: bytes
    record_first: int
    low: int
    high: int
    expires_at: int


def read_located(
    journal: Journal, index: QueueIndex, cursor: PagedOutBucket, end: int
) -> tuple[list[LocatedRun], int]:
    """Return some paged-out messages from the cursor on and before `end`, of any priority, and the cost.

    The cursor advances. The journal may change between two calls.
    """
    found: list[LocatedRun] = []
    cost = 0
    for extents, journal_position, record in _scan(journal, index, cursor, _READ_MIN_BYTES):
        cursor.next_position = max(cursor.next_position, extents.first)
        if cost >= STEP_UNITS_MAX:
            cursor.extents, cursor.journal_position = extents, journal_position
            return found, cost
        cost += _UNITS_PER_RECORD + len(record) // _BYTES_PER_UNIT
        located = _locate(index, cursor.next_position, extents, record)
        if located is not None:
            priority, low, high, record_first, expires_at = located
            bucket, high = index.paged_out.get(priority), min(high, end)
            if bucket is not None:
                live = index.settled.missing(max(low, bucket.next_position), high)
                found += [
                    LocatedRun(record, record_first, start, stop, expires_at)
                    for start, stop in _untaken(live, bucket)
                ]
            cursor.next_position = high
            if high == end:
                return found, cost
    cursor.next_position = end
    return found, cost


def read_priorities(
    journal: Journal, index: QueueIndex, cursor: PagedOutBucket, end: int
) -> tuple[list[tuple[int, Ranges, Ranges]], int]:
    """Return priorities as published, with live positions and those of them that are paged out, and the cost.

    The positions are from the cursor on and before `end`. The cursor advances.
    """
    found: list[tuple[int, Ranges, Ranges]] = []
    cost = 0
    for extents, journal_position, record in _scan(journal, index, cursor, _READ_MIN_BYTES):
        cursor.next_position = max(cursor.next_position, extents.first)
        if cost >= STEP_UNITS_MAX or cursor.next_position >= end:
            cursor.extents, cursor.journal_position = extents, journal_position
            return found, cost
        cost += 1
        located = _locate(index, cursor.next_position, extents, record)
        if located is not None:
            priority, low, high, _, _ = located
            high = min(high, end)
            bucket = index.paged_out.get(priority)
            live = index.settled.missing(low, high)
            paged_out: Ranges = ()
            if bucket is not None:
                untaken = index.settled.missing(max(low, bucket.next_position), high)
                paged_out = _untaken(untaken, bucket)
            found.append((unpack_run_start(record)[1], live, paged_out))
            cursor.next_position = high
    cursor.next_position = end
    return found, cost


def _page_in_unwritten(bucket: PagedOutBucket) -> list[Run]:
    """Return messages that were paged out in this turn and are not in the journal yet."""
    runs: list[Run] = []
    count = 0
    while bucket.unwritten and count < _MESSAGES_MAX:
        pending, entry = bucket.unwritten.pop(0)
        runs.append(pending.to_run(entry))
        count += pending.count
        bucket.next_position = entry.first_position + pending.count
    return runs


def next_live_spans(
    journal: Journal,
    index: QueueIndex,
    cursor: PagedOutBucket,
    buckets: Mapping[int, PagedOutBucket],
    end: int,
) -> tuple[list[tuple[int, int, int]], int]:
    """Return spans of live messages from the cursor on and before `end`, and the cost of reading them.

    The cursor advances. `buckets` are those that were dropped, by priority; messages that are in none of them
    are skipped. The journal may change between two calls.
    """
    spans: list[tuple[int, int, int]] = []
    cost = 0
    for extents, journal_position, record in _scan(journal, index, cursor, _READ_MIN_BYTES):
        cursor.next_position = max(cursor.next_position, extents.first)
        if cost >= STEP_UNITS_MAX:
            cursor.extents, cursor.journal_position = extents, journal_position
            return spans, cost
        cost += _UNITS_PER_RECORD
        located = _locate(index, cursor.next_position, extents, record)
        if located is not None:
            priority, low, high, _, _ = located
            bucket, high = buckets.get(priority), min(high, end)
            if bucket is not None:
                live = index.settled.missing(max(low, bucket.next_position), high)
                spans += [(start, stop - start, 1) for start, stop in _untaken(live, bucket)]
            cursor.next_position = high
    cursor.next_position = end
    return spans, cost


def count_live(journal: Journal, index: QueueIndex) -> Counter[int]:
    """Count the live messages of each priority, by reading the journal."""
    counts: Counter[int] = Counter()
    for priority, low, high in _live_ranges(journal, index, PagedOutBucket(0)):
        counts[priority] += high - low
    return counts


def sum_body_bytes(journal: Journal, index: QueueIndex) -> int:
    """Return the size of all paged-out bodies of a queue, without decoding them or holding them in memory."""
    buckets = index.paged_out
    unwritten = [
        pending.to_run(entry) for bucket in buckets.values() for pending, entry in bucket.unwritten
    ]
    total = sum(sum(run.body_sizes()) for run in unwritten)
    starts = [bucket.next_position for bucket in buckets.values() if bucket.stored_count]
    if not starts:
        return total
    first = min(starts)
    for extents, _, record in _scan(journal, index, PagedOutBucket(first), _READ_MAX_BYTES):
        located = _locate(index, first, extents, record)
        if located is None or located[0] not in buckets:
            continue
        priority, low, high, record_first, _ = located
        low = max(low, buckets[priority].next_position)
        for start, end in _untaken(index.settled.missing(low, high), buckets[priority]):
            total += body_bytes(record, start - record_first, end - record_first)
    return total


def _live_ranges(
    journal: Journal, index: QueueIndex, bucket: PagedOutBucket
) -> Iterator[tuple[int, int, int]]:
    """Yield (priority, start, end) of all live messages from the start of a bucket on."""
    for extents, _, record in _scan(journal, index, bucket, _READ_MAX_BYTES):
        located = _locate(index, bucket.next_position, extents, record)
        if located is not None:
            priority, low, high, _, _ = located
            for start, end in index.settled.missing(low, high):
                yield priority, start, end


def _scan(
    journal: Journal, index: QueueIndex, bucket: PagedOutBucket, read_bytes: int
) -> Iterator[tuple[SegmentExtents, int, bytes]]:
    """Yield (extents, journal position, record) for the extents of a queue, from the start of a bucket on.

    An extent may also contain records of other queues, which the caller has to skip.
    """
    position = bucket.next_position
    for extents in index.segment_extents[index.find_extents(position) :]:
        if not extents.live_count or extents.end <= position:
            continue
        for start, end in extents.ranges_from(max(position, extents.first)):
            at = max(start, bucket.journal_position) if extents is bucket.extents else start
            while at < end:  # in portions: the caller may stop long before the end
                for journal_position, record in journal.scan(at, min(end, at + read_bytes)):
                    yield extents, journal_position, record
                    at = journal_position + RECORD_HEADER_BYTES + len(record)


def _locate(
    index: QueueIndex, first: int, extents: SegmentExtents, record: bytes
) -> _Located | None:
    """Find the messages of a queue in a record, from position `first` on and within the extents."""
    if record[0] > MOVED_RUN:
        return None  # not a run, and maybe shorter than the header of one
    _, priority, more, count, queue_id, record_first, expires_at = unpack_run_start(record)
    if more:
        queue_id, record_first, expires_at = find_destination(record, index.queue_id)
    if queue_id & ~SPILLED_FLAG != index.queue_id:
        return None
    low, high = max(record_first, first, extents.first), min(record_first + count, extents.end)
    if low >= high:
        return None
    return min(priority, index.max_priority), low, high, record_first, expires_at


def _untaken(parts: list[tuple[int, int]], bucket: PagedOutBucket) -> list[tuple[int, int]]:
    """Return the parts without messages that have left the bucket and are not settled yet."""
    if not bucket.taken.size:
        return parts
    return [each for part in parts for each in bucket.taken.missing(*part)]


def _append_runs(
    index: QueueIndex,
    bucket: PagedOutBucket,
    record: bytes,
    low: int,
    high: int,
    record_first: int,
    expires_at: int,
    runs: list[Run],
) -> int:
    """Append the live messages of a record to `runs`; return their number."""
    live = 0
    stored = decode_run(record)
    counts_deliveries = index.counts_deliveries
    for part in _untaken(index.settled.missing(low, high), bucket):
        for start, end, times in index.split_by_deliveries(*part):
            payloads = stored.payloads[start - record_first : end - record_first]
            run = Run(
                decode_origin(stored.origin_bytes),
                stored.traits,
                stored.channel,
                stored.frame_max,
                stored.prefix,
                payloads,
                owns_payloads=True,
                first_position=start,
                redelivered=times > 0,
                expires_at=None if expires_at == NO_EXPIRY_CODE else expires_at,
                stored=True,
                delivery_count=times if counts_deliveries else 0,
            )
            if runs and run.can_follow(runs[-1]):
                runs[-1].payloads += payloads
            else:
                runs.append(run)
            live += end - start
    return live
