"""Bytes in, events out: the receiving half of a connection, for either side.

`feed` takes whatever the socket gave and yields what it means. Publishes and acks come in runs (`runs.py`);
what does not fit there (bodies in several frames, frames of other channels in between, the end of a buffer)
is put together frame by frame, per channel. Nothing waits here for a whole message: of an unfinished one only
the frames received are kept, and at most one unfinished frame.

R1  Events are the same however the bytes are cut (a run may come as several).
R2  A payload larger than `frame_max` is refused when its size is read, not when it has arrived. As in RabbitMQ,
    the eight bytes around a payload do not count. The content of an event keeps to `frame_max` with them.
R3  A body larger than `body_max` is announced once (`OversizedBodyReceived`) and never kept.
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
    """How frames of channels are treated while only channel 0 is in use."""

    REFUSE = auto()  # the connection is not open yet
    IGNORE = auto()  # the connection is closing


class _PartialMessage:
    """A message of which not all frames are here."""

    __slots__ = ("body", "method", "method_payload", "missing_bytes", "properties", "traits")

    def __init__(self, method: Method, payload: bytes) -> None:
        self.method = method
        self.method_payload = payload
        self.properties: bytes | None = None
        self.traits = DEFAULT_TRAITS
        self.body: bytearray | None = bytearray()  # None: too large, not kept
        self.missing_bytes = 0

    @property
    def method_ids(self) -> tuple[int, int]:
        return self.method.class_id, self.method.method_id


class FrameReader:
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
        """Content is taken only on the `channels` that are open, where they are given.

        With `runs_of_deliveries` a client gets `Delivered` instead of a `ContentReceived` for each.
        """
        self.body_max = body_max
        self.frame_max = frame_max
        self.run_limit = run_limit
        self.closing_channels: set[int] = (
            set()
        )  # channels that await close-ok: other methods are dropped
        self.channel_frame_policy: ChannelFramePolicy | None = None  # channels are in use
        self._open_channels = open_channels
        self._batches_deliveries = batch_deliveries
        self._expects_protocol_header = expects_protocol_header
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._needed_bytes = 0
        self._partial_messages: dict[int, _PartialMessage] = {}
        self.last_method_bytes = 0
        """The size of the method that was read last, apart from runs."""

    @property
    def frame_max(self) -> int:
        return self._frame_max

    @frame_max.setter
    def frame_max(self, size: int) -> None:
        self._frame_max = size
        # Content taken as it is may be passed on as it is: a larger body is reassembled and cut again.
        self._single_frame_max = min(size - FRAME_OVERHEAD_BYTES, self.body_max)

    @property
    def has_partial_messages(self) -> bool:
        """Whether parts of messages are kept here."""
        return bool(self._partial_messages)

    def feed(self, data: bytes) -> Iterator[Event]:
        """What these bytes mean, after all that was fed before.

        Handle each event before asking for the next: it may change `frame_max`, `closing_channels` or `unheard`.
        After an error `feed(b"")` goes on behind the frame that caused it, unless the error is `FramingLostError`.
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
            after = offset + size + FRAME_OVERHEAD_BYTES
            if size > self._frame_max:
                raise FramingLostError(
                    f"payload of {size} bytes on channel {channel} is larger than frame-max "
                    f"{self._frame_max}"
                )
            if after > end:
                needed_bytes = after - offset
                break
            if data[after - 1] != FRAME_END_CODE:
                raise FramingLostError(f"frame on channel {channel} does not end with 0xCE")
            try:
                if self.channel_frame_policy is not None and channel:
                    if self.channel_frame_policy is ChannelFramePolicy.REFUSE:
                        raise UnexpectedFrameError(
                            f"channel {channel} before the connection is open"
                        )
                    offset = after
                    continue
                event: Event | None = None
                if frame_type == METHOD_FRAME_TYPE:
                    name = data[offset + 7 : offset + 11]
                    if name == PUBLISH_METHOD_IDS and channel not in self._partial_messages:
                        run = scan_publishes(
                            data, offset, after, channel, self._single_frame_max, self.run_limit
                        )
                        if run is not None:
                            event, offset = run
                    elif name == ACK_METHOD_IDS and size == 13 and not data[after - 2]:
                        first, count = scan_acks(data, offset, self.run_limit)
                        if channel not in self._partial_messages:
                            event = Acked(channel, first, count)
                            offset += count * (size + FRAME_OVERHEAD_BYTES)
                    elif (
                        name == DELIVER_METHOD_IDS
                        and self._batches_deliveries
                        and channel not in self._partial_messages
                    ):
                        found = scan_deliveries(
                            data, offset, after, channel, self._single_frame_max, self.run_limit
                        )
                        if found is not None:
                            event, offset = found
                if event is None:
                    offset = after
                    event = self._read_frame(
                        frame_type, channel, data[after - size - 1 : after - 1]
                    )
            except AmqpError:
                self._buffer_rest(data, after, 0)
                raise
            if event is not None:
                if self.closing_channels and channel in self.closing_channels:
                    event = self._discard_unless_close(event)
                yield event
        if offset < end:
            self._buffer_rest(data, offset, needed_bytes)

    def _buffer_rest(self, data: bytes, offset: int, needed_bytes: int) -> None:
        """For when more has come; what these bytes are a part of has `wanted`."""
        self._buffered_bytes = len(data) - offset
        self._needed_bytes = needed_bytes
        self._chunks.append(data[offset:])

    @staticmethod
    def _discard_unless_close(event: Event) -> Event:
        """The event, if it opens or closes the channel, which awaits close-ok."""
        match event:
            case MethodReceived(_, ChannelOpen() | ChannelClose() | ChannelCloseOk()):
                return event
            case _:
                return Discarded()

    def _read_frame(self, frame_type: int, channel: int, payload: bytes) -> Event | None:
        """One frame by itself; an event if it completes something."""
        if frame_type == METHOD_FRAME_TYPE:
            return self._read_method(channel, payload)
        if frame_type == HEARTBEAT_FRAME_TYPE:
            if payload:
                raise FrameError(f"a heartbeat has {len(payload)} bytes of payload instead of none")
            if channel:
                raise UnexpectedFrameError(f"a heartbeat on channel {channel} instead of 0")
            return HeartbeatReceived()
        if frame_type == HEADER_FRAME_TYPE:
            return self._read_content_header(channel, payload)
        if frame_type == BODY_FRAME_TYPE:
            return self._read_content_body(channel, payload)
        raise FrameError(f"unknown frame type {frame_type} on channel {channel}")

    def _read_method(self, channel: int, payload: bytes) -> Event | None:
        unfinished = self._partial_messages.get(channel)
        if unfinished is not None:
            method_type = find_method_type(payload)
            # A message that is too large has closed its channel before its last frame.
            if unfinished.body is not None or method_type not in (ChannelClose, ChannelCloseOk):
                raise UnexpectedFrameError(
                    f"expected the content of {unfinished.method.name} on channel {channel}, got "
                    f"{method_type.name}",
                    unfinished.method_ids,
                )
            del self._partial_messages[channel]
        method = decode_method(payload)
        self.last_method_bytes = len(payload)
        if not method.has_content:
            return MethodReceived(channel, method)
        unfinished = _PartialMessage(method, payload)
        is_open = self._open_channels is None or channel in self._open_channels
        if not is_open and channel not in self.closing_channels:
            raise ChannelError(
                f"channel {channel} is not open: expected 'channel.open'", unfinished.method_ids
            )
        self._partial_messages[channel] = unfinished
        return None

    def _read_content_header(self, channel: int, payload: bytes) -> Event | None:
        if len(payload) < _CONTENT_HEADER_MIN_BYTES:
            raise FrameError(f"content header on channel {channel} is too short")
        unfinished = self._partial_messages.get(channel)
        if unfinished is None:
            raise UnexpectedFrameError(
                f"expected a method on channel {channel}, got a content header"
            )
        if unfinished.properties is not None:
            raise UnexpectedFrameError(
                f"expected a content body on channel {channel}, got a content header",
                unfinished.method_ids,
            )
        class_id = int.from_bytes(payload[:2], "big")
        if class_id != BASIC_CLASS_ID or payload[2:4] != b"\x00\x00":
            raise UnexpectedFrameError(
                f"expected a content header of class {BASIC_CLASS_ID} without weight on channel "
                f"{channel}, got one of class {class_id}",
                unfinished.method_ids,
            )
        size = int.from_bytes(payload[4:12], "big")
        unfinished.properties = payload[12:]
        if not self._batches_deliveries:  # a client's are read by whoever wants them
            try:
                unfinished.traits = read_traits(unfinished.properties)
            except AmqpError as error:
                error.method_ids = unfinished.method_ids
                raise
        unfinished.missing_bytes = size
        if size > self.body_max:
            unfinished.body = None
            return OversizedBodyReceived(channel, size)
        return self._complete_message(channel, unfinished) if not size else None

    def _read_content_body(self, channel: int, payload: bytes) -> Event | None:
        unfinished = self._partial_messages.get(channel)
        if unfinished is None:
            raise UnexpectedFrameError(
                f"expected a method on channel {channel}, got a content body"
            )
        if unfinished.properties is None:
            raise UnexpectedFrameError(
                f"expected a content header on channel {channel}, got a content body",
                unfinished.method_ids,
            )
        unfinished.missing_bytes -= len(payload)
        if unfinished.missing_bytes < 0:
            raise FrameError(
                f"body on channel {channel} is longer than its header says", unfinished.method_ids
            )
        if unfinished.body is not None:
            unfinished.body += payload
        return None if unfinished.missing_bytes else self._complete_message(channel, unfinished)

    def _complete_message(self, channel: int, message: _PartialMessage) -> Event | None:
        del self._partial_messages[channel]
        if message.body is None or message.properties is None:
            return None  # too large, and announced when its header came
        if self._batches_deliveries and isinstance(message.method, BasicDeliver):
            tag, route = message.method.delivery_tag, make_route(message.method)
            return Delivered(channel, route, tag, [message.properties], [bytes(message.body)])
        content = encode_content(channel, message.properties, message.body, self.frame_max)
        if isinstance(message.method, BasicPublish):
            method = encode_frame(METHOD_FRAME_TYPE, channel, message.method_payload)
            return Published(channel, method, message.traits, b"", [content])
        return ContentReceived(channel, message.method, content)
