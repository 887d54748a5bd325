"""Traffic for readers: messages as frames, and events with their runs expanded."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from recado.amqp.codec import decode_method
from recado.amqp.errors import AmqpError
from recado.amqp.events import Acked, ContentReceived, Event, InterleavedPublished, Published
from recado.amqp.frames import (
    FRAME_OVERHEAD_BYTES,
    encode_content,
    encode_method_frame,
    extract_body,
    extract_properties,
)
from recado.amqp.methods import BasicDeliver, BasicGetOk, BasicPublish, BasicReturn, Method
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.reader import FrameReader
from recado.amqp.traits import read_traits

FRAME_MAX = 4096
WHOLE = FRAME_MAX - FRAME_OVERHEAD_BYTES

PROPERTIES = tuple(
    encode_properties(each)
    for each in (
        Properties(),
        Properties(delivery_mode=2),
        Properties(message_id="1"),
        Properties(message_id="2"),
        Properties(priority=3, expiration="10"),
        Properties(headers={"CC": ["a"]}),
        Properties(content_type="text/plain", headers={"n": 1}, timestamp=1),
    )
)
PUBLISHES: tuple[Method, ...] = (
    BasicPublish("", "q"),
    BasicPublish("x", "key", mandatory=True),
    BasicPublish("", "r"),
)
TO_CLIENTS: tuple[Method, ...] = (
    BasicDeliver("c", 1, False, "", "q"),
    BasicReturn(312, "NO_ROUTE", "x", "key"),
    BasicGetOk(1, True, "", "q", 3),
)


class Message(NamedTuple):
    method: Method
    properties: bytes = PROPERTIES[0]
    body: bytes = b""
    room: int = WHOLE  # in each body frame

    def frames(self, channel: int) -> list[bytes]:
        content = encode_content(
            channel, self.properties, self.body, self.room + FRAME_OVERHEAD_BYTES
        )
        return [encode_method_frame(channel, self.method), *split(content)]

    def read_on(self, channel: int) -> object:
        """Return the events that a reader produces for it."""
        return channel, self.method, self.properties, self.body


def split(data: bytes) -> list[bytes]:
    """The single frames."""
    frames = []
    while data:
        size = int.from_bytes(data[3:7], "big") + FRAME_OVERHEAD_BYTES
        frames.append(data[:size])
        data = data[size:]
    return frames


def bytewise(chunks: Iterable[bytes]) -> list[bytes]:
    return [chunk[i : i + 1] for chunk in chunks for i in range(len(chunk))]


def messages(methods: Sequence[Method]) -> st.SearchStrategy[Message]:
    return st.builds(
        Message,
        st.sampled_from(methods),
        st.sampled_from(PROPERTIES),
        st.sampled_from((b"", b"a", b"bb", b"cc", b"12345678", b"x" * 5000)),
        st.sampled_from((WHOLE, FRAME_MAX, 1000, 3)),
    ).filter(lambda message: message.room > 3 or len(message.body) < 100)


def apart(events: Iterable[Event]) -> list[object]:
    """The events with runs taken apart, so that it does not show how the bytes were cut."""
    return list(_apart(events))


def _apart(events: Iterable[Event]) -> Iterator[object]:
    for event in events:
        match event:
            case Published(channel, method, traits, prefix, payloads):
                publish = decode_method(method[7:-1])
                for payload in payloads:
                    properties, body = _taken_apart(prefix + payload, channel)
                    assert traits is read_traits(properties)
                    yield channel, publish, properties, body
            case InterleavedPublished(channel, traits, prefix, frames, payloads):
                for frame, payload in zip(frames, payloads, strict=True):
                    yield from _apart([Published(channel, frame, traits, prefix, [payload])])
            case ContentReceived(channel, method, content):
                yield channel, method, *_taken_apart(content, channel)
            case Acked(channel, first, count):
                yield from (("ack", channel, tag) for tag in range(first, first + count))
            case _:
                yield event


def _taken_apart(content: bytes, channel: int) -> tuple[bytes, bytes]:
    properties, body = extract_properties(content), extract_body(content)
    assert content == encode_content(channel, properties, body, FRAME_MAX)
    return properties, body


def read(reader: FrameReader, chunks: Iterable[bytes]) -> tuple[list[object], bool]:
    """What a reader makes of these bytes, and whether that ends with an error.

    A publish is decoded when its route is looked up, so an error in it may occur only there.
    """
    parts: list[object] = []
    try:
        for chunk in chunks:
            for part in _apart(reader.feed(chunk)):
                parts.append(part)  # one by one, to keep the events before an error
    except AmqpError:
        return parts, True
    return parts, False
