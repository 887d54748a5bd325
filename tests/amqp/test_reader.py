"""The frame reader, case by case: runs, limits, closing channels, and invalid frames."""

import struct
from collections.abc import Callable, Iterable

import pytest

from recado.amqp.errors import (
    AmqpError,
    ChannelError,
    CommandInvalidError,
    FrameError,
    FramingLostError,
    UnexpectedFrameError,
)
from recado.amqp.events import (
    Acked,
    Discarded,
    Event,
    HeartbeatReceived,
    InterleavedPublished,
    MethodReceived,
    OversizedBodyReceived,
    ProtocolHeaderReceived,
    Published,
)
from recado.amqp.frames import (
    BODY_FRAME_TYPE,
    FRAME_OVERHEAD_BYTES,
    HEADER_FRAME_TYPE,
    HEARTBEAT_FRAME,
    HEARTBEAT_FRAME_TYPE,
    METHOD_FRAME_TYPE,
    PROTOCOL_HEADER,
    encode_content,
    encode_frame,
    encode_method_frame,
)
from recado.amqp.methods import (
    BasicAck,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    Method,
    QueueDeclare,
)
from recado.amqp.reader import ChannelFramePolicy, FrameReader

from .traffic import FRAME_MAX, PROPERTIES, PUBLISHES, WHOLE, Message, apart, bytewise, read, split

# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_opens_with_eight_bytes() -> None:
    reader = FrameReader(expects_protocol_header=True)
    declare = encode_method_frame(1, QueueDeclare("q"))
    assert list(reader.feed(PROTOCOL_HEADER[:5])) == []
    assert list(reader.feed(PROTOCOL_HEADER[5:] + declare)) == [
        ProtocolHeaderReceived(PROTOCOL_HEADER),
        MethodReceived(1, QueueDeclare("q")),
    ]


def test_bytes_behind_the_last_frame_wait_for_more() -> None:
    reader = FrameReader()
    declare = encode_method_frame(1, QueueDeclare("q"))
    assert list(reader.feed(declare + declare[:9])) == [MethodReceived(1, QueueDeclare("q"))]
    assert list(reader.feed(declare[9:-1])) == []
    assert list(reader.feed(declare[-1:])) == [MethodReceived(1, QueueDeclare("q"))]


def test_a_heartbeat_says_no_more() -> None:
    assert list(FrameReader().feed(HEARTBEAT_FRAME * 2)) == [HeartbeatReceived()] * 2


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_alike_come_as_one_run() -> None:
    message = Message(PUBLISHES[0], body=b"12345678")
    (run,) = FrameReader().feed(b"".join(message.frames(1)) * 1000)
    assert isinstance(run, Published)
    assert run.payloads == [b"12345678\xce"] * 1000


def test_messages_with_the_same_traits_come_as_one_run() -> None:
    messages = (Message(PUBLISHES[0], PROPERTIES[2 + i % 2], b"x" * i) for i in range(9))
    (run,) = FrameReader().feed(
        b"".join(each for message in messages for each in message.frames(1))
    )
    assert isinstance(run, Published)
    assert (run.prefix, len(run.payloads)) == (b"", 9)


def test_messages_alike_but_for_the_route_come_interleaved() -> None:
    pair = [Message(PUBLISHES[i], body=b"12345678") for i in (0, 2)]
    data = b"".join(each for message in pair for each in message.frames(1)) * 500
    (run,) = FrameReader().feed(data + b"".join(Message(PUBLISHES[2], body=b"1").frames(1))[:-1])
    assert isinstance(run, InterleavedPublished)
    assert run.payloads == [b"12345678\xce"] * 1000
    assert run.method_frames == [pair[i].frames(1)[0] for i in (0, 1)] * 500


def test_what_is_not_alike_ends_what_is_interleaved() -> None:
    one, other = (Message(PUBLISHES[i], body=b"12345678") for i in (0, 2))
    alike = [*one.frames(1), *other.frames(1)]
    longer = Message(PUBLISHES[2], PROPERTIES[1], b"1234567")  # of the same length in all
    for strange in (other.frames(2), longer.frames(1)):
        first, second, *_ = FrameReader().feed(b"".join([*alike, *strange, *alike]))
        assert isinstance(first, InterleavedPublished)
        assert len(first.payloads) == 2
        assert isinstance(second, Published)
        assert second.channel == strange[0][2]


def test_acks_of_tags_that_count_up_come_as_one_run() -> None:
    acks = b"".join(encode_method_frame(1, BasicAck(tag, False)) for tag in range(5, 1005))
    assert list(FrameReader().feed(acks)) == [Acked(1, 5, 1000)]


def test_a_limit_of_runs_is_kept() -> None:
    message = b"".join(Message(PUBLISHES[0], body=b"12345678").frames(1))
    runs = list(FrameReader(run_limit=40).feed(message * 100))
    assert [len(run.payloads) for run in runs if isinstance(run, Published)] == [40, 40, 20]


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_frame_that_is_too_large_is_refused_when_its_size_is_read() -> None:
    """ARD2"""
    reader = FrameReader(frame_max=100)
    with pytest.raises(FrameError, match="payload of 101 bytes on channel 1 is larger"):
        list(reader.feed(encode_frame(METHOD_FRAME_TYPE, 1, bytes(101))[:7]))


@pytest.mark.parametrize("above", [0, 1, FRAME_OVERHEAD_BYTES])
def test_a_payload_may_be_as_large_as_agreed(above: int) -> None:
    """ARD2: a frame that exceeds frame-max only by its overhead is split again for the receiver."""
    reader = FrameReader(frame_max=FRAME_MAX)
    assert reader.frame_max == FRAME_MAX
    sent = Message(PUBLISHES[0], body=bytes(WHOLE + above), room=WHOLE + above)
    kept = Message(PUBLISHES[0], body=bytes(WHOLE + above))
    assert apart(reader.feed(b"".join(sent.frames(1)))) == [kept.read_on(1)]
    reader.frame_max = WHOLE + above - 1
    with pytest.raises(FrameError):
        list(reader.feed(b"".join(sent.frames(1))))


def test_a_limit_that_changes_holds_for_the_next_frame() -> None:
    reader = FrameReader(frame_max=FRAME_MAX)
    message = Message(PUBLISHES[0], body=bytes(WHOLE))
    events = reader.feed(encode_method_frame(1, ChannelFlow()) + b"".join(message.frames(1)))
    assert next(events) == MethodReceived(1, ChannelFlow())
    reader.frame_max = WHOLE - 1
    with pytest.raises(FrameError):
        next(events)


@pytest.mark.parametrize("cut", [list, bytewise])
def test_a_body_that_is_too_large_is_announced_once_and_not_kept(
    cut: Callable[[list[bytes]], Iterable[bytes]],
) -> None:
    """ARD3; what follows is read."""
    reader = FrameReader(frame_max=FRAME_MAX, body_max=9)
    large = Message(PUBLISHES[0], body=bytes(10), room=3)
    small = Message(PUBLISHES[0], body=bytes(9), room=3)
    data = b"".join((*large.frames(1), *small.frames(1), *large.frames(1)))
    events = [event for chunk in cut([data]) for event in reader.feed(chunk)]
    assert apart(events) == [
        OversizedBodyReceived(1, 10),
        small.read_on(1),
        OversizedBodyReceived(1, 10),
    ]
    assert not reader.has_partial_messages


def test_a_message_on_a_channel_that_is_not_open_is_not_kept() -> None:
    reader = FrameReader(open_channels={2})
    with pytest.raises(ChannelError, match="channel 1 is not open") as refused:
        list(reader.feed(Message(PUBLISHES[0]).frames(1)[0]))
    assert refused.value.method_ids == (60, 40)
    (run,) = reader.feed(b"".join(Message(PUBLISHES[0], body=b"x").frames(2)))
    assert isinstance(run, Published)


# ── a channel that closes ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", [ChannelOpen(), ChannelClose(), ChannelCloseOk()])
def test_only_open_and_close_are_heard_of_a_channel_that_awaits_close_ok(method: Method) -> None:
    reader = FrameReader(open_channels={2})
    reader.closing_channels.add(1)
    acks = b"".join(encode_method_frame(channel, BasicAck(1, False)) for channel in (1, 2))
    message = b"".join(Message(PUBLISHES[0], body=b"xyz", room=1).frames(1))
    assert list(reader.feed(message + acks)) == [Discarded(), Discarded(), Acked(2, 1, 1)]
    assert list(reader.feed(encode_method_frame(1, method))) == [MethodReceived(1, method)]
    assert not reader.has_partial_messages


def test_a_malformed_method_is_an_error_on_a_channel_that_awaits_close_ok() -> None:
    reader = FrameReader()
    reader.closing_channels.add(1)
    with pytest.raises(FrameError, match="truncated"):
        list(reader.feed(encode_frame(METHOD_FRAME_TYPE, 1, b"\x00\x14\x00\x28")))


@pytest.mark.parametrize("method", [ChannelClose(), ChannelCloseOk()])
def test_a_channel_may_close_in_the_middle_of_a_message_that_is_too_large(method: Method) -> None:
    """It was closed because of it."""
    reader = FrameReader(body_max=2)
    publish, header, *_ = Message(PUBLISHES[0], body=b"xyz").frames(1)
    close = encode_method_frame(1, method)
    assert list(reader.feed(publish + header + close)) == [
        OversizedBodyReceived(1, 3),
        MethodReceived(1, method),
    ]
    assert not reader.has_partial_messages


@pytest.mark.parametrize("cut", [list, bytewise])
def test_once_the_connection_closes_no_channel_is_heard(
    cut: Callable[[list[bytes]], Iterable[bytes]],
) -> None:
    """Frames sent before close-ok do not hide it, however the bytes are split."""
    reader = FrameReader(open_channels=())
    reader.channel_frame_policy = ChannelFramePolicy.IGNORE
    data = b"".join(Message(PUBLISHES[0], body=b"x").frames(1)) + ACK + ONE_BYTE_BODY
    answer = encode_method_frame(0, ConnectionCloseOk())
    events = [event for chunk in cut([data + answer]) for event in reader.feed(chunk)]
    assert events == [MethodReceived(0, ConnectionCloseOk())]
    assert not reader.has_partial_messages


def test_before_the_connection_is_open_only_channel_0_is_heard() -> None:
    reader = FrameReader()
    reader.channel_frame_policy = ChannelFramePolicy.REFUSE
    assert list(reader.feed(HEARTBEAT_FRAME)) == [HeartbeatReceived()]
    with pytest.raises(UnexpectedFrameError, match="channel 1 before the connection is open"):
        list(reader.feed(encode_frame(METHOD_FRAME_TYPE, 1, b"")))


@pytest.mark.parametrize("cut", [list, bytewise])
def test_reading_goes_on_behind_an_error(cut: Callable[[list[bytes]], Iterable[bytes]]) -> None:
    reader = FrameReader()
    close = encode_method_frame(0, ConnectionClose())
    for data in (
        encode_frame(METHOD_FRAME_TYPE, 1, b""),
        encode_frame(METHOD_FRAME_TYPE, 1, b"") + close,
    ):
        events: list[Event] = []
        errors = 0
        for chunk in cut([data]):
            try:
                events += reader.feed(chunk)
            except FrameError:
                errors += 1
                events += reader.feed(b"")
        assert errors == 1
        assert events == [MethodReceived(0, ConnectionClose())] * (
            data != encode_frame(METHOD_FRAME_TYPE, 1, b"")
        )


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────

PUBLISH = encode_method_frame(1, BasicPublish("", "q"))
ONE_BYTE = encode_content(1, PROPERTIES[0], b"x", FRAME_MAX)
ONE_BYTE_HEADER, ONE_BYTE_BODY = split(ONE_BYTE)
ACK = encode_method_frame(1, BasicAck(1, False))


def _header(class_id: int = 60, weight: int = 0, flags: int = 0) -> bytes:
    return encode_frame(HEADER_FRAME_TYPE, 1, struct.pack(">HHQH", class_id, weight, 1, flags))


REFUSED: dict[str, tuple[bytes, type[AmqpError], str]] = {
    "no end": (ACK[:-1] + b"\x00", FramingLostError, "does not end with 0xCE"),
    "unknown type": (encode_frame(9, 1, b""), FrameError, "unknown frame type 9"),
    "heartbeat on a channel": (
        encode_frame(HEARTBEAT_FRAME_TYPE, 1, b""),
        UnexpectedFrameError,
        "on channel 1 instead of 0",
    ),
    "heartbeat with content": (
        encode_frame(HEARTBEAT_FRAME_TYPE, 0, b"x"),
        FrameError,
        "payload of 1 bytes instead of 0",
    ),
    "unknown method": (
        encode_frame(METHOD_FRAME_TYPE, 1, b"\x00\x3c\x00\xff"),
        CommandInvalidError,
        "60",
    ),
    "half a method": (encode_frame(METHOD_FRAME_TYPE, 1, b"\x00\x3c"), FrameError, "method"),
    "stray header": (ONE_BYTE_HEADER, UnexpectedFrameError, "expected a method on channel 1"),
    "stray body": (ONE_BYTE_BODY, UnexpectedFrameError, "expected a method on channel 1"),
    "body first": (PUBLISH + ONE_BYTE_BODY, UnexpectedFrameError, "got a content body"),
    "two headers": (PUBLISH + ONE_BYTE_HEADER * 2, UnexpectedFrameError, "got a content header"),
    "ack for content": (
        PUBLISH + ACK,
        UnexpectedFrameError,
        "expected the content of basic.publish",
    ),
    "publish for content": (
        PUBLISH * 2,
        UnexpectedFrameError,
        "expected the content of basic.publish",
    ),
    "short header": (
        PUBLISH + encode_frame(HEADER_FRAME_TYPE, 1, bytes(11)),
        FrameError,
        "too short",
    ),
    "no flags": (
        PUBLISH + encode_frame(HEADER_FRAME_TYPE, 1, b"\x00\x3c" + bytes(10)),
        FrameError,
        "malformed",
    ),
    "foreign class": (PUBLISH + _header(class_id=10), UnexpectedFrameError, "got one of class 10"),
    "weight": (PUBLISH + _header(weight=1) + ONE_BYTE_BODY, UnexpectedFrameError, "weight"),
    "long body": (
        PUBLISH + _header() + encode_frame(BODY_FRAME_TYPE, 1, b"xx"),
        FrameError,
        "longer than its header",
    ),
    "properties": (PUBLISH + _header(flags=0x8000) + ONE_BYTE_BODY, FrameError, "malformed"),
    "flags": (PUBLISH + _header(flags=0x0001) + ONE_BYTE_BODY, FrameError, "flags"),
}


@pytest.mark.parametrize("cut", [list, bytewise])
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_named(
    case: str, cut: Callable[[list[bytes]], Iterable[bytes]]
) -> None:
    data, error, text = REFUSED[case]
    reader = FrameReader()
    with pytest.raises(error, match=text):
        [event for chunk in cut([data]) for event in reader.feed(chunk)]


def test_a_message_before_a_malformed_one_is_not_lost() -> None:
    good = Message(PUBLISHES[0], PROPERTIES[2], b"x")
    bad = good._replace(properties=b"\x80\x00\xff")
    for count in (1, 2):
        data = b"".join(good.frames(1)) * count + b"".join(bad.frames(1))
        assert read(FrameReader(frame_max=FRAME_MAX), [data]) == ([good.read_on(1)] * count, True)
