"""Encode and take apart AMQP frames.

    | type u8 | channel u16 | size u32 | payload, `size` bytes | 0xCE |

A message is a method frame, a header frame and zero or more body frames:

    header payload  | class u16 | weight u16 | body size u64 | property flags u16 | properties |

The *content* of a message is its header frame and body frames back to back, as raw bytes. Messages are stored
and forwarded in this form. A consumer receives the body bytes that the publisher sent; only the channel number
and the split of the body into frames may differ. The properties are the same bytes, too, unless the broker has
to change them: it removes BCC, fills in the address of a direct reply, and changes headers of dead letters and
delayed messages; streams and quorum queues add a header to deliveries.
"""

from collections.abc import Iterable
from struct import Struct

from .codec import encode_method
from .methods import Method

METHOD_FRAME_TYPE, HEADER_FRAME_TYPE, BODY_FRAME_TYPE, HEARTBEAT_FRAME_TYPE = 1, 2, 3, 8
FRAME_END_CODE = 0xCE
FRAME_END = b"\xce"
FRAME_OVERHEAD_BYTES = 8  # type, channel and size before the payload, the end byte behind it
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
BASIC_CLASS_ID = 60
DELIVER_METHOD_IDS = b"\x00\x3c\x00\x3c"
FRAME_MIN_BYTES = 4096  # every peer must accept frames of this size
FRAME_MAX_DEFAULT_BYTES = 131_072

FRAME_START = Struct(">BHI")
CONTENT_HEADER_START = Struct(">BHIHHQ")  # the frame start, then class, weight and body size
PROPERTIES_OFFSET = CONTENT_HEADER_START.size
_ACK = Struct(">BHIHHQ?B")
BODY_SIZE = Struct(">11xQ")  # in a content header; the bytes before it are skipped


def encode_frame(frame_type: int, channel: int, payload: bytes) -> bytes:
    """Encode a frame."""
    return FRAME_START.pack(frame_type, channel, len(payload)) + payload + FRAME_END


HEARTBEAT_FRAME = encode_frame(HEARTBEAT_FRAME_TYPE, 0, b"")


def encode_method_frame(channel: int, method: Method) -> bytes:
    """Encode a method frame."""
    return encode_frame(METHOD_FRAME_TYPE, channel, encode_method(method))


def encode_ack_frame(channel: int, delivery_tag: int, *, multiple: bool) -> bytes:
    """Encode basic.ack, the most frequent method because of confirms: 0.3 µs, 3 µs via `BasicAck`."""
    return _ACK.pack(
        METHOD_FRAME_TYPE, channel, 13, BASIC_CLASS_ID, 80, delivery_tag, multiple, FRAME_END_CODE
    )


def encode_content(
    channel: int, properties: bytes, body: bytes | bytearray, frame_max: int
) -> bytes:
    """Encode the content of a message.

    `properties` are the encoded flags and values. The body is split into frames of at most `frame_max` bytes;
    0 means no limit.
    """
    size = len(properties) + PROPERTIES_OFFSET - FRAME_START.size
    parts: list[bytes | bytearray | memoryview] = [
        CONTENT_HEADER_START.pack(HEADER_FRAME_TYPE, channel, size, BASIC_CLASS_ID, 0, len(body)),
        properties,
        FRAME_END,
    ]
    payload_max = frame_max - FRAME_OVERHEAD_BYTES if frame_max else len(body)
    source = memoryview(body) if len(body) > payload_max else body  # avoid a copy per frame
    for at in range(0, len(body), payload_max or 1):
        piece = source[at : at + payload_max]
        parts += (FRAME_START.pack(BODY_FRAME_TYPE, channel, len(piece)), piece, FRAME_END)
    return b"".join(parts)


def find_header_end(content: bytes) -> int:
    """Return the offset at which the header frame ends and the body frames begin."""
    size: int = FRAME_START.unpack_from(content)[2]
    return size + FRAME_OVERHEAD_BYTES


def extract_properties(content: bytes) -> bytes:
    """Return the encoded properties (flags and values) of a message's content."""
    return content[PROPERTIES_OFFSET : find_header_end(content) - 1]


def read_body_size(content: bytes, offset: int = 0) -> int:
    """Return the body size that the content header at `offset` announces."""
    size: int = BODY_SIZE.unpack_from(content, offset)[0]
    return size


def read_body_sizes(contents: Iterable[bytes]) -> list[int]:
    """Return the body sizes of messages: 0.1 µs for each."""
    unpack = BODY_SIZE.unpack_from
    return [unpack(content)[0] for content in contents]


def extract_body(content: bytes) -> bytes:
    """Return the body of a message's content, joined if it is split into several frames."""
    at = find_header_end(content)
    pieces = []
    while at < len(content):
        size = FRAME_START.unpack_from(content, at)[2]
        pieces.append(content[at + 7 : at + 7 + size])
        at += size + FRAME_OVERHEAD_BYTES
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def extract_body_start(content: bytes, size_max: int) -> bytes:
    """Return the first bytes of the body of a message's content, which may be cut off behind them."""
    at, left = find_header_end(content), size_max
    pieces = []
    while at < len(content) and left > 0:
        size = FRAME_START.unpack_from(content, at)[2]
        pieces.append(content[at + 7 : at + 7 + min(size, left)])
        left -= size
        at += size + FRAME_OVERHEAD_BYTES
    return b"".join(pieces)


def move_to_channel(content: bytes, channel: int) -> bytes:
    """Return the same content with another channel number; frame sizes do not change."""
    number = channel.to_bytes(2, "big")
    at = find_header_end(content)
    parts = [b"\x02", number, content[3:at]]
    while at < len(content):
        after: int = at + FRAME_START.unpack_from(content, at)[2] + FRAME_OVERHEAD_BYTES
        parts += (b"\x03", number, content[at + 3 : after])
        at = after
    return b"".join(parts)


def resize_frames(content: bytes, channel: int, frame_max: int) -> bytes:
    """Return the same content for another channel, with the body split again for a smaller `frame_max`."""
    return encode_content(channel, extract_properties(content), extract_body(content), frame_max)
