"""Traffic to read: messages as frames, and what a reader made of them with its runs taken apart."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from recado.amqp.errors import ProtocolError
from recado.amqp.events import Acked, ContentReceived, Event, MethodReceived, Published
from recado.amqp.facts import facts_of
from recado.amqp.frames import OVERHEAD, body_of, content_frames, method_frame, properties_of
from recado.amqp.methods import BasicDeliver, BasicGetOk, BasicPublish, BasicReturn, Method
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.reader import Reader

FRAME_MAX = 4096
WHOLE = FRAME_MAX - OVERHEAD

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
PUBLISHES: tuple[Method, ...] = (BasicPublish("", "q"), BasicPublish("x", "key", mandatory=True))
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
        content = content_frames(channel, self.properties, self.body, self.room + OVERHEAD)
        return [method_frame(channel, self.method), *split(content)]

    def read_on(self, channel: int) -> object:
        """What is read of it."""
        return channel, self.method, self.properties, self.body


def split(data: bytes) -> list[bytes]:
    """The single frames."""
    frames = []
    while data:
        size = int.from_bytes(data[3:7], "big") + OVERHEAD
        frames.append(data[:size])
        data = data[size:]
    return frames


def messages(methods: Sequence[Method]) -> st.SearchStrategy[Message]:
    return st.builds(
        Message,
        st.sampled_from(methods),
        st.sampled_from(PROPERTIES),
        st.sampled_from((b"", b"a", b"bb", b"cc", b"12345678", b"x" * 5000)),
        st.sampled_from((WHOLE, WHOLE, 1000, 3)),
    ).filter(lambda message: message.room > 3 or len(message.body) < 100)


def apart(events: Iterable[Event]) -> list[object]:
    """The events with runs taken apart, so that it does not show how the bytes were cut."""
    parts: list[object] = []
    for event in events:
        match event:
            case Published(channel, method, facts, head, tails):
                (publish,) = Reader().feed(method)
                assert isinstance(publish, MethodReceived)
                for tail in tails:
                    properties = properties_of(head + tail)
                    assert facts is facts_of(properties)
                    parts.append((channel, publish.method, properties, body_of(head + tail)))
            case ContentReceived(channel, method, content):
                parts.append((channel, method, properties_of(content), body_of(content)))
            case Acked(channel, first, count):
                parts += (("ack", channel, tag) for tag in range(first, first + count))
            case _:
                parts.append(event)
    return parts


def read(reader: Reader, chunks: Iterable[bytes]) -> tuple[list[object], type | None]:
    """What a reader makes of these bytes, and the error where that ends."""
    events: list[Event] = []
    error = None
    try:
        for chunk in chunks:
            for event in reader.feed(chunk):
                events.append(event)  # noqa: PERF402 - those before an error count
    except ProtocolError as raised:
        error = type(raised)
    return apart(events), error
