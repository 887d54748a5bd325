"""The hot path of a client: many deliveries at a time.

    | envelope | 60 | 60 | consumer tag | delivery tag u64 | redelivered | exchange | key | 0xCE | content |

A broker numbers the deliveries of a channel one by one, and what else is before a body seldom changes. So a
run is one route, a first tag, and the properties and bodies. Messages of one size repeat with a fixed stride,
and one `struct` walks them all: 0.3 µs for each if their properties are the same, 0.4 if these are only of one
size, as with most ids. Others are looked at one by one: 1.4 µs.
"""

from functools import lru_cache
from struct import Struct

import msgspec

from .codec import decode_method
from .frames import (
    BASIC_CLASS,
    BODY,
    END,
    ENVELOPE,
    HEADER,
    HEADER_START,
    OVERHEAD,
    PROPERTIES_AT,
)
from .methods import BasicDeliver

_ARGUMENTS = 11  # behind the envelope and the method's number
_FEW = 16  # messages; such a run is too short to end here
_tag_at = Struct(">Q").unpack_from


class DeliveryRoute(msgspec.Struct, frozen=True):
    """To whom deliveries go, and by which way their messages came."""

    consumer_tag: str
    redelivered: bool
    exchange: str
    routing_key: str


class Delivered(msgspec.Struct, frozen=True):
    """A run of deliveries: message i has the tag `first + i`, `properties[i]` and `bodies[i]`."""

    channel: int
    route: DeliveryRoute
    first: int
    properties: list[bytes]
    bodies: list[bytes]


@lru_cache(1024)
def _strides(start: int, before: int, free: int, behind: int, body: int) -> Struct:
    return Struct(f">{start}sQ{before}s{free}s{behind}s{body}sB")


@lru_cache(4096)
def _route(before_tag: bytes, behind_tag: bytes) -> DeliveryRoute:
    """The method without its envelope and tag; a fault in it is raised, and not remembered."""
    method = decode_method(before_tag + bytes(8) + behind_tag)
    assert isinstance(method, BasicDeliver)
    return route_of(method)


def route_of(method: BasicDeliver) -> DeliveryRoute:
    return DeliveryRoute(
        method.consumer_tag, method.redelivered, method.exchange, method.routing_key
    )


def _content(data: bytes, at: int, channel: int, most: int) -> tuple[int, int, int] | None:
    """Where the properties of the message whose header is at `at` end, the size of its body, and its end.

    None if it is not here whole, with at most one body frame; the reader will say what it is.
    """
    if len(data) - at < PROPERTIES_AT + 3:
        return None
    kind, number, size, class_id, weight, body = HEADER_START.unpack_from(data, at)
    body_at: int = at + size + OVERHEAD
    after = body_at + body + OVERHEAD if body else body_at
    if (
        after > len(data)
        or (kind, number, class_id, weight) != (HEADER, channel, BASIC_CLASS, 0)
        or size < PROPERTIES_AT - ENVELOPE.size + 2
        or max(size, body) > most
        or data[body_at - 1] != END
        or data[after - 1] != END
        or (body and ENVELOPE.unpack_from(data, body_at) != (BODY, channel, body))
    ):
        return None
    return body_at - 1, body, after


def scan_deliveries(
    data: bytes, at: int, header_at: int, channel: int, most: int, limit: int
) -> tuple[Delivered, int] | None:
    """The run that begins with the deliver frame `data[at:header_at]`, and the offset behind it.

    None where its first message does not fit: the reader then puts it together frame by frame.
    """
    tag_at = at + _ARGUMENTS + 1 + data[at + _ARGUMENTS]
    content = _content(data, header_at, channel, most)
    if content is None or tag_at + 8 >= header_at:
        return None
    properties_end, body, after = content
    start, behind = data[at:tag_at], data[tag_at + 8 : header_at]
    route = _route(start[7:], behind[:-1])
    first: int = _tag_at(data, tag_at)[0]
    properties = data[header_at + PROPERTIES_AT : properties_end]
    bodies = [data[after - body - 1 : after - 1] if body else b""]
    if limit == 1 or not data.startswith(start, after):
        return Delivered(channel, route, first, [properties], bodies), after
    before = data[tag_at + 8 : header_at + PROPERTIES_AT]
    between = data[properties_end : after - body - 1]
    each = [properties]
    following = after + len(start) + 8
    if data.startswith(before, following):  # its size is the same
        if data.startswith(properties, following + len(before)):
            before += properties + between
            _, bodies, after = _scan_alike(data, at, start, before, 0, b"", body, first, limit)
            each = [properties] * len(bodies)
        else:
            each, bodies, after = _scan_alike(
                data, at, start, before, len(properties), between, body, first, limit
            )
        if len(bodies) >= _FEW:
            return Delivered(channel, route, first, each, bodies), after
    method, behind_size = len(start) + 8 + len(behind), len(behind)
    while len(bodies) < limit and data.startswith(start, after):
        header_at = after + method
        if (
            data[header_at - behind_size : header_at] != behind
            or _tag_at(data, after + len(start))[0] != first + len(bodies)
            or (content := _content(data, header_at, channel, most)) is None
        ):
            break
        properties_end, body, after = content
        each.append(data[header_at + PROPERTIES_AT : properties_end])
        bodies.append(data[after - body - 1 : after - 1] if body else b"")
    return Delivered(channel, route, first, each, bodies), after


def _scan_alike(
    data: bytes,
    at: int,
    start: bytes,
    before: bytes,
    free: int,
    behind: bytes,
    body: int,
    first: int,
    limit: int,
) -> tuple[list[bytes], list[bytes], int]:
    """Those of one size: `free` bytes of each, its body, and the offset behind them all.

    Windows grow, so that one that turns out not to be alike has cost no more than those before it.
    """
    layout = _strides(len(start), len(before), free, len(behind), body)
    stride, window = layout.size, 16
    found: list[bytes] = []
    bodies: list[bytes] = []
    while count := min((len(data) - at) // stride, limit - len(bodies), window):
        piece = data[at : at + count * stride]
        columns = zip(*layout.iter_unpack(piece), strict=True)
        starts, tags, befores, frees, behinds, some, ends = columns
        expected = range(first + len(bodies), first + len(bodies) + count)
        if (
            tags != tuple(expected)
            or starts.count(start) != count
            or befores.count(before) != count
            or behinds.count(behind) != count
            or ends.count(END) != count
        ):
            alike = (
                s == start and t == e and f == before and b == behind and end == END
                for s, t, e, f, b, end in zip(
                    starts, tags, expected, befores, behinds, ends, strict=True
                )
            )
            count = next(i for i, yes in enumerate(alike) if not yes)
            return found + list(frees[:count]), bodies + list(some[:count]), at + count * stride
        found += frees
        bodies += some
        at += count * stride
        window *= 4
    return found, bodies, at
