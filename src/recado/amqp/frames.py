"""Frames: the envelopes that everything travels in.

    | kind u8 | channel u16 | size u32 | payload, `size` bytes | 0xCE |

A message with content is a method frame, a header frame and no, one or several body frames:

    header payload  | class u16 | weight u16 | body size u64 | property flags u16 | properties |

Here a message's *content* is its header and body frames, back to back, as raw bytes: that is how messages are
kept and passed on, so that what a publisher sent is what a consumer gets, to the byte.
"""

from struct import Struct

from .codec import encode_method
from .methods import Method

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = 0xCE
END_BYTE = b"\xce"
OVERHEAD = 8  # kind, channel and size before a payload, the end byte behind it
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
BASIC_CLASS = 60
DELIVER_ID = b"\x00\x3c\x00\x3c"
FRAME_MIN = 4096  # every peer must accept frames of this size
FRAME_DEFAULT = 131_072

ENVELOPE = Struct(">BHI")
HEADER_START = Struct(">BHIHHQ")  # the envelope, class, weight, body size
PROPERTIES_AT = HEADER_START.size
_ACK = Struct(">BHIHHQ?B")


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return ENVELOPE.pack(kind, channel, len(payload)) + payload + END_BYTE


HEARTBEAT_FRAME = frame(HEARTBEAT, 0, b"")


def method_frame(channel: int, method: Method) -> bytes:
    return frame(METHOD, channel, encode_method(method))


def ack_frame(channel: int, tag: int, *, multiple: bool) -> bytes:
    """basic.ack, which confirms make the most frequent method of all: 0.3 µs here, 3 by its class."""
    return _ACK.pack(METHOD, channel, 13, BASIC_CLASS, 80, tag, multiple, END)


def content_frames(
    channel: int, properties: bytes, body: bytes | bytearray, frame_max: int
) -> bytes:
    """A message's content; `properties` are the flags and the property list as on the wire."""
    size = len(properties) + PROPERTIES_AT - ENVELOPE.size
    parts: list[bytes | bytearray | memoryview] = [
        HEADER_START.pack(HEADER, channel, size, BASIC_CLASS, 0, len(body)),
        properties,
        END_BYTE,
    ]
    room = frame_max - OVERHEAD if frame_max else len(body)
    whole = memoryview(body) if len(body) > room else body  # in several frames: do not copy each
    for at in range(0, len(body), room or 1):
        piece = whole[at : at + room]
        parts += (ENVELOPE.pack(BODY, channel, len(piece)), piece, END_BYTE)
    return b"".join(parts)


def header_end(content: bytes) -> int:
    """Where the header frame ends and the body begins."""
    size: int = ENVELOPE.unpack_from(content)[2]
    return size + OVERHEAD


def properties_of(content: bytes) -> bytes:
    return content[PROPERTIES_AT : header_end(content) - 1]


def body_size_of(content: bytes, at: int = 0) -> int:
    """The content may begin behind other bytes."""
    size: int = HEADER_START.unpack_from(content, at)[5]
    return size


def body_of(content: bytes) -> bytes:
    at = header_end(content)
    pieces = []
    while at < len(content):
        size = ENVELOPE.unpack_from(content, at)[2]
        pieces.append(content[at + 7 : at + 7 + size])
        at += size + OVERHEAD
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def on_channel(content: bytes, channel: int) -> bytes:
    """The same content on another channel; frames keep their sizes."""
    number = channel.to_bytes(2, "big")
    at = header_end(content)
    parts = [b"\x02", number, content[3:at]]
    while at < len(content):
        after: int = at + ENVELOPE.unpack_from(content, at)[2] + OVERHEAD
        parts += (b"\x03", number, content[at + 3 : after])
        at = after
    return b"".join(parts)


def within(content: bytes, channel: int, frame_max: int) -> bytes:
    """The same content on another channel, its body cut again for a smaller `frame_max`."""
    return content_frames(channel, properties_of(content), body_of(content), frame_max)
