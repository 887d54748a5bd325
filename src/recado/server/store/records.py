"""The records of the message store as bytes. The first byte is the kind; numbers are big-endian, as in AMQP.

    run        | 1 | priority u8 | more u16 | count u32 | destination | flags u8 | channel u16 | frame max u32 |
               | origin u16 | prefix u32 | payload u32 | `more` destinations | sizes |
               | origin | prefix | payloads |
    moved run  | 2 | the same: compaction has moved it here from another segment |
    settled    | 3 | { queue u32 | ranges } … |
    delivered  | 4 | the same |
    exchange   | 5 | table | arguments |      deleted | 6 | table |
    queue      | 7 | table | arguments |      deleted | 8 | table |
    binding    | 9 | table | arguments |      deleted | 10 | table | arguments |
    metadata   | 11 | table | value |         deleted | 12 | table |
    checkpoint | 13 | next queue id u32 | { size u32 | record } … |
    queue index| 14 | queue u32 | stored end u64 | ranges: settled | delivered ≥ 1 time | ≥ 2 times | … |
    message ids| 15 | table | { time u64 | size u16 | message id } … |
    ids start  | 16 | journal position u64 |  in a checkpoint: message ids before this position do not count

    ranges      = | count u32 | { start u64 | end u64 } … |
    destination = | queue u32, or'ed with SPILLED_FLAG | first position u64 | expiry i64, -1 is never |

The messages of a run are stored once for all their queues. In the fixed part of a run, `origin`, `prefix` and
`payload` are sizes in bytes. That of the payload holds for every payload; if they differ, it is
VARYING_SIZES_FLAG, and the sizes of all payloads follow the destinations as u32. With a prefix they cannot
differ, because it has the header frame with the body size. Prefix and payloads are frames as they were received;
`channel` and `frame max` describe these frames, which are changed only for a connection that needs others. The
origin is exchange and routing key as in a deliver frame. `stored end` is the end of the positions that were ever
stored for the queue. A destination with SPILLED_FLAG has transient messages that were only paged out: a restart
forgets them. Tables are AMQP's, so that the arguments of a declaration keep their types.
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
METADATA, METADATA_DELETED, CHECKPOINT, QUEUE_INDEX = 11, 12, 13, 14
MESSAGE_IDS, MESSAGE_IDS_START = 15, 16

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

TABLE_ENTRIES_MAX = 1 << 20  # no limit in practice: the table was accepted when a client sent it


Destination = tuple[int, int, int]
"""Queue id, perhaps with SPILLED_FLAG; first position; expiry."""


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
    """Encode a run; `origin_bytes` are exchange and routing key as in a deliver frame."""
    count = len(payloads)
    size, sizes = len(payloads[0]), b""
    if count > 1 and not prefix:  # with a prefix all payloads have one size
        each = list(map(len, payloads))
        if each.count(size) != count:
            size, sizes = VARYING_SIZES_FLAG, pack(f">{count}I", *each)
    more = len(destinations) - 1
    queue_id, first, expires_at = destinations[0]
    start = _pack_run(
        kind,
        traits.priority,
        more,
        count,
        queue_id,
        first,
        expires_at,
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


# The parts of two records that must be equal so that their messages can be in one run; each record has one
# message for one queue. LIKE_START is kind, priority, `more`, count and queue; LIKE_REST is all further fixed fields
# except position and payload size. The bytes between the header and the payload must be equal, too.
LIKE_START, LIKE_REST, POSITION_FIELD = slice(0, 12), slice(20, 41), slice(12, 20)
RUN_HEADER_BYTES = _RUN_HEADER.size


def payload_offset(record: bytes) -> int:
    """Return where the payload begins in a record of one message for one queue; 0 for other records."""
    _, _, more, count, *_, origin_size, prefix_size, _ = _unpack_run(record)
    return 0 if more or count > 1 else int(RUN_HEADER_BYTES + origin_size + prefix_size)


def message_count(record: bytes) -> int:
    """Return the number of messages of a run."""
    count: int = unpack_run_start(record)[3]
    return count


class RunRecord(msgspec.Struct):
    """A decoded run without its destinations: a run may have 20,000, which take 13 ms, and a reader needs one."""

    traits: MessageTraits
    origin_bytes: bytes
    channel: int
    frame_max: int
    prefix: bytes
    payloads: list[bytes]


def decode_destinations(record: bytes) -> list[Destination]:
    """Return all queues of a run, and the positions in them."""
    _, _, more, _, queue_id, first, expires_at = unpack_run_start(record)
    found = [(queue_id, first, expires_at)]
    if more:
        end = _RUN_HEADER.size + more * _DESTINATION.size
        found += _DESTINATION.iter_unpack(record[_RUN_HEADER.size : end])
    return found


def find_destination(record: bytes, queue_id: int) -> Destination:
    """Return the destination of a queue.

    If the run has none for it, return that of another queue: the caller compares the queue id.
    """
    _, _, more, _, *first = unpack_run_start(record)
    if more and first[0] & ~SPILLED_FLAG != queue_id:
        # Search the last byte of each id first: few ids share it, so few destinations are decoded.
        stride = _DESTINATION.size
        column = record[RUN_HEADER_BYTES + 3 : RUN_HEADER_BYTES + more * stride : stride]
        last, at = queue_id & 0xFF, -1
        while (at := column.find(last, at + 1)) >= 0:
            found: Destination = _DESTINATION.unpack_from(record, RUN_HEADER_BYTES + at * stride)
            if found[0] & ~SPILLED_FLAG == queue_id:
                return found
    return first[0], first[1], first[2]


def decode_run(record: bytes) -> RunRecord:
    _, priority, more, count, _, _, _, *rest = _unpack_run(record)
    flags, channel, frame_max, origin_size, prefix_size, size = rest
    at = _RUN_HEADER.size + more * _DESTINATION.size
    sizes: Sequence[int] = ()
    if size == VARYING_SIZES_FLAG:
        sizes = unpack_from(f">{count}I", record, at)
        at += 4 * count
    origin_bytes = record[at : at + origin_size]
    at += origin_size
    prefix = record[at : at + prefix_size]
    at += prefix_size
    if count == 1:
        payloads = [record[at:]]
    elif sizes:
        payloads = []
        for size in sizes:
            payloads.append(record[at : at + size])
            at += size
    elif size:
        rest_of_record = memoryview(record)[at:]
        payloads = [payload for (payload,) in _payload_struct(size).iter_unpack(rest_of_record)]
    else:
        payloads = [b""] * count
    return RunRecord(
        stored_traits(bool(flags & PERSISTENT_FLAG), priority),
        origin_bytes,
        channel,
        frame_max,
        prefix,
        payloads,
    )


def body_bytes(record: bytes, low: int, high: int) -> int:
    """Return the total size of the bodies of the messages [low, high) of a run."""
    _, _, more, count, *_, origin_size, prefix_size, size = _unpack_run(record)
    at = RUN_HEADER_BYTES + more * _DESTINATION.size + origin_size
    if prefix_size:
        return (high - low) * read_body_size(record, at)
    if size != VARYING_SIZES_FLAG:
        return sum(read_body_size(record, at + size * i) for i in range(low, high))
    sizes = unpack_from(f">{count}I", record, at - origin_size)
    ends = accumulate(sizes[: high - 1], initial=at + 4 * count)
    return sum(read_body_size(record, start) for start in islice(ends, low, high))


@lru_cache(256)
def _payload_struct(size: int) -> Struct:
    return Struct(f"{size}s")


@lru_cache(512)
def stored_traits(persistent: bool, priority: int) -> MessageTraits:
    """Return the traits that still matter once a message is in a queue."""
    return MessageTraits(persistent=persistent, priority=priority)


@lru_cache(4096)
def decode_origin(origin_bytes: bytes) -> Origin:
    after = 1 + origin_bytes[0]
    return Origin(origin_bytes[1:after].decode(), origin_bytes[after + 1 :].decode())


# ── ranges ──────────────────────────────────────────────────────────────────────────────────────────

Ranges = Sequence[tuple[int, int]]


def encode_ranges(kind: int, ranges: Iterable[tuple[int, Ranges]]) -> bytes:
    parts = [bytes((kind,))]
    for queue_id, each in ranges:
        parts.append(_U32.pack(queue_id))
        parts.append(_pack_ranges(each))
    return b"".join(parts)


def decode_ranges(record: bytes) -> Iterable[tuple[int, Ranges]]:
    at = 1
    while at < len(record):
        (queue_id,) = _U32.unpack_from(record, at)
        ranges, at = _unpack_ranges(record, at + _U32.size)
        yield queue_id, ranges


def _pack_ranges(ranges: Ranges) -> bytes:
    count = len(ranges)
    return pack(f">I{2 * count}Q", count, *[bound for each in ranges for bound in each])


def _unpack_ranges(record: bytes, at: int) -> tuple[Ranges, int]:
    (count,) = _U32.unpack_from(record, at)
    at += _U32.size
    bounds = unpack_from(f">{2 * count}Q", record, at)
    return list(zip(bounds[::2], bounds[1::2], strict=True)), at + 16 * count


def encode_queue_index(queue_id: int, stored_end: int, ranges: Iterable[Ranges]) -> bytes:
    return _INDEX_HEADER.pack(QUEUE_INDEX, queue_id, stored_end) + b"".join(
        map(_pack_ranges, ranges)
    )


def decode_queue_index(record: bytes) -> tuple[int, int, list[Ranges]]:
    _, queue_id, stored_end = _INDEX_HEADER.unpack_from(record)
    found, at = [], _INDEX_HEADER.size
    while at < len(record):
        ranges, at = _unpack_ranges(record, at)
        found.append(ranges)
    return queue_id, stored_end, found


# ── tables, and records within records ─────────────────────────────────────────────────────────────────


def encode_tables(kind: int, *tables: FieldTable) -> bytes:
    """Encode tables one after the other: nested in each other, they might exceed the depth limit."""
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
        _MESSAGE_ID_HEADER.pack(time, len(message_id)) + message_id for message_id, time in ids
    ]
    return encode_tables(MESSAGE_IDS, owner) + b"".join(entries)


def decode_message_ids(record: bytes) -> tuple[FieldTable, list[tuple[bytes, int]]]:
    owner, at = decode_table(record, 1)
    ids = []
    while at < len(record):
        time, size = _MESSAGE_ID_HEADER.unpack_from(record, at)
        at += _MESSAGE_ID_HEADER.size
        ids.append((record[at : at + size], time))
        at += size
    return owner, ids


def encode_message_ids_start(position: int) -> bytes:
    return bytes((MESSAGE_IDS_START,)) + _U64.pack(position)


def decode_message_ids_start(record: bytes) -> int:
    (position,) = _U64.unpack_from(record, 1)
    return int(position)


def encode_checkpoint(next_queue_id: int, records: Iterable[bytes]) -> bytes:
    parts = [bytes((CHECKPOINT,)), _U32.pack(next_queue_id)]
    for record in records:
        parts.append(_U32.pack(len(record)))
        parts.append(record)
    return b"".join(parts)


def decode_checkpoint(record: bytes) -> tuple[int, Iterable[bytes]]:
    (next_queue_id,) = _U32.unpack_from(record, 1)
    return next_queue_id, _split_records(record, 1 + _U32.size)


def _split_records(record: bytes, at: int) -> Iterable[bytes]:
    while at < len(record):
        start = at + _U32.size
        at = start + _U32.unpack_from(record, at)[0]
        yield record[start:at]
