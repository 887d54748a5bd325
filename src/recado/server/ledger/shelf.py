"""Bringing back what was shelved: from the journal to runs, in order of place.

A shelf is read from where the last fetch ended. Messages that were published one by one come back as one run
where they are alike, so whatever follows costs as little as for those that came together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS
from recado.journal.journal import Journal
from recado.journal.record import OVERHEAD, Corrupt

from .account import Account, Stretch
from .gathered import Shelf
from .records import (
    ALIKE,
    ALIKE_TOO,
    FIXED,
    LOAN,
    MOVED,
    NEVER,
    PLACE,
    body_bytes,
    decode_run,
    destination_in,
    origin_of,
    start_of_tail,
    unpack_start,
)

# Queues may look at their first messages after a restart, so a fetch begins with little; who goes on gets more.
_FIRST_PORTION = 64 << 10
_LARGEST_PORTION = 1 << 20
_MOST_MESSAGES = 4096
_UNITS_PER_RECORD = 2  # to read and decode it


def fetch(journal: Journal, account: Account, lane: int) -> list[Run]:
    """The next messages of a lane; they leave the shelf."""
    shelf = account.shelves[lane]
    shelf.portion = min(shelf.portion * 4 or _FIRST_PORTION, _LARGEST_PORTION)
    if not shelf.stored:
        return _fetch_waiting(shelf)
    runs: list[Run] = []
    size = count = 0
    model, tail, last, limit, tails = b"", FIXED, None, 0, [b""]  # what the next may be like
    for stretch, position, record in _records(journal, account, shelf, shelf.portion):
        if size >= shelf.portion or count >= _MOST_MESSAGES:
            shelf.stretch, shelf.position = stretch, position
            break
        # Most that came one by one are like the one before: 2 µs for each here, 8 by what follows.
        if (
            stretch is last
            and record[ALIKE] == model[ALIKE]
            and record[ALIKE_TOO] == model[ALIKE_TOO]
            and record[FIXED:tail] == model[FIXED:tail]
            and int.from_bytes(record[PLACE], "big") == shelf.next < limit
        ):
            tails.append(record[tail:])
            count += 1
            size += len(record)
            shelf.next += 1
            continue
        found = _found(account, shelf.next, stretch, record)
        if found is None or found[0] != lane:
            continue
        live = _add(account, record, *found[1:], runs)
        count += live
        size += len(record) if live else 0  # what is settled is read over, however much it is
        shelf.next = found[2]
        last = None
        if runs and runs[-1].first + len(runs[-1]) == shelf.next:
            model, tail, last, tails = record, start_of_tail(record), stretch, runs[-1].tails
            limit = min(account.alike_until(shelf.next - 1), stretch.end) if tail else 0
        if count >= shelf.stored:
            break
    if not count:
        what = f"queue {account.number} lacks {shelf.stored} messages"
        raise Corrupt("the journal", shelf.position, what)
    shelf.stored -= count
    return runs


def _fetch_waiting(shelf: Shelf) -> list[Run]:
    """From this very turn, not written yet."""
    runs: list[Run] = []
    count = 0
    while shelf.waiting and count < _MOST_MESSAGES:
        gathered, entered = shelf.waiting.pop(0)
        runs.append(gathered.run(entered))
        count += gathered.count
        shelf.next = entered.first + gathered.count
    return runs


def next_places(
    journal: Journal, account: Account, cursor: Shelf, nexts: Mapping[int, int], end: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Spans of live messages from the cursor on, which moves, and up to `end`; and the cost of reading them.

    `nexts` are the places from which on messages of each lane count. The journal may change between two calls.
    """
    spans: list[tuple[int, int, int]] = []
    cost = 0
    for stretch, position, record in _records(journal, account, cursor, _FIRST_PORTION):
        cursor.next = max(cursor.next, stretch.first)
        if cost >= STEP_UNITS:
            cursor.stretch, cursor.position = stretch, position
            return spans, cost
        cost += _UNITS_PER_RECORD
        found = _found(account, cursor.next, stretch, record)
        if found is not None:
            lane, low, high, _, _ = found
            low, high = max(low, nexts.get(lane, end)), min(high, end)
            spans += [
                (start, stop - start, 1) for start, stop in account.settled.missing(low, high)
            ]
            cursor.next = high
    cursor.next = end
    return spans, cost


def count(journal: Journal, account: Account) -> Counter[int]:
    """How many messages are live in each lane, wherever they are."""
    lanes: Counter[int] = Counter()
    for lane, low, high in _stored(journal, account, Shelf(0)):
        lanes[lane] += high - low
    return lanes


def weigh(journal: Journal, account: Account) -> int:
    """The bytes of all bodies on the shelves of a queue; nothing is decoded, nor stays in memory."""
    shelves = account.shelves
    fresh = [each.run(one) for shelf in shelves.values() for each, one in shelf.waiting]
    total = sum(sum(run.body_sizes()) for run in fresh)
    begins = [shelf.next for shelf in shelves.values() if shelf.stored]
    if not begins:
        return total
    first = min(begins)
    for stretch, _, record in _records(journal, account, Shelf(first), _LARGEST_PORTION):
        found = _found(account, first, stretch, record)
        if found is None or found[0] not in shelves:
            continue
        lane, low, high, place, _ = found
        for start, end in account.settled.missing(max(low, shelves[lane].next), high):
            total += body_bytes(record, start - place, end - place)
    return total


def _stored(journal: Journal, account: Account, shelf: Shelf) -> Iterator[tuple[int, int, int]]:
    """Lane and places of all that is live, from the first of a shelf on."""
    for stretch, _, record in _records(journal, account, shelf, _LARGEST_PORTION):
        found = _found(account, shelf.next, stretch, record)
        if found is not None:
            lane, low, high, _, _ = found
            for start, end in account.settled.missing(low, high):
                yield lane, start, end


def _records(
    journal: Journal, account: Account, shelf: Shelf, portion: int
) -> Iterator[tuple[Stretch, int, bytes]]:
    """What the journal has from the place on where the shelf begins, others' records among it."""
    place = shelf.next
    for stretch in account.stretches[account.stretch_of(place) :]:
        if not stretch.live or stretch.end <= place:
            continue
        for start, end in stretch.extents(max(place, stretch.first)):
            at = max(start, shelf.position) if stretch is shelf.stretch else start
            while at < end:  # in portions, or much more than is wanted would be read
                for position, record in journal.scan(at, min(end, at + portion)):
                    yield stretch, position, record
                    at = position + OVERHEAD + len(record)


def _found(
    account: Account, first: int, stretch: Stretch, record: bytes
) -> tuple[int, int, int, int, int] | None:
    """If a record has messages from a place on, in this stretch: lane, places, the record's first place, and
    when they expire."""
    if record[0] > MOVED:
        return None  # and maybe shorter than what a run begins with
    _, priority, more, count, queue, place, expires = unpack_start(record)
    if more:
        queue, place, expires = destination_in(record, account.number)
    if queue & ~LOAN != account.number:
        return None
    low, high = max(place, first, stretch.first), min(place + count, stretch.end)
    if low >= high:
        return None
    return min(priority, account.highest_lane), low, high, place, expires


def _add(
    account: Account,
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
    counts = account.counts
    for part in account.settled.missing(low, high):
        for start, end, times in account.deliveries(*part):
            tails = run.tails[start - place : end - place]
            one = Run(
                *(origin_of(run.names), run.facts, run.channel, run.frame_max, run.head, tails),
                owned=True,
                first=start,
                redelivered=times > 0,
                expires=None if expires == NEVER else expires,
                kept=True,
                returns=times if counts else 0,
            )
            if runs and one.follows(runs[-1]):
                runs[-1].tails += tails
            else:
                runs.append(one)
            found += end - start
    return found
