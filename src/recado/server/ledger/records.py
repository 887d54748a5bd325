"""The ledger's records, as bytes. The first byte of each is its kind; numbers are big-endian, as in AMQP.

    run        | 1 | priority u8 | more u16 | count u32 | destination | flags u8 | channel u16 | frame max u32 |
               | names u16 | head u32 | tail u32 | `more` destinations | sizes | names | head | tails |
    moved run  | 2 | likewise: it was stored elsewhere before, and is to be found here from now on |
    settled    | 3 | { queue u32 | ranges } … |
    delivered  | 4 | likewise |
    exchange   | 5 | table | arguments |      its end | 6 | table |
    queue      | 7 | table | arguments |      its end | 8 | table |
    binding    | 9 | table | arguments |      its end | 10 | table | arguments |
    fact       | 11 | table | value |         its end | 12 | table |
    checkpoint | 13 | next queue u32 | { size u32 | record } … |
    account    | 14 | queue u32 | next place u64 | ranges: settled | delivered once or more | twice … | … |
    seen       | 15 | table | { when u64 | size u16 | message id } … |
    ids from   | 16 | position u64 |          in a checkpoint: records of ids count from there on

    ranges      = | number u32 | { start u64 | end u64 } … |
    destination = | queue u32, LOAN or'ed | first place u64 | expires i64, -1 is never |

A run's messages are stored once for all the queues they are in. `names` are exchange and routing key as in a
deliver frame. `tail` is the size of every tail, or VARIOUS, and then `count` sizes u32 follow. A *loan* is what
a queue has shelved without a promise: it does not come back after a restart. Tables are AMQP's own, so that the
arguments of a declaration return as they came, types included.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from struct import Struct, pack, unpack_from

import msgspec

from recado.amqp.facts import Facts
from recado.amqp.frames import body_size_of
from recado.amqp.values import Table, decode_table, encode_table
from recado.broker.run import Origin

RUN, MOVED, SETTLED, DELIVERED = 1, 2, 3, 4
EXCHANGE, EXCHANGE_GONE, QUEUE, QUEUE_GONE, BINDING, BINDING_GONE = 5, 6, 7, 8, 9, 10
FACT, FACT_GONE, CHECKPOINT, ACCOUNT, SEEN, IDS_FROM = 11, 12, 13, 14, 15, 16

LOAN = 1 << 31
VARIOUS = 0xFFFF_FFFF
PERSISTENT = 1
NEVER = -1

_RUN = Struct(">BBHIIQqBHIHII")
_DESTINATION = Struct(">IQq")
unpack_start = Struct(">BBHIIQq").unpack_from  # kind, priority, more, count, destination
_pack_run, _unpack_run = _RUN.pack, _RUN.unpack_from
_SIZE = Struct(">I")
_PLACE = Struct(">Q")
_ACCOUNT = Struct(">BIQ")
_SEEN = Struct(">QH")

MOST_ENTRIES = 1 << 20  # of a table that was within the limits when a client sent it


Destination = tuple[int, int, int]
"""The queue's number, with LOAN where it is one; the first place; when it expires."""


def encode_run(
    destinations: Sequence[Destination],
    facts: Facts,
    names: bytes,
    channel: int,
    frame_max: int,
    head: bytes,
    tails: list[bytes],
    *,
    kind: int = RUN,
) -> bytes:
    count = len(tails)
    size, sizes = len(tails[0]), b""
    if count > 1 and not head:
        each = list(map(len, tails))
        if each.count(size) != count:
            size, sizes = VARIOUS, pack(f">{count}I", *each)
    more = len(destinations) - 1
    queue, first, expires = destinations[0]
    start = _pack_run(
        kind,
        facts.priority,
        more,
        count,
        queue,
        first,
        expires,
        facts.persistent,
        channel,
        frame_max,
        len(names),
        len(head),
        size,
    )
    if more:
        start += b"".join([_DESTINATION.pack(*each) for each in destinations[1:]])
    if count == 1:
        return b"".join((start, names, head, tails[0]))
    return b"".join((start, sizes, names, head, *tails))


# Two records of one message for one queue have messages that are alike if they are equal in these parts (kind,
# priority, count and queue; all else that is fixed but place and tail size), and from there to the tail.
ALIKE, ALIKE_TOO, PLACE = slice(0, 12), slice(20, 41), slice(12, 20)
FIXED = _RUN.size


def start_of_tail(record: bytes) -> int:
    """Where the message begins that a record of one message for one queue has; 0 if there are more."""
    _, _, more, count, *_, names, head, _ = _unpack_run(record)
    return 0 if more or count > 1 else int(FIXED + names + head)


class RunRecord(msgspec.Struct):
    """A decoded run, but for its destinations: 20,000 of them take 13 ms, and who reads wants one."""

    facts: Facts
    names: bytes
    channel: int
    frame_max: int
    head: bytes
    tails: list[bytes]


def destinations_of(record: bytes) -> list[Destination]:
    """For which queues a run is, and where in them."""
    _, _, more, _, queue, first, expires = unpack_start(record)
    found = [(queue, first, expires)]
    if more:
        end = _RUN.size + more * _DESTINATION.size
        found += _DESTINATION.iter_unpack(record[_RUN.size : end])
    return found


def destination_in(record: bytes, queue: int) -> Destination:
    """The one for a queue; if there is none, that for another."""
    _, _, more, _, *first = unpack_start(record)
    if more and first[0] & ~LOAN != queue:
        # The last byte of each number, side by side: few others have the same, so few are decoded.
        stride = _DESTINATION.size
        column = record[FIXED + 3 : FIXED + more * stride : stride]
        last, at = queue & 0xFF, -1
        while (at := column.find(last, at + 1)) >= 0:
            found: Destination = _DESTINATION.unpack_from(record, FIXED + at * stride)
            if found[0] & ~LOAN == queue:
                return found
    return first[0], first[1], first[2]


def decode_run(record: bytes) -> RunRecord:
    _, priority, more, count, _, _, _, *rest = _unpack_run(record)
    flags, channel, frame_max, names_size, head_size, size = rest
    at = _RUN.size + more * _DESTINATION.size
    sizes: Sequence[int] = ()
    if size == VARIOUS:
        sizes = unpack_from(f">{count}I", record, at)
        at += 4 * count
    names = record[at : at + names_size]
    at += names_size
    head = record[at : at + head_size]
    at += head_size
    if count == 1:
        tails = [record[at:]]
    elif sizes:
        tails = []
        for size in sizes:
            tails.append(record[at : at + size])
            at += size
    elif size:
        tails = [tail for (tail,) in _tails(size).iter_unpack(memoryview(record)[at:])]
    else:
        tails = [b""] * count
    return RunRecord(
        facts_like(bool(flags & PERSISTENT), priority), names, channel, frame_max, head, tails
    )


def body_bytes(record: bytes, low: int, high: int) -> int:
    """The sizes of the bodies of some messages of a run, counted within it, in all."""
    _, _, more, count, *_, names, head, size = _unpack_run(record)
    at = FIXED + more * _DESTINATION.size + names
    if head:
        return (high - low) * body_size_of(record, at)
    if size != VARIOUS:
        return sum(body_size_of(record, at + size * i) for i in range(low, high))
    sizes = unpack_from(f">{count}I", record, at - names)
    ends = accumulate(sizes[: high - 1], initial=at + 4 * count)
    return sum(body_size_of(record, start) for start in islice(ends, low, high))


@lru_cache(256)
def _tails(size: int) -> Struct:
    return Struct(f"{size}s")


@lru_cache(512)
def facts_like(persistent: bool, priority: int) -> Facts:
    """What of a message's facts still counts once it is in a queue."""
    return Facts(persistent=persistent, priority=priority)


@lru_cache(4096)
def origin_of(names: bytes) -> Origin:
    after = 1 + names[0]
    return Origin(names[1:after].decode(), names[after + 1 :].decode())


# ── ranges ──────────────────────────────────────────────────────────────────────────────────────────

Ranges = Sequence[tuple[int, int]]


def encode_ranges(kind: int, ranges: Iterable[tuple[int, Ranges]]) -> bytes:
    parts = [bytes((kind,))]
    for queue, each in ranges:
        parts.append(_SIZE.pack(queue))
        parts.append(_pack_ranges(each))
    return b"".join(parts)


def decode_ranges(record: bytes) -> Iterable[tuple[int, Ranges]]:
    at = 1
    while at < len(record):
        (queue,) = _SIZE.unpack_from(record, at)
        ranges, at = _unpack_ranges(record, at + _SIZE.size)
        yield queue, ranges


def _pack_ranges(ranges: Ranges) -> bytes:
    count = len(ranges)
    return pack(f">I{2 * count}Q", count, *[place for each in ranges for place in each])


def _unpack_ranges(record: bytes, at: int) -> tuple[Ranges, int]:
    (count,) = _SIZE.unpack_from(record, at)
    at += _SIZE.size
    places = unpack_from(f">{2 * count}Q", record, at)
    return list(zip(places[::2], places[1::2], strict=True)), at + 16 * count


def encode_account(queue: int, next_place: int, ranges: Iterable[Ranges]) -> bytes:
    return _ACCOUNT.pack(ACCOUNT, queue, next_place) + b"".join(map(_pack_ranges, ranges))


def decode_account(record: bytes) -> tuple[int, int, list[Ranges]]:
    _, queue, next_place = _ACCOUNT.unpack_from(record)
    found, at = [], _ACCOUNT.size
    while at < len(record):
        ranges, at = _unpack_ranges(record, at)
        found.append(ranges)
    return queue, next_place, found


# ── tables, and records of records ──────────────────────────────────────────────────────────────────


def encode_tables(kind: int, *tables: Table) -> bytes:
    """Side by side and not one in the other, or arguments might be nested too deep."""
    return bytes((kind,)) + b"".join(map(encode_table, tables))


def decode_tables(record: bytes) -> list[Table]:
    tables, at = [], 1
    while at < len(record):
        table, at = decode_table(record, at, max_entries=MOST_ENTRIES)
        tables.append(table)
    return tables


def encode_fact(kind: str, vhost: str, name: str, value: bytes | None) -> bytes:
    table: Table = {"kind": kind, "vhost": vhost, "name": name}
    if value is None:
        return encode_tables(FACT_GONE, table)
    return encode_tables(FACT, table) + value


def decode_fact(record: bytes) -> tuple[tuple[str, str, str], bytes]:
    table, at = decode_table(record, 1)
    return (str(table["kind"]), str(table["vhost"]), str(table["name"])), record[at:]


def encode_seen(owner: Table, ids: Iterable[tuple[bytes, int]]) -> bytes:
    entries = [_SEEN.pack(when, len(message_id)) + message_id for message_id, when in ids]
    return encode_tables(SEEN, owner) + b"".join(entries)


def decode_seen(record: bytes) -> tuple[Table, list[tuple[bytes, int]]]:
    owner, at = decode_table(record, 1)
    ids = []
    while at < len(record):
        when, size = _SEEN.unpack_from(record, at)
        at += _SEEN.size
        ids.append((record[at : at + size], when))
        at += size
    return owner, ids


def encode_ids_from(position: int) -> bytes:
    return bytes((IDS_FROM,)) + _PLACE.pack(position)


def decode_ids_from(record: bytes) -> int:
    (position,) = _PLACE.unpack_from(record, 1)
    return int(position)


def encode_checkpoint(next_queue: int, records: Iterable[bytes]) -> bytes:
    parts = [bytes((CHECKPOINT,)), _SIZE.pack(next_queue)]
    for record in records:
        parts.append(_SIZE.pack(len(record)))
        parts.append(record)
    return b"".join(parts)


def decode_checkpoint(record: bytes) -> tuple[int, Iterable[bytes]]:
    (next_queue,) = _SIZE.unpack_from(record, 1)
    return next_queue, _records_in(record, 1 + _SIZE.size)


def _records_in(record: bytes, at: int) -> Iterable[bytes]:
    while at < len(record):
        start = at + _SIZE.size
        at = start + _SIZE.unpack_from(record, at)[0]
        yield record[start:at]
