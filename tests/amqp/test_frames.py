"""Frames and contents: round trips, splitting, other channels, and comparison with pamqp."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, header, heartbeat
from pamqp import frame as pamqp_frame

from recado.amqp.events import ContentReceived, MethodReceived
from recado.amqp.frames import (
    FRAME_OVERHEAD_BYTES,
    HEARTBEAT_FRAME,
    encode_ack_frame,
    encode_content,
    encode_method_frame,
    extract_body,
    extract_body_start,
    extract_properties,
    find_header_end,
    move_to_channel,
    read_body_size,
    resize_frames,
)
from recado.amqp.methods import BasicAck, BasicDeliver, QueueDeclare
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.reader import FrameReader

from .strategies import unsigned
from .traffic import PROPERTIES, split

BODIES = st.binary(max_size=300)
CHANNELS = unsigned(16)
ROOMS = st.sampled_from((1, 7, 299, 300, 301, 4096))


@given(CHANNELS, st.sampled_from(PROPERTIES), BODIES, ROOMS)
def test_a_content_is_taken_apart_again(
    channel: int, props: bytes, payload: bytes, room: int
) -> None:
    content = encode_content(channel, props, payload, room + FRAME_OVERHEAD_BYTES)
    assert extract_properties(content) == props
    assert extract_body(content) == payload
    assert read_body_size(content) == len(payload)
    first, *rest = split(content)
    assert find_header_end(content) == len(first)
    assert len(rest) == -(-len(payload) // room)
    assert all(len(each) <= room + FRAME_OVERHEAD_BYTES for each in rest)
    assert {int.from_bytes(each[1:3], "big") for each in (first, *rest)} == {channel}


@given(st.sampled_from(PROPERTIES), BODIES, ROOMS, st.integers(0, 310))
def test_the_start_of_a_body(props: bytes, payload: bytes, room: int, size_max: int) -> None:
    content = encode_content(1, props, payload, room + FRAME_OVERHEAD_BYTES)
    assert extract_body_start(content, size_max) == payload[:size_max]
    if payload and room >= len(payload):  # content may end right behind the part that is read
        cut = content[: len(content) - 1 - max(len(payload) - size_max, 0)]
        assert extract_body_start(cut, size_max) == payload[:size_max]


def test_without_a_frame_max_a_body_is_one_frame() -> None:
    content = encode_content(1, PROPERTIES[0], bytes(1 << 20), 0)
    assert len(split(content)) == 2
    assert split(encode_content(1, PROPERTIES[0], b"", 0))[1:] == []


@given(CHANNELS, CHANNELS, st.sampled_from(PROPERTIES), BODIES, ROOMS, ROOMS)
def test_on_another_channel_only_the_numbers_differ(
    channel: int, other: int, props: bytes, payload: bytes, room: int, smaller: int
) -> None:
    content = encode_content(channel, props, payload, room + FRAME_OVERHEAD_BYTES)
    moved = encode_content(other, props, payload, room + FRAME_OVERHEAD_BYTES)
    assert move_to_channel(content, other) == moved
    cut = encode_content(other, props, payload, smaller + FRAME_OVERHEAD_BYTES)
    assert resize_frames(content, other, smaller + FRAME_OVERHEAD_BYTES) == cut


@given(CHANNELS, unsigned(64), st.booleans())
def test_the_quick_ack_is_the_method(channel: int, tag: int, multiple: bool) -> None:
    assert encode_ack_frame(channel, tag, multiple=multiple) == encode_method_frame(
        channel, BasicAck(tag, multiple)
    )


# ── pamqp as oracle ───────────────────────────────────────────────────────────────────────────────────────


@given(CHANNELS)
def test_pamqp_reads_our_methods(channel: int) -> None:
    data = encode_method_frame(channel, QueueDeclare("name", durable=True, arguments={"x": 1}))
    size, number, method = pamqp_frame.unmarshal(data + b"more")
    assert (size, number) == (len(data), channel)
    assert isinstance(method, commands.Queue.Declare)
    assert (method.queue, method.durable, method.arguments) == ("name", True, {"x": 1})


@given(CHANNELS, BODIES, ROOMS)
def test_pamqp_reads_our_contents(channel: int, payload: bytes, room: int) -> None:
    properties = Properties(content_type="text/plain", priority=3, message_id="m")
    data = encode_content(
        channel, encode_properties(properties), payload, room + FRAME_OVERHEAD_BYTES
    )
    _, number, head = pamqp_frame.unmarshal(data)
    assert isinstance(head, header.ContentHeader)
    assert (number, head.body_size) == (channel, len(payload))
    assert head.properties.content_type == "text/plain"
    assert (head.properties.priority, head.properties.message_id) == (3, "m")
    pieces = []
    for each in split(data)[1:]:
        _, number, piece = pamqp_frame.unmarshal(each)
        assert isinstance(piece, body.ContentBody)
        assert number == channel
        pieces.append(piece.value)
    assert b"".join(pieces) == payload


@given(CHANNELS, BODIES)
def test_we_read_contents_of_pamqp(channel: int, payload: bytes) -> None:
    properties = commands.Basic.Properties(content_type="text/plain", delivery_mode=2)
    data = pamqp_frame.marshal(commands.Basic.Deliver("tag", 7, True, "x", "key"), channel)
    data += pamqp_frame.marshal(header.ContentHeader(0, len(payload), properties), channel)
    if payload:
        data += pamqp_frame.marshal(body.ContentBody(payload), channel)
    (event,) = FrameReader().feed(data)
    assert isinstance(event, ContentReceived)
    assert (event.channel, event.method) == (channel, BasicDeliver("tag", 7, True, "x", "key"))
    assert extract_body(event.content) == payload
    read = decode_properties(extract_properties(event.content))
    assert read == Properties(content_type="text/plain", delivery_mode=2)


def test_we_read_methods_of_pamqp() -> None:
    data = pamqp_frame.marshal(commands.Queue.Declare(queue="q", durable=True), 3)
    assert list(FrameReader().feed(data)) == [MethodReceived(3, QueueDeclare("q", durable=True))]


@pytest.mark.parametrize("data", [HEARTBEAT_FRAME, pamqp_frame.marshal(heartbeat.Heartbeat(), 0)])
def test_heartbeats(data: bytes) -> None:
    assert data == HEARTBEAT_FRAME
    assert isinstance(pamqp_frame.unmarshal(data)[2], heartbeat.Heartbeat)
