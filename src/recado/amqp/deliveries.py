"""The hot path of a client: recognise many deliveries at a time.

    | frame start | 60 | 60 | consumer tag | delivery tag u64 | redelivered | exchange | key | 0xCE | content |

Delivery tags of a channel are consecutive, and the other bytes before a body rarely change. So a run of
deliveries is one route, a first tag, and lists of properties and bodies. Messages of equal size repeat at a
fixed stride, so one `struct` unpacks all of them: 0.3 µs per message if the properties are equal, 0.4 µs if
only their size is (as with message ids). Other messages are scanned one by one: 1.4 µs.
"""

from functools import lru_cache
from struct import Struct

import msgspec

from .codec import decode_method
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
from .methods import BasicDeliver

_ARGUMENTS_OFFSET = 11  # behind the frame start and the class and method ids
_SHORT_RUN_COUNT = 16  # a fixed-stride run shorter than this is extended message by message
_unpack_tag = Struct(">Q").unpack_from
_unpack_start = FRAME_START.unpack_from
_unpack_header = CONTENT_HEADER_START.unpack_from


class DeliveryRoute(msgspec.Struct, frozen=True):
    """The arguments of basic.deliver that all deliveries of a run share: all but the delivery tag."""

    consumer_tag: str
    redelivered: bool
    exchange: str
    routing_key: str


class Delivered(msgspec.Struct, frozen=True):
    """A run of deliveries: message i has the tag `first_tag + i`, `properties[i]` and `bodies[i]`."""

    channel: int
    route: DeliveryRoute
    first_tag: int
    properties: list[bytes]
    bodies: list[bytes]


@lru_cache(1024)
def _compile_stride_layout(
    start: int, before: int, varying: int, between: int, body: int
) -> Struct:
    return Struct(f">{start}sQ{before}s{varying}s{between}s{body}sB")


@lru_cache(4096)
def _decode_route(before_tag: bytes, behind_tag: bytes) -> DeliveryRoute:
    """Decode the method from its bytes before and behind the tag. Errors are raised and not cached."""
    method = decode_method(before_tag + bytes(8) + behind_tag)
    assert isinstance(method, BasicDeliver)
    return make_route(method)


def make_route(method: BasicDeliver) -> DeliveryRoute:
    return DeliveryRoute(
        method.consumer_tag, method.redelivered, method.exchange, method.routing_key
    )


def _locate_content(
    data: bytes, offset: int, channel: int, single_frame_max: int
) -> tuple[int, int, int] | None:
    """Locate the message whose header frame is at `offset`: (end of the properties, body size, end of message).

    Returns None if it is not complete with at most one body frame; the reader then handles it frame by frame.
    """
    if len(data) - offset < PROPERTIES_OFFSET + 3:
        return None
    frame_type, number, size, class_id, weight, body_size = _unpack_header(data, offset)
    body_offset: int = offset + size + FRAME_OVERHEAD_BYTES
    end = body_offset + body_size + FRAME_OVERHEAD_BYTES if body_size else body_offset
    if (
        end > len(data)
        or (frame_type, number, class_id, weight) != (HEADER_FRAME_TYPE, channel, BASIC_CLASS_ID, 0)
        or size < PROPERTIES_OFFSET - FRAME_START.size + 2
        or max(size, body_size) > single_frame_max
        or data[body_offset - 1] != FRAME_END_CODE
        or data[end - 1] != FRAME_END_CODE
        or (body_size and _unpack_start(data, body_offset) != (BODY_FRAME_TYPE, channel, body_size))
    ):
        return None
    return body_offset - 1, body_size, end


def scan_deliveries(
    data: bytes,
    offset: int,
    header_offset: int,
    channel: int,
    single_frame_max: int,
    run_limit: int,
) -> tuple[Delivered, int] | None:
    """Return the run that begins with the deliver frame `data[offset:header_offset]`, and the offset behind it.

    Returns None if the first message is not complete with at most one body frame; the reader then handles it
    frame by frame. The frame is split into `start` (up to the tag), the tag, and `rest` (behind the tag).
    """
    tag_offset = offset + _ARGUMENTS_OFFSET + 1 + data[offset + _ARGUMENTS_OFFSET]
    content = _locate_content(data, header_offset, channel, single_frame_max)
    if content is None or tag_offset + 8 >= header_offset:
        return None
    properties_end, body_size, end = content
    start, rest = data[offset:tag_offset], data[tag_offset + 8 : header_offset]
    route = _decode_route(start[7:], rest[:-1])
    first_tag: int = _unpack_tag(data, tag_offset)[0]
    properties = data[header_offset + PROPERTIES_OFFSET : properties_end]
    bodies = [data[end - body_size - 1 : end - 1] if body_size else b""]
    if run_limit == 1 or not data.startswith(start, end):
        return Delivered(channel, route, first_tag, [properties], bodies), end
    before = data[tag_offset + 8 : header_offset + PROPERTIES_OFFSET]
    between = data[properties_end : end - body_size - 1]
    property_lists = [properties]
    following = end + len(start) + 8
    if data.startswith(before, following):  # the next message has the same size
        if data.startswith(properties, following + len(before)):
            before += properties + between
            _, bodies, end = _scan_fixed_stride(
                data, offset, start, before, 0, b"", body_size, first_tag, run_limit
            )
            property_lists = [properties] * len(bodies)
        else:
            varying = len(properties)
            property_lists, bodies, end = _scan_fixed_stride(
                data, offset, start, before, varying, between, body_size, first_tag, run_limit
            )
        if len(bodies) >= _SHORT_RUN_COUNT:
            return Delivered(channel, route, first_tag, property_lists, bodies), end
    method_size, rest_size = len(start) + 8 + len(rest), len(rest)
    while len(bodies) < run_limit and data.startswith(start, end):
        header_offset = end + method_size
        if (
            data[header_offset - rest_size : header_offset] != rest
            or _unpack_tag(data, end + len(start))[0] != first_tag + len(bodies)
            or (content := _locate_content(data, header_offset, channel, single_frame_max)) is None
        ):
            break
        properties_end, body_size, end = content
        property_lists.append(data[header_offset + PROPERTIES_OFFSET : properties_end])
        bodies.append(data[end - body_size - 1 : end - 1] if body_size else b"")
    return Delivered(channel, route, first_tag, property_lists, bodies), end


def _scan_fixed_stride(
    data: bytes,
    offset: int,
    start: bytes,
    before: bytes,
    varying: int,
    between: bytes,
    body_size: int,
    first_tag: int,
    run_limit: int,
) -> tuple[list[bytes], list[bytes], int]:
    """Scan messages that repeat at a fixed stride and differ only in tag, `varying` bytes and body:

        | start | tag u64 | before | varying | between | body | 0xCE |

    Returns the varying bytes, the bodies, and the offset behind the last message. The scan unpacks windows of
    16, 64, 256 … messages, so for n messages found it unpacks at most 4 n + 16.
    """
    layout = _compile_stride_layout(len(start), len(before), varying, len(between), body_size)
    stride, window = layout.size, 16
    found: list[bytes] = []
    bodies: list[bytes] = []
    while count := min((len(data) - offset) // stride, run_limit - len(bodies), window):
        piece = data[offset : offset + count * stride]
        columns = zip(*layout.iter_unpack(piece), strict=True)
        starts, tags, befores, varyings, betweens, window_bodies, ends = columns
        expected = range(first_tag + len(bodies), first_tag + len(bodies) + count)
        if (
            tags != tuple(expected)
            or starts.count(start) != count
            or befores.count(before) != count
            or betweens.count(between) != count
            or ends.count(FRAME_END_CODE) != count
        ):
            matches = (
                s == start and t == e and f == before and b == between and end == FRAME_END_CODE
                for s, t, e, f, b, end in zip(
                    starts, tags, expected, befores, betweens, ends, strict=True
                )
            )
            count = next(i for i, match in enumerate(matches) if not match)
            found += varyings[:count]
            bodies += window_bodies[:count]
            return found, bodies, offset + count * stride
        found += varyings
        bodies += window_bodies
        offset += count * stride
        window *= 4
    return found, bodies, offset
