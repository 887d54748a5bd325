"""Bytes in, events out: the receiving half of a connection, for either side.

`feed` takes whatever the socket gave and yields what it means. Publishes and acks come in runs (`runs.py`);
what does not fit there (bodies in several frames, frames of other channels in between, the end of a buffer)
is put together frame by frame, per channel. Nothing waits here for a whole message: of an unfinished one only
the frames received are kept, and at most one unfinished frame.

R1  Events are the same however the bytes are cut (a run may come as several).
R2  A payload larger than `frame_max` is refused when its size is read, not when it has arrived. As in RabbitMQ,
    the eight bytes around a payload do not count. The content of an event keeps to `frame_max` with them.
R3  A body larger than `body_max` is announced once (`TooLarge`) and never kept.
"""

from collections.abc import Container, Iterator
from enum import Enum, auto

from .codec import decode_method, find_method
from .deliveries import Delivered, route_of, scan_deliveries
from .errors import ChannelFault, FrameError, FramingLost, ProtocolError, UnexpectedFrame
from .events import (
    Acked,
    ContentReceived,
    Discarded,
    Event,
    HeaderReceived,
    HeartbeatReceived,
    MethodReceived,
    Published,
    TooLarge,
)
from .facts import PLAIN, facts_of
from .frames import (
    BASIC_CLASS,
    BODY,
    DELIVER_ID,
    END,
    ENVELOPE,
    FRAME_DEFAULT,
    HEADER,
    HEARTBEAT,
    METHOD,
    OVERHEAD,
    PROPERTIES_AT,
    content_frames,
    frame,
)
from .methods import BasicDeliver, BasicPublish, ChannelClose, ChannelCloseOk, ChannelOpen, Method
from .runs import ACK_ID, PUBLISH_ID, scan_acks, scan_publishes

_envelope = ENVELOPE.unpack_from
_LARGEST_ENVELOPE = 7
_MIN_HEADER_BYTES = PROPERTIES_AT - ENVELOPE.size  # class, weight and body size


class Unheard(Enum):
    """How frames of channels are treated while only channel 0 is in use."""

    REFUSED = auto()  # the connection is not open yet
    IGNORED = auto()  # the connection is closing


class _Unfinished:
    """A message of which not all frames are here."""

    __slots__ = ("body", "facts", "method", "missing", "payload", "properties")

    def __init__(self, method: Method, payload: bytes) -> None:
        self.method = method
        self.payload = payload
        self.properties: bytes | None = None
        self.facts = PLAIN
        self.body: bytearray | None = bytearray()  # None: too large, not kept
        self.missing = 0

    @property
    def ids(self) -> tuple[int, int]:
        return self.method.class_id, self.method.method_id


class Reader:
    def __init__(
        self,
        *,
        frame_max: int = FRAME_DEFAULT,
        body_max: int = 16 << 20,
        run_limit: int = 1 << 30,
        expects_header: bool = False,
        channels: Container[int] | None = None,
        runs_of_deliveries: bool = False,
    ) -> None:
        """Content is taken only on the `channels` that are open, where they are given.

        With `runs_of_deliveries` a client gets `Delivered` instead of a `ContentReceived` for each.
        """
        self.body_max = body_max
        self.frame_max = frame_max
        self.run_limit = run_limit
        self.discarding: set[int] = set()  # channels that await close-ok: other methods are dropped
        self.unheard: Unheard | None = None  # channels are in use
        self._channels = channels
        self._gathers = runs_of_deliveries
        self._expects_header = expects_header
        self._chunks: list[bytes] = []
        self._held = 0
        self._wanted = 0
        self._unfinished: dict[int, _Unfinished] = {}
        self.method_bytes = 0
        """The size of the method that was read last, apart from runs."""

    @property
    def frame_max(self) -> int:
        return self._frame_max

    @frame_max.setter
    def frame_max(self, size: int) -> None:
        self._frame_max = size
        # Content taken as it is may be passed on as it is: a larger body is reassembled and cut again.
        self._most = min(size - OVERHEAD, self.body_max)

    @property
    def has_unfinished(self) -> bool:
        """Whether parts of messages are kept here."""
        return bool(self._unfinished)

    def feed(self, data: bytes) -> Iterator[Event]:
        """What these bytes mean, after all that was fed before.

        Handle each event before asking for the next: it may change `frame_max`, `discarding` or `unheard`.
        After an error `feed(b"")` goes on behind the frame that caused it, unless the error is `FramingLost`.
        """
        if self._chunks:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._wanted:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        at, end = 0, len(data)
        wanted = _LARGEST_ENVELOPE
        if self._expects_header:
            if end < 8:
                self._keep(data, 0, 8)
                return
            self._expects_header = False
            yield HeaderReceived(data[:8])
            at = 8
        while end - at >= _LARGEST_ENVELOPE:
            kind, channel, size = _envelope(data, at)
            after = at + size + OVERHEAD
            if size > self._frame_max:
                raise FramingLost(
                    f"payload of {size} bytes on channel {channel} is larger than frame-max "
                    f"{self._frame_max}"
                )
            if after > end:
                wanted = after - at
                break
            if data[after - 1] != END:
                raise FramingLost(f"frame on channel {channel} does not end with 0xCE")
            try:
                if self.unheard is not None and channel:
                    if self.unheard is Unheard.REFUSED:
                        raise UnexpectedFrame(f"channel {channel} before the connection is open")
                    at = after
                    continue
                event: Event | None = None
                if kind == METHOD:
                    name = data[at + 7 : at + 11]
                    if name == PUBLISH_ID and channel not in self._unfinished:
                        run = scan_publishes(data, at, after, channel, self._most, self.run_limit)
                        if run is not None:
                            event, at = run
                    elif name == ACK_ID and size == 13 and not data[after - 2]:
                        first, count = scan_acks(data, at, self.run_limit)
                        if channel not in self._unfinished:
                            event = Acked(channel, first, count)
                            at += count * (size + OVERHEAD)
                    elif name == DELIVER_ID and self._gathers and channel not in self._unfinished:
                        found = scan_deliveries(
                            data, at, after, channel, self._most, self.run_limit
                        )
                        if found is not None:
                            event, at = found
                if event is None:
                    at = after
                    event = self._single(kind, channel, data[after - size - 1 : after - 1])
            except ProtocolError:
                self._keep(data, after, 0)
                raise
            if event is not None:
                if self.discarding and channel in self.discarding:
                    event = self._unless_discarded(event)
                yield event
        if at < end:
            self._keep(data, at, wanted)

    def _keep(self, data: bytes, at: int, wanted: int) -> None:
        """For when more has come; what these bytes are a part of has `wanted`."""
        self._held = len(data) - at
        self._wanted = wanted
        self._chunks.append(data[at:])

    @staticmethod
    def _unless_discarded(event: Event) -> Event:
        """The event, if it opens or closes the channel, which awaits close-ok."""
        match event:
            case MethodReceived(_, ChannelOpen() | ChannelClose() | ChannelCloseOk()):
                return event
            case _:
                return Discarded()

    def _single(self, kind: int, channel: int, payload: bytes) -> Event | None:
        """One frame by itself; an event if it completes something."""
        if kind == METHOD:
            return self._method(channel, payload)
        if kind == HEARTBEAT:
            if payload:
                raise FrameError(f"a heartbeat has {len(payload)} bytes of payload instead of none")
            if channel:
                raise UnexpectedFrame(f"a heartbeat on channel {channel} instead of 0")
            return HeartbeatReceived()
        if kind == HEADER:
            return self._content_header(channel, payload)
        if kind == BODY:
            return self._content_body(channel, payload)
        raise FrameError(f"unknown frame type {kind} on channel {channel}")

    def _method(self, channel: int, payload: bytes) -> Event | None:
        unfinished = self._unfinished.get(channel)
        if unfinished is not None:
            method_type = find_method(payload)
            # A message that is too large has closed its channel before its last frame.
            if unfinished.body is not None or method_type not in (ChannelClose, ChannelCloseOk):
                raise UnexpectedFrame(
                    f"expected the content of {unfinished.method.name} on channel {channel}, got "
                    f"{method_type.name}",
                    unfinished.ids,
                )
            del self._unfinished[channel]
        method = decode_method(payload)
        self.method_bytes = len(payload)
        if not method.has_content:
            return MethodReceived(channel, method)
        unfinished = _Unfinished(method, payload)
        is_open = self._channels is None or channel in self._channels
        if not is_open and channel not in self.discarding:
            raise ChannelFault(
                f"channel {channel} is not open: expected 'channel.open'", unfinished.ids
            )
        self._unfinished[channel] = unfinished
        return None

    def _content_header(self, channel: int, payload: bytes) -> Event | None:
        if len(payload) < _MIN_HEADER_BYTES:
            raise FrameError(f"content header on channel {channel} is too short")
        unfinished = self._unfinished.get(channel)
        if unfinished is None:
            raise UnexpectedFrame(f"expected a method on channel {channel}, got a content header")
        if unfinished.properties is not None:
            raise UnexpectedFrame(
                f"expected a content body on channel {channel}, got a content header",
                unfinished.ids,
            )
        class_id = int.from_bytes(payload[:2], "big")
        if class_id != BASIC_CLASS or payload[2:4] != b"\x00\x00":
            raise UnexpectedFrame(
                f"expected a content header of class {BASIC_CLASS} without weight on channel "
                f"{channel}, got one of class {class_id}",
                unfinished.ids,
            )
        size = int.from_bytes(payload[4:12], "big")
        unfinished.properties = payload[12:]
        if not self._gathers:  # a client's are read by whoever wants them
            try:
                unfinished.facts = facts_of(unfinished.properties)
            except ProtocolError as error:
                error.failed = unfinished.ids
                raise
        unfinished.missing = size
        if size > self.body_max:
            unfinished.body = None
            return TooLarge(channel, size)
        return self._finish(channel, unfinished) if not size else None

    def _content_body(self, channel: int, payload: bytes) -> Event | None:
        unfinished = self._unfinished.get(channel)
        if unfinished is None:
            raise UnexpectedFrame(f"expected a method on channel {channel}, got a content body")
        if unfinished.properties is None:
            raise UnexpectedFrame(
                f"expected a content header on channel {channel}, got a content body",
                unfinished.ids,
            )
        unfinished.missing -= len(payload)
        if unfinished.missing < 0:
            raise FrameError(
                f"body on channel {channel} is longer than its header says", unfinished.ids
            )
        if unfinished.body is not None:
            unfinished.body += payload
        return None if unfinished.missing else self._finish(channel, unfinished)

    def _finish(self, channel: int, message: _Unfinished) -> Event | None:
        del self._unfinished[channel]
        if message.body is None or message.properties is None:
            return None  # too large, and announced when its header came
        if self._gathers and isinstance(message.method, BasicDeliver):
            tag, route = message.method.delivery_tag, route_of(message.method)
            return Delivered(channel, route, tag, [message.properties], [bytes(message.body)])
        content = content_frames(channel, message.properties, message.body, self.frame_max)
        if isinstance(message.method, BasicPublish):
            method = frame(METHOD, channel, message.payload)
            return Published(channel, method, message.facts, b"", [content])
        return ContentReceived(channel, message.method, content)
