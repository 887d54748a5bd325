"""Bringing back what was shelved: from the journal to runs, in order of place.

A shelf is read from where the last fetch ended. Messages that were published one by one come back as one run
where they are alike, so whatever follows costs as little as for those that came together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX
from recado.journal.journal import Journal
from recado.journal.record import RECORD_HEADER_BYTES, CorruptJournalError

from .pending import PagedOutBucket
from .queue_index import QueueIndex, SegmentExtents
from .records import (
    LIKE_REST,
    LIKE_START,
    MOVED_RUN,
    NO_EXPIRY_CODE,
    POSITION_FIELD,
    RUN_HEADER_BYTES,
    SPILLED_FLAG,
    body_bytes,
    decode_origin,
    decode_run,
    find_destination,
    payload_offset,
    unpack_run_start,
)

# Queues may look at their first messages after a restart, so a fetch begins with little; who goes on gets more.
_READ_MIN_BYTES = 64 << 10
_READ_MAX_BYTES = 1 << 20
_MESSAGES_MAX = 4096
_UNITS_PER_RECORD = 2  # to read and decode it


def page_in(journal: Journal, account: QueueIndex, lane: int) -> list[Run]:
    """The next messages of a lane; they leave the shelf."""
    shelf = account.paged_out[lane]
    shelf.read_bytes = min(shelf.read_bytes * 4 or _READ_MIN_BYTES, _READ_MAX_BYTES)
    if not shelf.stored_count:
        return _page_in_unwritten(shelf)
    runs: list[Run] = []
    size = count = 0
    model, tail, last, limit, tails = (
        b"",
        RUN_HEADER_BYTES,
        None,
        0,
        [b""],
    )  # what the next may be like
    for stretch, position, record in _scan(journal, account, shelf, shelf.read_bytes):
        if size >= shelf.read_bytes or count >= _MESSAGES_MAX:
            shelf.extents, shelf.journal_position = stretch, position
            break
        # Most that came one by one are like the one before: 2 µs for each here, 8 by what follows.
        if (
            stretch is last
            and record[LIKE_START] == model[LIKE_START]
            and record[LIKE_REST] == model[LIKE_REST]
            and record[RUN_HEADER_BYTES:tail] == model[RUN_HEADER_BYTES:tail]
            and int.from_bytes(record[POSITION_FIELD], "big") == shelf.next_position < limit
        ):
            tails.append(record[tail:])
            count += 1
            size += len(record)
            shelf.next_position += 1
            continue
        found = _locate(account, shelf.next_position, stretch, record)
        if found is None or found[0] != lane:
            continue
        live = _append_runs(account, record, *found[1:], runs)
        count += live
        size += len(record) if live else 0  # what is settled is read over, however much it is
        shelf.next_position = found[2]
        last = None
        if runs and runs[-1].first_position + len(runs[-1]) == shelf.next_position:
            model, tail, last, tails = record, payload_offset(record), stretch, runs[-1].payloads
            limit = min(account.uniform_until(shelf.next_position - 1), stretch.end) if tail else 0
        if count >= shelf.stored_count:
            break
    if not count:
        what = f"queue {account.queue_id} lacks {shelf.stored_count} messages"
        raise CorruptJournalError("the journal", shelf.journal_position, what)
    shelf.stored_count -= count
    return runs


def _page_in_unwritten(shelf: PagedOutBucket) -> list[Run]:
    """From this very turn, not written yet."""
    runs: list[Run] = []
    count = 0
    while shelf.unwritten and count < _MESSAGES_MAX:
        gathered, entered = shelf.unwritten.pop(0)
        runs.append(gathered.to_run(entered))
        count += gathered.count
        shelf.next_position = entered.first_position + gathered.count
    return runs


def next_live_spans(
    journal: Journal,
    account: QueueIndex,
    cursor: PagedOutBucket,
    nexts: Mapping[int, int],
    end: int,
) -> tuple[list[tuple[int, int, int]], int]:
    """Spans of live messages from the cursor on, which moves, and up to `end`; and the cost of reading them.

    `nexts` are the places from which on messages of each lane count. The journal may change between two calls.
    """
    spans: list[tuple[int, int, int]] = []
    cost = 0
    for stretch, position, record in _scan(journal, account, cursor, _READ_MIN_BYTES):
        cursor.next_position = max(cursor.next_position, stretch.first)
        if cost >= STEP_UNITS_MAX:
            cursor.extents, cursor.journal_position = stretch, position
            return spans, cost
        cost += _UNITS_PER_RECORD
        found = _locate(account, cursor.next_position, stretch, record)
        if found is not None:
            lane, low, high, _, _ = found
            low, high = max(low, nexts.get(lane, end)), min(high, end)
            spans += [
                (start, stop - start, 1) for start, stop in account.settled.missing(low, high)
            ]
            cursor.next_position = high
    cursor.next_position = end
    return spans, cost


def count_live(journal: Journal, account: QueueIndex) -> Counter[int]:
    """How many messages are live in each lane, wherever they are."""
    lanes: Counter[int] = Counter()
    for lane, low, high in _live_ranges(journal, account, PagedOutBucket(0)):
        lanes[lane] += high - low
    return lanes


def sum_body_bytes(journal: Journal, account: QueueIndex) -> int:
    """The bytes of all bodies on the shelves of a queue; nothing is decoded, nor stays in memory."""
    shelves = account.paged_out
    fresh = [each.to_run(one) for shelf in shelves.values() for each, one in shelf.unwritten]
    total = sum(sum(run.body_sizes()) for run in fresh)
    begins = [shelf.next_position for shelf in shelves.values() if shelf.stored_count]
    if not begins:
        return total
    first = min(begins)
    for stretch, _, record in _scan(journal, account, PagedOutBucket(first), _READ_MAX_BYTES):
        found = _locate(account, first, stretch, record)
        if found is None or found[0] not in shelves:
            continue
        lane, low, high, place, _ = found
        for start, end in account.settled.missing(max(low, shelves[lane].next_position), high):
            total += body_bytes(record, start - place, end - place)
    return total


def _live_ranges(
    journal: Journal, account: QueueIndex, shelf: PagedOutBucket
) -> Iterator[tuple[int, int, int]]:
    """Lane and places of all that is live, from the first of a shelf on."""
    for stretch, _, record in _scan(journal, account, shelf, _READ_MAX_BYTES):
        found = _locate(account, shelf.next_position, stretch, record)
        if found is not None:
            lane, low, high, _, _ = found
            for start, end in account.settled.missing(low, high):
                yield lane, start, end


def _scan(
    journal: Journal, account: QueueIndex, shelf: PagedOutBucket, portion: int
) -> Iterator[tuple[SegmentExtents, int, bytes]]:
    """What the journal has from the place on where the shelf begins, others' records among it."""
    place = shelf.next_position
    for stretch in account.extents[account.find_extents(place) :]:
        if not stretch.live_count or stretch.end <= place:
            continue
        for start, end in stretch.ranges_from(max(place, stretch.first)):
            at = max(start, shelf.journal_position) if stretch is shelf.extents else start
            while at < end:  # in portions, or much more than is wanted would be read
                for position, record in journal.scan(at, min(end, at + portion)):
                    yield stretch, position, record
                    at = position + RECORD_HEADER_BYTES + len(record)


def _locate(
    account: QueueIndex, first: int, stretch: SegmentExtents, record: bytes
) -> tuple[int, int, int, int, int] | None:
    """If a record has messages from a place on, in this stretch: lane, places, the record's first place, and
    when they expire."""
    if record[0] > MOVED_RUN:
        return None  # and maybe shorter than what a run begins with
    _, priority, more, count, queue, place, expires = unpack_run_start(record)
    if more:
        queue, place, expires = find_destination(record, account.queue_id)
    if queue & ~SPILLED_FLAG != account.queue_id:
        return None
    low, high = max(place, first, stretch.first), min(place + count, stretch.end)
    if low >= high:
        return None
    return min(priority, account.max_priority), low, high, place, expires


def _append_runs(
    account: QueueIndex,
    record: bytes,
    low: int,
    high: int,
    place: int,
    expires: int,
    runs: list[Run],
) -> int:
    """Add what is live; gives how many messages that are."""
    found = 0
    run = decode_run(record)
    counts = account.counts_deliveries
    for part in account.settled.missing(low, high):
        for start, end, times in account.split_by_deliveries(*part):
            tails = run.payloads[start - place : end - place]
            one = Run(
                *(
                    decode_origin(run.origin_bytes),
                    run.traits,
                    run.channel,
                    run.frame_max,
                    run.prefix,
                    tails,
                ),
                owns_payloads=True,
                first_position=start,
                redelivered=times > 0,
                expires_at=None if expires == NO_EXPIRY_CODE else expires,
                stored=True,
                delivery_count=times if counts else 0,
            )
            if runs and one.can_extend(runs[-1]):
                runs[-1].payloads += tails
            else:
                runs.append(one)
            found += end - start
    return found
