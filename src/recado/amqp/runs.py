"""The hot path: many messages at a time, at the speed of C.

A Python broker keeps up only if it does not touch each message in Python. So messages are handled in *runs*:
consecutive publishes that are alike. A run is kept as one `head` and a list of `tails`; message i is
`head + tails[i]`. Four tricks carry the load (CPU per 16-byte message on two noisy cores):

- Messages alike to the byte but for the body (same method, same properties, same size) repeat with a fixed
  stride, so one `struct` walks them all: 0.12 µs, where a loop in Python takes 0.66. Their head is the header
  frame and the start of the body frame, and their tails are the bare bodies with the end byte.
- So do messages alike but for a routing key of the same length, whatever the order of the keys: 0.3 µs.
- Deliveries are rendered by chained C iterators: 0.19 µs.
- Acknowledgements of consecutive tags are recognised by rendering what they should look like and comparing.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct

from .errors import ProtocolError
from .events import Interleaved, Published
from .facts import Facts, facts_of, varies
from .frames import BASIC_CLASS, BODY, END, ENVELOPE, HEADER, HEADER_START, OVERHEAD, PROPERTIES_AT

PUBLISH_ID = b"\x00\x3c\x00\x28"
ACK_ID = b"\x00\x3c\x00\x50"

_size_at = Struct(">I").unpack_from
_tag = Struct(">Q").pack
_tag_at = Struct(">Q").unpack_from
_flatten = chain.from_iterable

# | 1 | channel u16 | 13 u32 | 60 u16 | 80 u16 | tag u64 | multiple u8 | 0xCE |
_ACK_SIZE = 21
_ACK_TAG = 11
_PUBLISH_ARGUMENTS = 11  # they begin behind the envelope and the method's number


@lru_cache(256)
def _strides(*sizes: int) -> Struct:
    return Struct("".join(f"{size}s" for size in sizes))


# What header frames say, by their bytes: (facts, channel, body size, how the body frame must begin). Many
# publishers send the same few, and looking one up takes 0.4 µs where reading it takes 1.1.
_headers: dict[bytes, tuple[Facts, int, int, bytes]] = {}
_HEADERS_REMEMBERED = 4096
_LONGEST_REMEMBERED = 512


def _read_header(header: bytes) -> tuple[Facts, int, int, bytes] | None:
    """None where this is not a whole header frame of a basic message: the reader will say what it is."""
    if len(header) < PROPERTIES_AT + 3:
        return None
    kind, channel, size, class_id, weight, body = HEADER_START.unpack_from(header)
    whole = len(header) == size + OVERHEAD and header[-1] == END
    if kind != HEADER or class_id != BASIC_CLASS or weight or not whole:
        return None
    properties = header[PROPERTIES_AT:-1]
    try:
        facts = facts_of(properties)
    except ProtocolError:
        return None
    start = ENVELOPE.pack(BODY, channel, body) if 0 < body < 1 << 32 else b""
    found = (facts, channel, body, start)
    if len(header) <= _LONGEST_REMEMBERED and not varies(properties):
        if len(_headers) >= _HEADERS_REMEMBERED:
            _headers.clear()
        _headers[header] = found
    return found


def _message(data: bytes, at: int, channel: int, most: int) -> tuple[Facts, int, int] | None:
    """Facts, start of the body and end of the message whose header is at `at`.

    None if it is not here whole, with at most one body frame of at most `most` bytes.
    """
    if len(data) - at < PROPERTIES_AT:
        return None
    body_at: int = at + _size_at(data, at + 3)[0] + OVERHEAD
    header = data[at:body_at]
    found = _headers.get(header) or _read_header(header)
    if found is None:
        return None
    facts, number, body, start = found
    after = body_at + body + OVERHEAD if body else body_at
    if (
        after > len(data)
        or number != channel
        or body > most
        or data[after - 1] != END
        or not data.startswith(start, body_at)
    ):
        return None
    return facts, body_at, after


def scan_publishes(
    data: bytes, at: int, header_at: int, channel: int, most: int, limit: int
) -> tuple[Published | Interleaved, int] | None:
    """The run that begins with the publish frame `data[at:header_at]`, and the offset behind it.

    None when its first message is not here whole, or not in one body frame without other frames between: the
    reader then puts it together frame by frame. The reader also sees to frames that are too large: no header
    frame longer than the `most` bytes of a body frame is taken here.
    """
    message = _message(data, header_at, channel, most)
    if message is None or message[1] - header_at > most:
        return None
    facts, body_at, after = message
    method = data[at:header_at]
    if limit == 1 or facts.alone or after == len(data):
        return Published(channel, method, facts, b"", [data[header_at:after]]), after
    if not data.startswith(method, after):
        head = data[header_at : min(body_at + 7, after)]
        methods, tails, end = _scan_interleaved(data, at, after, method, head, limit)
        if len(tails) > 1:
            return Interleaved(channel, facts, head, methods, tails), end
        return Published(channel, method, facts, b"", [data[header_at:after]]), after
    stem = data[at : min(body_at + 7, after)]
    if data.startswith(stem, after):
        tails, end = _scan_alike(data, at, after, stem, limit)
        return Published(channel, method, facts, stem[len(method) :], tails), end
    tails, end = _scan_various(data, header_at, after, method, channel, most, facts, limit)
    return Published(channel, method, facts, b"", tails), end


def _scan_alike(
    data: bytes, at: int, after: int, stem: bytes, limit: int
) -> tuple[list[bytes], int]:
    """Messages that repeat `stem` at a fixed stride, each with a body of the same size behind it.

    Windows grow, so that one that turns out not to be alike has cost no more than those before it.
    """
    stride, window = after - at, 16
    unpack = _strides(len(stem), stride - len(stem)).iter_unpack
    tails: list[bytes] = []
    while count := min((len(data) - at) // stride, limit - len(tails), window):
        piece = data[at : at + count * stride]
        stems, rests = zip(*unpack(piece), strict=True)
        ends = piece[stride - 1 :: stride]
        if stems.count(stem) != count or ends.count(END) != count:
            alike = (s == stem and e == END for s, e in zip(stems, ends, strict=True))
            count = next(i for i, yes in enumerate(alike) if not yes)
            tails += rests[:count]
            return tails, at + count * stride
        tails += rests
        at += count * stride
        window *= 4
    return tails, at


def _scan_interleaved(
    data: bytes, at: int, after: int, method: bytes, head: bytes, limit: int
) -> tuple[list[bytes], list[bytes], int]:
    """Messages whose publish frames are of the same size, and what is behind them as in `_scan_alike`."""
    stride, size, window = after - at, len(method), 4
    start = method[:_PUBLISH_ARGUMENTS]
    unpack = _strides(size, len(head), stride - size - len(head)).iter_unpack
    methods: list[bytes] = []
    tails: list[bytes] = []
    while count := min((len(data) - at) // stride, limit - len(tails), window):
        piece = data[at : at + count * stride]
        frames, heads, rests = zip(*unpack(piece), strict=True)
        ends = piece[stride - 1 :: stride]
        strange = {each for each in set(frames) if each[-1] != END or not each.startswith(start)}
        if strange or heads.count(head) != count or ends.count(END) != count:
            alike = (
                f not in strange and h == head and e == END
                for f, h, e in zip(frames, heads, ends, strict=True)
            )
            count = next(i for i, yes in enumerate(alike) if not yes)
            window = 0
        methods += frames[:count]
        tails += rests[:count]
        at += count * stride
        window *= 4
    return methods, tails, at


def _scan_various(
    data: bytes,
    header_at: int,
    after: int,
    method: bytes,
    channel: int,
    most: int,
    facts: Facts,
    limit: int,
) -> tuple[list[bytes], int]:
    """Messages that share the method frame and the facts, but not the properties or the size."""
    tails = [data[header_at:after]]
    while len(tails) < limit and data.startswith(method, after):
        header_at = after + len(method)
        message = _message(data, header_at, channel, most)
        if message is None or message[0] is not facts or message[1] - header_at > most:
            break
        after = message[2]
        tails.append(data[header_at:after])
    return tails, after


def scan_acks(data: bytes, at: int, limit: int) -> tuple[int, int]:
    """How many acks of consecutive tags, each for itself, begin at `at`: (first tag, count), count ≥ 1.

    `data[at:]` must begin with a whole ack frame that is not multiple.
    """
    first: int = _tag_at(data, at + _ACK_TAG)[0]
    start, rest = data[at : at + _ACK_TAG], b"\x00\xce"
    found, window = 1, 16
    most = min((len(data) - at) // _ACK_SIZE, limit, (1 << 64) - first)
    while count := min(most - found, window):
        tags = map(_tag, range(first + found, first + found + count))
        expected = b"".join(_flatten(zip(repeat(start), tags, repeat(rest))))
        if not data.startswith(expected, at + found * _ACK_SIZE):
            break
        found += count
        window *= 4
    return first, found


def render(prefix: bytes, suffix: bytes, first_tag: int, tails: Sequence[bytes]) -> bytes:
    """Frames that differ in a tag: `prefix + tag + suffix + tail` for each tail, tags counting up."""
    if len(tails) == 1:
        return prefix + _tag(first_tag) + suffix + tails[0]
    tags = map(_tag, range(first_tag, first_tag + len(tails)))
    return b"".join(_flatten(zip(repeat(prefix), tags, repeat(suffix), tails)))
