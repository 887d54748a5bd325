"""Deliveries of a stream: each carries its offset, in the header `x-stream-offset`.

That makes every header frame unlike the next, but only in eight bytes. So a header frame is taken apart once
into what comes before the offset and what comes after it, and a run of messages that share it is rendered by C
iterators as any other, with one more column: 0.2 µs more per message, where encoding its properties again would
take 12.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct

from recado.amqp.frames import END_BYTE, ENVELOPE, HEADER_START, PROPERTIES_AT
from recado.amqp.properties import decode_properties, encode_properties
from recado.amqp.values import MAX_ENTRIES_GROWN

OFFSET_HEADER = "x-stream-offset"

_NAME = OFFSET_HEADER.encode()
_FIELD = bytes((len(_NAME),)) + _NAME + b"l"  # what stands before the offset in a table
_FIELD_SIZE = len(_FIELD) + 8
_CONTENT_TYPE, _CONTENT_ENCODING, _HEADERS = 0x80, 0x40, 0x20  # of the first byte of the flags
_SHORT = 512

_u64 = Struct(">Q").pack
_flatten = chain.from_iterable


def stamp(header: bytes) -> tuple[bytes, bytes]:
    """What of a header frame comes before the offset and what comes after it."""
    return _remembered(header) if len(header) <= _SHORT else _stamp(header)


def _stamp(header: bytes) -> tuple[bytes, bytes]:
    properties = header[PROPERTIES_AT:-1]
    if _NAME in properties:
        properties = _without_offset(properties)
    at = 2
    for flag in (_CONTENT_TYPE, _CONTENT_ENCODING):
        if properties[0] & flag:
            at += 1 + properties[at]
    flags = bytes((properties[0] | _HEADERS, properties[1]))
    table = b""
    after = at
    if properties[0] & _HEADERS:
        after = at + 4 + int.from_bytes(properties[at : at + 4], "big")
        table = properties[at + 4 : after]
    size = (len(table) + _FIELD_SIZE).to_bytes(4, "big")
    before = flags + properties[2:at] + size + table + _FIELD
    rest = properties[after:]
    kind, channel, _, class_id, weight, body = HEADER_START.unpack_from(header)
    payload = PROPERTIES_AT - ENVELOPE.size + len(before) + 8 + len(rest)
    start = HEADER_START.pack(kind, channel, payload, class_id, weight, body)
    return start + before, rest + END_BYTE


_remembered = lru_cache(1024)(_stamp)


def _without_offset(properties: bytes) -> bytes:
    """A message that was read from a stream and published again comes with the offset it had there."""
    decoded = decode_properties(properties, max_entries=MAX_ENTRIES_GROWN)
    if decoded.headers:
        decoded.headers.pop(OFFSET_HEADER, None)
    return encode_properties(decoded)


def render_alike(
    prefix: bytes,
    before: bytes,
    after: bytes,
    tag: int,
    offsets: Sequence[int],
    tails: Sequence[bytes],
) -> bytes:
    """Deliveries of messages with one header, tags counting up:

    `prefix | tag | before | offset | after | tail` for each tail.
    """
    tags = map(_u64, range(tag, tag + len(tails)))
    columns = zip(repeat(prefix), tags, repeat(before), map(_u64, offsets), repeat(after), tails)
    return b"".join(_flatten(columns))
