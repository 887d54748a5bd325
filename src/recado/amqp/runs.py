"""The hot path: many messages at a time, at the speed of C.

A Python broker keeps up only if it does not touch each message in Python. So messages are handled in *runs*:
consecutive publishes that are alike. A run is kept as one `prefix` and a list of `payloads`; message i is
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

from .errors import AmqpError
from .events import InterleavedPublished, Published
from .frames import (
    BASIC_CLASS_ID,
    BODY_FRAME_TYPE,
    CONTENT_HEADER_START,
    FRAME_END_CODE,
    FRAME_OVERHEAD_BYTES,
    FRAME_START,
    HEADER_FRAME_TYPE,
    PROPERTIES_OFFSET,
)
from .traits import MessageTraits, has_unique_fields, read_traits

PUBLISH_METHOD_IDS = b"\x00\x3c\x00\x28"
ACK_METHOD_IDS = b"\x00\x3c\x00\x50"

_unpack_size = Struct(">I").unpack_from
_pack_tag = Struct(">Q").pack
_unpack_tag = Struct(">Q").unpack_from
_flatten = chain.from_iterable

# | 1 | channel u16 | 13 u32 | 60 u16 | 80 u16 | tag u64 | multiple u8 | 0xCE |
_ACK_FRAME_BYTES = 21
_ACK_TAG_OFFSET = 11
_PUBLISH_ARGUMENTS_OFFSET = 11  # they begin behind the envelope and the method's number


@lru_cache(256)
def _compile_stride_layout(*sizes: int) -> Struct:
    return Struct("".join(f"{size}s" for size in sizes))


# What header frames say, by their bytes: (facts, channel, body size, how the body frame must begin). Many
# publishers send the same few, and looking one up takes 0.4 µs where reading it takes 1.1.
_header_cache: dict[bytes, tuple[MessageTraits, int, int, bytes]] = {}
_HEADER_CACHE_COUNT = 4096
_CACHED_HEADER_MAX_BYTES = 512


def _parse_header(header: bytes) -> tuple[MessageTraits, int, int, bytes] | None:
    """None where this is not a whole header frame of a basic message: the reader will say what it is."""
    if len(header) < PROPERTIES_OFFSET + 3:
        return None
    kind, channel, size, class_id, weight, body = CONTENT_HEADER_START.unpack_from(header)
    whole = len(header) == size + FRAME_OVERHEAD_BYTES and header[-1] == FRAME_END_CODE
    if kind != HEADER_FRAME_TYPE or class_id != BASIC_CLASS_ID or weight or not whole:
        return None
    properties = header[PROPERTIES_OFFSET:-1]
    try:
        traits = read_traits(properties)
    except AmqpError:
        return None
    start = FRAME_START.pack(BODY_FRAME_TYPE, channel, body) if 0 < body < 1 << 32 else b""
    found = (traits, channel, body, start)
    if len(header) <= _CACHED_HEADER_MAX_BYTES and not has_unique_fields(properties):
        if len(_header_cache) >= _HEADER_CACHE_COUNT:
            _header_cache.clear()
        _header_cache[header] = found
    return found


def _locate_message(
    data: bytes, offset: int, channel: int, single_frame_max: int
) -> tuple[MessageTraits, int, int] | None:
    """Facts, start of the body and end of the message whose header is at `at`.

    None if it is not here whole, with at most one body frame of at most `most` bytes.
    """
    if len(data) - offset < PROPERTIES_OFFSET:
        return None
    body_at: int = offset + _unpack_size(data, offset + 3)[0] + FRAME_OVERHEAD_BYTES
    header = data[offset:body_at]
    found = _header_cache.get(header) or _parse_header(header)
    if found is None:
        return None
    traits, number, body, start = found
    after = body_at + body + FRAME_OVERHEAD_BYTES if body else body_at
    if (
        after > len(data)
        or number != channel
        or body > single_frame_max
        or data[after - 1] != FRAME_END_CODE
        or not data.startswith(start, body_at)
    ):
        return None
    return traits, body_at, after


def scan_publishes(
    data: bytes,
    offset: int,
    header_offset: int,
    channel: int,
    single_frame_max: int,
    run_limit: int,
) -> tuple[Published | InterleavedPublished, int] | None:
    """The run that begins with the publish frame `data[at:header_at]`, and the offset behind it.

    None when its first message is not here whole, or not in one body frame without other frames between: the
    reader then puts it together frame by frame. The reader also sees to frames that are too large: no header
    frame longer than the `most` bytes of a body frame is taken here.
    """
    message = _locate_message(data, header_offset, channel, single_frame_max)
    if message is None or message[1] - header_offset > single_frame_max:
        return None
    traits, body_at, after = message
    method = data[offset:header_offset]
    if run_limit == 1 or traits.unbatchable or after == len(data):
        return Published(channel, method, traits, b"", [data[header_offset:after]]), after
    if not data.startswith(method, after):
        prefix = data[header_offset : min(body_at + 7, after)]
        methods, payloads, end = _scan_interleaved(data, offset, after, method, prefix, run_limit)
        if len(payloads) > 1:
            return InterleavedPublished(channel, traits, prefix, methods, payloads), end
        return Published(channel, method, traits, b"", [data[header_offset:after]]), after
    stem = data[offset : min(body_at + 7, after)]
    if data.startswith(stem, after):
        payloads, end = _scan_fixed_stride(data, offset, after, stem, run_limit)
        return Published(channel, method, traits, stem[len(method) :], payloads), end
    payloads, end = _scan_mixed_sizes(
        data, header_offset, after, method, channel, single_frame_max, traits, run_limit
    )
    return Published(channel, method, traits, b"", payloads), end


def _scan_fixed_stride(
    data: bytes, offset: int, after: int, stem: bytes, run_limit: int
) -> tuple[list[bytes], int]:
    """Messages that repeat `stem` at a fixed stride, each with a body of the same size behind it.

    Windows grow, so that one that turns out not to be alike has cost no more than those before it.
    """
    stride, window = after - offset, 16
    unpack = _compile_stride_layout(len(stem), stride - len(stem)).iter_unpack
    payloads: list[bytes] = []
    while count := min((len(data) - offset) // stride, run_limit - len(payloads), window):
        piece = data[offset : offset + count * stride]
        stems, rests = zip(*unpack(piece), strict=True)
        ends = piece[stride - 1 :: stride]
        if stems.count(stem) != count or ends.count(FRAME_END_CODE) != count:
            alike = (s == stem and e == FRAME_END_CODE for s, e in zip(stems, ends, strict=True))
            count = next(i for i, yes in enumerate(alike) if not yes)
            payloads += rests[:count]
            return payloads, offset + count * stride
        payloads += rests
        offset += count * stride
        window *= 4
    return payloads, offset


def _scan_interleaved(
    data: bytes, offset: int, after: int, method: bytes, prefix: bytes, run_limit: int
) -> tuple[list[bytes], list[bytes], int]:
    """Messages whose publish frames are of the same size, and what is behind them as in `_scan_fixed_stride`."""
    stride, size, window = after - offset, len(method), 4
    start = method[:_PUBLISH_ARGUMENTS_OFFSET]
    unpack = _compile_stride_layout(size, len(prefix), stride - size - len(prefix)).iter_unpack
    method_frames: list[bytes] = []
    payloads: list[bytes] = []
    while count := min((len(data) - offset) // stride, run_limit - len(payloads), window):
        piece = data[offset : offset + count * stride]
        frames, heads, rests = zip(*unpack(piece), strict=True)
        ends = piece[stride - 1 :: stride]
        strange = {
            each for each in set(frames) if each[-1] != FRAME_END_CODE or not each.startswith(start)
        }
        if strange or heads.count(prefix) != count or ends.count(FRAME_END_CODE) != count:
            alike = (
                f not in strange and h == prefix and e == FRAME_END_CODE
                for f, h, e in zip(frames, heads, ends, strict=True)
            )
            count = next(i for i, yes in enumerate(alike) if not yes)
            window = 0
        method_frames += frames[:count]
        payloads += rests[:count]
        offset += count * stride
        window *= 4
    return method_frames, payloads, offset


def _scan_mixed_sizes(
    data: bytes,
    header_offset: int,
    after: int,
    method: bytes,
    channel: int,
    single_frame_max: int,
    traits: MessageTraits,
    run_limit: int,
) -> tuple[list[bytes], int]:
    """Messages that share the method frame and the facts, but not the properties or the size."""
    payloads = [data[header_offset:after]]
    while len(payloads) < run_limit and data.startswith(method, after):
        header_offset = after + len(method)
        message = _locate_message(data, header_offset, channel, single_frame_max)
        if (
            message is None
            or message[0] is not traits
            or message[1] - header_offset > single_frame_max
        ):
            break
        after = message[2]
        payloads.append(data[header_offset:after])
    return payloads, after


def scan_acks(data: bytes, offset: int, run_limit: int) -> tuple[int, int]:
    """How many acks of consecutive tags, each for itself, begin at `at`: (first tag, count), count ≥ 1.

    `data[at:]` must begin with a whole ack frame that is not multiple.
    """
    first: int = _unpack_tag(data, offset + _ACK_TAG_OFFSET)[0]
    start, rest = data[offset : offset + _ACK_TAG_OFFSET], b"\x00\xce"
    found, window = 1, 16
    most = min((len(data) - offset) // _ACK_FRAME_BYTES, run_limit, (1 << 64) - first)
    while count := min(most - found, window):
        tags = map(_pack_tag, range(first + found, first + found + count))
        expected = b"".join(_flatten(zip(repeat(start), tags, repeat(rest))))
        if not data.startswith(expected, offset + found * _ACK_FRAME_BYTES):
            break
        found += count
        window *= 4
    return first, found


def render_deliveries(
    prefix: bytes, suffix: bytes, first_tag: int, payloads: Sequence[bytes]
) -> bytes:
    """Frames that differ in a tag: `prefix + tag + suffix + tail` for each tail, tags counting up."""
    if len(payloads) == 1:
        return prefix + _pack_tag(first_tag) + suffix + payloads[0]
    tags = map(_pack_tag, range(first_tag, first_tag + len(payloads)))
    return b"".join(_flatten(zip(repeat(prefix), tags, repeat(suffix), payloads)))
