"""The receiving half of a connection, for clients and servers: bytes in, events out.

`feed` takes the bytes of one socket read and yields events. Publishes, deliveries and acks are recognised in
runs (`runs.py`, `deliveries.py`). Messages that do not fit a run (a body in several frames, frames of other
channels in between, the end of the buffer) are assembled frame by frame, per channel. The reader buffers at
most one incomplete frame, the frames of incomplete messages that have arrived, and after an error the rest of
the read.

ARD1  Events do not depend on how the bytes are split into reads (except that a run may be split into several).
ARD2  A payload larger than `frame_max` is refused when its size is read, before it has arrived. As in RabbitMQ,
     the eight bytes around a payload do not count here. The frames that the reader writes, in the content of an
     event, are at most `frame_max` bytes long including these eight.
ARD3  A body larger than `body_max` is reported once (`OversizedBodyReceived`) and never buffered.
"""

from collections.abc import Container, Iterator
from enum import Enum, auto

from .codec import decode_method, find_method_type
from .deliveries import Delivered, make_route, scan_deliveries
from .errors import AmqpError, ChannelError, FrameError, FramingLostError, UnexpectedFrameError
from .events import (
    Acked,
    ContentReceived,
    Discarded,
    Event,
    HeartbeatReceived,
    MethodReceived,
    OversizedBodyReceived,
    ProtocolHeaderReceived,
    Published,
)
from .frames import (
    BASIC_CLASS_ID,
    BODY_FRAME_TYPE,
    DELIVER_METHOD_IDS,
    FRAME_END_CODE,
    FRAME_MAX_DEFAULT_BYTES,
    FRAME_OVERHEAD_BYTES,
    FRAME_START,
    HEADER_FRAME_TYPE,
    HEARTBEAT_FRAME_TYPE,
    METHOD_FRAME_TYPE,
    PROPERTIES_OFFSET,
    encode_content,
    encode_frame,
)
from .methods import BasicDeliver, BasicPublish, ChannelClose, ChannelCloseOk, ChannelOpen, Method
from .runs import ACK_METHOD_IDS, PUBLISH_METHOD_IDS, scan_acks, scan_publishes
from .traits import DEFAULT_TRAITS, read_traits

_unpack_frame_start = FRAME_START.unpack_from
_FRAME_START_BYTES = 7
_CONTENT_HEADER_MIN_BYTES = PROPERTIES_OFFSET - FRAME_START.size  # class, weight and body size


class ChannelFramePolicy(Enum):
    """How frames on other channels than 0 are treated while only channel 0 may be used."""

    REFUSE = auto()  # the connection is not open yet
    IGNORE = auto()  # the connection is closing


class _PartialMessage:
    """A message of which some frames have not arrived yet."""

    __slots__ = ("body", "method", "method_payload", "missing_bytes", "properties", "traits")

    def __init__(self, method: Method, payload: bytes) -> None:
        self.method = method
        self.method_payload = payload
        self.properties: bytes | None = None
        self.traits = DEFAULT_TRAITS
        self.body: bytearray | None = bytearray()  # None: too large, discarded
        self.missing_bytes = 0

    @property
    def method_ids(self) -> tuple[int, int]:
        return self.method.class_id, self.method.method_id


class FrameReader:
    """Converts the bytes of one connection to events."""

    def __init__(
        self,
        *,
        frame_max: int = FRAME_MAX_DEFAULT_BYTES,
        body_max: int = 16 << 20,
        run_limit: int = 1 << 30,
        expects_protocol_header: bool = False,
        open_channels: Container[int] | None = None,
        batch_deliveries: bool = False,
    ) -> None:
        """Create a reader.

        `frame_max` and `body_max` are limits in bytes, `run_limit` is the maximum number of messages of a run.
        `expects_protocol_header` makes the first eight bytes a `ProtocolHeaderReceived` (servers). If
        `open_channels` is given, the reader does not assemble messages on other channels frame by frame, but
        raises `ChannelError`; runs are reported on any channel. With `batch_deliveries` (clients), deliveries
        are reported in runs as `Delivered` instead of one `ContentReceived` each.
        """
        self.body_max = body_max
        self.frame_max = frame_max
        self.run_limit = run_limit
        # Channels that await close-ok; only channel.open, close and close-ok are not discarded on them.
        self.closing_channels: set[int] = set()
        self.channel_frame_policy: ChannelFramePolicy | None = None  # None: frames are accepted
        self._open_channels = open_channels
        self._batches_deliveries = batch_deliveries
        self._expects_protocol_header = expects_protocol_header
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._needed_bytes = 0
        self._partial_messages: dict[int, _PartialMessage] = {}
        self.last_method_bytes = 0
        """The payload size of the last method that was not part of a run."""

    @property
    def frame_max(self) -> int:
        """The largest payload of a frame, in bytes."""
        return self._frame_max

    @frame_max.setter
    def frame_max(self, size: int) -> None:
        self._frame_max = size
        # Content within this limit is forwarded unchanged; a larger body is assembled and split again.
        self._single_frame_max = min(size - FRAME_OVERHEAD_BYTES, self.body_max)

    @property
    def has_partial_messages(self) -> bool:
        """Whether frames of incomplete messages are buffered."""
        return bool(self._partial_messages)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete.

        The caller handles each event before it asks for the next, because handling one may change `frame_max`,
        `closing_channels` or `channel_frame_policy`. After an error, `feed(b"")` continues after the frame
        that caused it, unless the error is a `FramingLostError`.
        """
        if self._chunks:
            self._chunks.append(data)
            self._buffered_bytes += len(data)
            if self._buffered_bytes < self._needed_bytes:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        offset, end = 0, len(data)
        needed_bytes = _FRAME_START_BYTES
        if self._expects_protocol_header:
            if end < 8:
                self._buffer_rest(data, 0, 8)
                return
            self._expects_protocol_header = False
            yield ProtocolHeaderReceived(data[:8])
            offset = 8
        while end - offset >= _FRAME_START_BYTES:
            frame_type, channel, size = _unpack_frame_start(data, offset)
            frame_end = offset + size + FRAME_OVERHEAD_BYTES
            if size > self._frame_max:
                raise FramingLostError(
                    f"payload of {size} bytes on channel {channel} is larger than frame-max "
                    f"{self._frame_max}"
                )
            if frame_end > end:
                needed_bytes = frame_end - offset
                break
            if data[frame_end - 1] != FRAME_END_CODE:
                raise FramingLostError(f"frame on channel {channel} does not end with 0xCE")
            try:
                if self.channel_frame_policy is not None and channel:
                    if self.channel_frame_policy is ChannelFramePolicy.REFUSE:
                        raise UnexpectedFrameError(
                            f"frame on channel {channel} before the connection is open"
                        )
                    offset = frame_end
                    continue
                event: Event | None = None
                if frame_type == METHOD_FRAME_TYPE:
                    method_ids = data[offset + 7 : offset + 11]
                    if method_ids == PUBLISH_METHOD_IDS and channel not in self._partial_messages:
                        run = scan_publishes(
                            data, offset, frame_end, channel, self._single_frame_max, self.run_limit
                        )
                        if run is not None:
                            event, offset = run
                    elif method_ids == ACK_METHOD_IDS and size == 13 and not data[frame_end - 2]:
                        first_tag, count = scan_acks(data, offset, self.run_limit)
                        if channel not in self._partial_messages:
                            event = Acked(channel, first_tag, count)
                            offset += count * (size + FRAME_OVERHEAD_BYTES)
                    elif (
                        method_ids == DELIVER_METHOD_IDS
                        and self._batches_deliveries
                        and channel not in self._partial_messages
                    ):
                        deliveries = scan_deliveries(
                            data, offset, frame_end, channel, self._single_frame_max, self.run_limit
                        )
                        if deliveries is not None:
                            event, offset = deliveries
                if event is None:
                    offset = frame_end
                    event = self._read_frame(
                        frame_type, channel, data[frame_end - size - 1 : frame_end - 1]
                    )
            except AmqpError:
                self._buffer_rest(data, frame_end, 0)
                raise
            if event is not None:
                if self.closing_channels and channel in self.closing_channels:
                    event = self._discard_unless_close(event)
                yield event
        if offset < end:
            self._buffer_rest(data, offset, needed_bytes)

    def _buffer_rest(self, data: bytes, offset: int, needed_bytes: int) -> None:
        """Buffer the data from `offset` on, until `needed_bytes` are there; 0: until the next call of `feed`."""
        self._buffered_bytes = len(data) - offset
        self._needed_bytes = needed_bytes
        self._chunks.append(data[offset:])

    @staticmethod
    def _discard_unless_close(event: Event) -> Event:
        """Return the event if it opens or closes its channel, which awaits close-ok; else `Discarded`."""
        match event:
            case MethodReceived(_, ChannelOpen() | ChannelClose() | ChannelCloseOk()):
                return event
            case _:
                return Discarded()

    def _read_frame(self, frame_type: int, channel: int, payload: bytes) -> Event | None:
        """Handle a frame that is not part of a run; return the event that it completes, if any."""
        if frame_type == METHOD_FRAME_TYPE:
            return self._read_method(channel, payload)
        if frame_type == HEARTBEAT_FRAME_TYPE:
            if payload:
                raise FrameError(f"heartbeat with a payload of {len(payload)} bytes instead of 0")
            if channel:
                raise UnexpectedFrameError(f"heartbeat on channel {channel} instead of 0")
            return HeartbeatReceived()
        if frame_type == HEADER_FRAME_TYPE:
            return self._read_content_header(channel, payload)
        if frame_type == BODY_FRAME_TYPE:
            return self._read_content_body(channel, payload)
        raise FrameError(f"unknown frame type {frame_type} on channel {channel}")

    def _read_method(self, channel: int, payload: bytes) -> Event | None:
        partial = self._partial_messages.get(channel)
        if partial is not None:
            method_type = find_method_type(payload)
            # After an oversized body was reported, its channel may close before the last body frame arrives.
            if partial.body is not None or method_type not in (ChannelClose, ChannelCloseOk):
                raise UnexpectedFrameError(
                    f"expected the content of {partial.method.name} on channel {channel}, got "
                    f"{method_type.name}",
                    partial.method_ids,
                )
            del self._partial_messages[channel]
        method = decode_method(payload)
        self.last_method_bytes = len(payload)
        if not method.has_content:
            return MethodReceived(channel, method)
        partial = _PartialMessage(method, payload)
        is_open = self._open_channels is None or channel in self._open_channels
        if not is_open and channel not in self.closing_channels:
            raise ChannelError(
                f"channel {channel} is not open: expected 'channel.open'", partial.method_ids
            )
        self._partial_messages[channel] = partial
        return None

    def _read_content_header(self, channel: int, payload: bytes) -> Event | None:
        if len(payload) < _CONTENT_HEADER_MIN_BYTES:
            raise FrameError(f"content header on channel {channel} is too short")
        partial = self._partial_messages.get(channel)
        if partial is None:
            raise UnexpectedFrameError(
                f"expected a method on channel {channel}, got a content header"
            )
        if partial.properties is not None:
            raise UnexpectedFrameError(
                f"expected a content body on channel {channel}, got a content header",
                partial.method_ids,
            )
        class_id = int.from_bytes(payload[:2], "big")
        if class_id != BASIC_CLASS_ID or payload[2:4] != b"\x00\x00":
            raise UnexpectedFrameError(
                f"expected a content header of class {BASIC_CLASS_ID} without weight on channel "
                f"{channel}, got one of class {class_id}",
                partial.method_ids,
            )
        size = int.from_bytes(payload[4:12], "big")
        partial.properties = payload[12:]
        if not self._batches_deliveries:  # only servers need traits
            try:
                partial.traits = read_traits(partial.properties)
            except AmqpError as error:
                error.method_ids = partial.method_ids
                raise
        partial.missing_bytes = size
        if size > self.body_max:
            partial.body = None
            return OversizedBodyReceived(channel, size)
        return self._complete_message(channel, partial) if not size else None

    def _read_content_body(self, channel: int, payload: bytes) -> Event | None:
        partial = self._partial_messages.get(channel)
        if partial is None:
            raise UnexpectedFrameError(
                f"expected a method on channel {channel}, got a content body"
            )
        if partial.properties is None:
            raise UnexpectedFrameError(
                f"expected a content header on channel {channel}, got a content body",
                partial.method_ids,
            )
        partial.missing_bytes -= len(payload)
        if partial.missing_bytes < 0:
            raise FrameError(
                f"body on channel {channel} is longer than its header says", partial.method_ids
            )
        if partial.body is not None:
            partial.body += payload
        return None if partial.missing_bytes else self._complete_message(channel, partial)

    def _complete_message(self, channel: int, message: _PartialMessage) -> Event | None:
        del self._partial_messages[channel]
        if message.body is None or message.properties is None:
            return None  # oversized: reported when its header arrived
        if self._batches_deliveries and isinstance(message.method, BasicDeliver):
            tag, route = message.method.delivery_tag, make_route(message.method)
            return Delivered(channel, route, tag, [message.properties], [bytes(message.body)])
        content = encode_content(channel, message.properties, message.body, self.frame_max)
        if isinstance(message.method, BasicPublish):
            method = encode_frame(METHOD_FRAME_TYPE, channel, message.method_payload)
            return Published(channel, method, message.traits, b"", [content])
        return ContentReceived(channel, message.method, content)
