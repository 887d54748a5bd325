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

from recado.amqp.frames import read_body_size
from recado.amqp.traits import MessageTraits
from recado.amqp.values import FieldTable, decode_table, encode_table
from recado.broker.run import Origin

RUN, MOVED_RUN, SETTLED, DELIVERED = 1, 2, 3, 4
EXCHANGE, EXCHANGE_DELETED, QUEUE, QUEUE_DELETED, BINDING, BINDING_DELETED = 5, 6, 7, 8, 9, 10
METADATA, METADATA_DELETED, CHECKPOINT, QUEUE_INDEX, MESSAGE_IDS, MESSAGE_IDS_START = (
    11,
    12,
    13,
    14,
    15,
    16,
)

SPILLED_FLAG = 1 << 31
VARYING_SIZES_FLAG = 0xFFFF_FFFF
PERSISTENT_FLAG = 1
NO_EXPIRY_CODE = -1

_RUN_HEADER = Struct(">BBHIIQqBHIHII")
_DESTINATION = Struct(">IQq")
unpack_run_start = Struct(">BBHIIQq").unpack_from  # kind, priority, more, count, destination
_pack_run, _unpack_run = _RUN_HEADER.pack, _RUN_HEADER.unpack_from
_U32 = Struct(">I")
_U64 = Struct(">Q")
_INDEX_HEADER = Struct(">BIQ")
_MESSAGE_ID_HEADER = Struct(">QH")

TABLE_ENTRIES_MAX = 1 << 20  # of a table that was within the limits when a client sent it


Destination = tuple[int, int, int]
"""The queue's number, with LOAN where it is one; the first place; when it expires."""


def encode_run(
    destinations: Sequence[Destination],
    traits: MessageTraits,
    origin_bytes: bytes,
    channel: int,
    frame_max: int,
    prefix: bytes,
    payloads: list[bytes],
    *,
    kind: int = RUN,
) -> bytes:
    count = len(payloads)
    size, sizes = len(payloads[0]), b""
    if count > 1 and not prefix:
        each = list(map(len, payloads))
        if each.count(size) != count:
            size, sizes = VARYING_SIZES_FLAG, pack(f">{count}I", *each)
    more = len(destinations) - 1
    queue, first, expires = destinations[0]
    start = _pack_run(
        kind,
        traits.priority,
        more,
        count,
        queue,
        first,
        expires,
        traits.persistent,
        channel,
        frame_max,
        len(origin_bytes),
        len(prefix),
        size,
    )
    if more:
        start += b"".join([_DESTINATION.pack(*each) for each in destinations[1:]])
    if count == 1:
        return b"".join((start, origin_bytes, prefix, payloads[0]))
    return b"".join((start, sizes, origin_bytes, prefix, *payloads))


# Two records of one message for one queue have messages that are alike if they are equal in these parts (kind,
# priority, count and queue; all else that is fixed but place and tail size), and from there to the tail.
LIKE_START, LIKE_REST, POSITION_FIELD = slice(0, 12), slice(20, 41), slice(12, 20)
RUN_HEADER_BYTES = _RUN_HEADER.size


def payload_offset(record: bytes) -> int:
    """Where the message begins that a record of one message for one queue has; 0 if there are more."""
    _, _, more, count, *_, names, head, _ = _unpack_run(record)
    return 0 if more or count > 1 else int(RUN_HEADER_BYTES + names + head)


class RunRecord(msgspec.Struct):
    """A decoded run, but for its destinations: 20,000 of them take 13 ms, and who reads wants one."""

    traits: MessageTraits
    origin_bytes: bytes
    channel: int
    frame_max: int
    prefix: bytes
    payloads: list[bytes]


def decode_destinations(record: bytes) -> list[Destination]:
    """For which queues a run is, and where in them."""
    _, _, more, _, queue, first, expires = unpack_run_start(record)
    found = [(queue, first, expires)]
    if more:
        end = _RUN_HEADER.size + more * _DESTINATION.size
        found += _DESTINATION.iter_unpack(record[_RUN_HEADER.size : end])
    return found


def find_destination(record: bytes, queue: int) -> Destination:
    """The one for a queue; if there is none, that for another."""
    _, _, more, _, *first = unpack_run_start(record)
    if more and first[0] & ~SPILLED_FLAG != queue:
        # The last byte of each number, side by side: few others have the same, so few are decoded.
        stride = _DESTINATION.size
        column = record[RUN_HEADER_BYTES + 3 : RUN_HEADER_BYTES + more * stride : stride]
        last, at = queue & 0xFF, -1
        while (at := column.find(last, at + 1)) >= 0:
            found: Destination = _DESTINATION.unpack_from(record, RUN_HEADER_BYTES + at * stride)
            if found[0] & ~SPILLED_FLAG == queue:
                return found
    return first[0], first[1], first[2]


def decode_run(record: bytes) -> RunRecord:
    _, priority, more, count, _, _, _, *rest = _unpack_run(record)
    flags, channel, frame_max, names_size, head_size, size = rest
    at = _RUN_HEADER.size + more * _DESTINATION.size
    sizes: Sequence[int] = ()
    if size == VARYING_SIZES_FLAG:
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
        tails = [tail for (tail,) in _payload_struct(size).iter_unpack(memoryview(record)[at:])]
    else:
        tails = [b""] * count
    return RunRecord(
        stored_traits(bool(flags & PERSISTENT_FLAG), priority),
        names,
        channel,
        frame_max,
        head,
        tails,
    )


def body_bytes(record: bytes, low: int, high: int) -> int:
    """The sizes of the bodies of some messages of a run, counted within it, in all."""
    _, _, more, count, *_, names, head, size = _unpack_run(record)
    at = RUN_HEADER_BYTES + more * _DESTINATION.size + names
    if head:
        return (high - low) * read_body_size(record, at)
    if size != VARYING_SIZES_FLAG:
        return sum(read_body_size(record, at + size * i) for i in range(low, high))
    sizes = unpack_from(f">{count}I", record, at - names)
    ends = accumulate(sizes[: high - 1], initial=at + 4 * count)
    return sum(read_body_size(record, start) for start in islice(ends, low, high))


@lru_cache(256)
def _payload_struct(size: int) -> Struct:
    return Struct(f"{size}s")


@lru_cache(512)
def stored_traits(persistent: bool, priority: int) -> MessageTraits:
    """What of a message's facts still counts once it is in a queue."""
    return MessageTraits(persistent=persistent, priority=priority)


@lru_cache(4096)
def decode_origin(names: bytes) -> Origin:
    after = 1 + names[0]
    return Origin(names[1:after].decode(), names[after + 1 :].decode())


# ── ranges ──────────────────────────────────────────────────────────────────────────────────────────

Ranges = Sequence[tuple[int, int]]


def encode_ranges(kind: int, ranges: Iterable[tuple[int, Ranges]]) -> bytes:
    parts = [bytes((kind,))]
    for queue, each in ranges:
        parts.append(_U32.pack(queue))
        parts.append(_pack_ranges(each))
    return b"".join(parts)


def decode_ranges(record: bytes) -> Iterable[tuple[int, Ranges]]:
    at = 1
    while at < len(record):
        (queue,) = _U32.unpack_from(record, at)
        ranges, at = _unpack_ranges(record, at + _U32.size)
        yield queue, ranges


def _pack_ranges(ranges: Ranges) -> bytes:
    count = len(ranges)
    return pack(f">I{2 * count}Q", count, *[place for each in ranges for place in each])


def _unpack_ranges(record: bytes, at: int) -> tuple[Ranges, int]:
    (count,) = _U32.unpack_from(record, at)
    at += _U32.size
    places = unpack_from(f">{2 * count}Q", record, at)
    return list(zip(places[::2], places[1::2], strict=True)), at + 16 * count


def encode_queue_index(queue: int, next_place: int, ranges: Iterable[Ranges]) -> bytes:
    return _INDEX_HEADER.pack(QUEUE_INDEX, queue, next_place) + b"".join(map(_pack_ranges, ranges))


def decode_queue_index(record: bytes) -> tuple[int, int, list[Ranges]]:
    _, queue, next_place = _INDEX_HEADER.unpack_from(record)
    found, at = [], _INDEX_HEADER.size
    while at < len(record):
        ranges, at = _unpack_ranges(record, at)
        found.append(ranges)
    return queue, next_place, found


# ── tables, and records of records ──────────────────────────────────────────────────────────────────


def encode_tables(kind: int, *tables: FieldTable) -> bytes:
    """Side by side and not one in the other, or arguments might be nested too deep."""
    return bytes((kind,)) + b"".join(map(encode_table, tables))


def decode_tables(record: bytes) -> list[FieldTable]:
    tables, at = [], 1
    while at < len(record):
        table, at = decode_table(record, at, max_entries=TABLE_ENTRIES_MAX)
        tables.append(table)
    return tables


def encode_metadata(kind: str, vhost: str, name: str, value: bytes | None) -> bytes:
    table: FieldTable = {"kind": kind, "vhost": vhost, "name": name}
    if value is None:
        return encode_tables(METADATA_DELETED, table)
    return encode_tables(METADATA, table) + value


def decode_metadata(record: bytes) -> tuple[tuple[str, str, str], bytes]:
    table, at = decode_table(record, 1)
    return (str(table["kind"]), str(table["vhost"]), str(table["name"])), record[at:]


def encode_message_ids(owner: FieldTable, ids: Iterable[tuple[bytes, int]]) -> bytes:
    entries = [
        _MESSAGE_ID_HEADER.pack(when, len(message_id)) + message_id for message_id, when in ids
    ]
    return encode_tables(MESSAGE_IDS, owner) + b"".join(entries)


def decode_message_ids(record: bytes) -> tuple[FieldTable, list[tuple[bytes, int]]]:
    owner, at = decode_table(record, 1)
    ids = []
    while at < len(record):
        when, size = _MESSAGE_ID_HEADER.unpack_from(record, at)
        at += _MESSAGE_ID_HEADER.size
        ids.append((record[at : at + size], when))
        at += size
    return owner, ids


def encode_message_ids_start(position: int) -> bytes:
    return bytes((MESSAGE_IDS_START,)) + _U64.pack(position)


def decode_message_ids_start(record: bytes) -> int:
    (position,) = _U64.unpack_from(record, 1)
    return int(position)


def encode_checkpoint(next_queue: int, records: Iterable[bytes]) -> bytes:
    parts = [bytes((CHECKPOINT,)), _U32.pack(next_queue)]
    for record in records:
        parts.append(_U32.pack(len(record)))
        parts.append(record)
    return b"".join(parts)


def decode_checkpoint(record: bytes) -> tuple[int, Iterable[bytes]]:
    (next_queue,) = _U32.unpack_from(record, 1)
    return next_queue, _split_records(record, 1 + _U32.size)


def _split_records(record: bytes, at: int) -> Iterable[bytes]:
    while at < len(record):
        start = at + _U32.size
        at = start + _U32.unpack_from(record, at)[0]
        yield record[start:at]
