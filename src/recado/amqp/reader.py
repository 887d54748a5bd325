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

from .codec import decode_method
from .deliveries import Delivered, route_of, scan_deliveries
from .errors import ChannelFault, FrameError, SyntaxFault, UnexpectedFrame
from .events import (
    Acked,
    ContentReceived,
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
from .methods import BasicDeliver, BasicPublish, ChannelClose, ChannelCloseOk, Method
from .runs import ACK_ID, PUBLISH_ID, scan_acks, scan_publishes

_envelope = ENVELOPE.unpack_from
_LARGEST_ENVELOPE = 7


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
        self.discarding: set[int] = set()  # channels that await close-ok: all else is dropped
        self._channels = channels
        self._gathers = runs_of_deliveries
        self._hears_no_channel = False
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

    def stop_hearing_channels(self) -> None:
        """The connection is closing: only what concerns itself is still of interest."""
        self._hears_no_channel = True

    def feed(self, data: bytes) -> Iterator[Event]:
        """What these bytes mean, after all that was fed before.

        Handle each event before asking for the next: it may change `frame_max` or `discarding`.
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
                raise FrameError(
                    f"payload of {size} bytes on channel {channel} is larger than frame-max "
                    f"{self._frame_max}"
                )
            if after > end:
                wanted = after - at
                break
            if data[after - 1] != END:
                raise FrameError(f"frame on channel {channel} does not end with 0xCE")
            if self._hears_no_channel and channel:
                at = after
                continue
            if (
                self.discarding
                and channel in self.discarding
                and not self._ends_discarding(data, at)
            ):
                self._unfinished.pop(channel, None)
                at = after
                continue
            if kind == METHOD:
                name = data[at + 7 : at + 11]
                if name == PUBLISH_ID and channel not in self._unfinished:
                    run = scan_publishes(data, at, after, channel, self._most, self.run_limit)
                    if run is not None:
                        event, at = run
                        yield event
                        continue
                elif name == ACK_ID and size == 13 and not data[after - 2]:
                    first, count = scan_acks(data, at, self.run_limit)
                    if channel in self._unfinished:
                        raise self._content_expected(channel)
                    at += count * (size + OVERHEAD)
                    yield Acked(channel, first, count)
                    continue
                elif name == DELIVER_ID and self._gathers and channel not in self._unfinished:
                    found = scan_deliveries(data, at, after, channel, self._most, self.run_limit)
                    if found is not None:
                        deliveries, at = found
                        yield deliveries
                        continue
            at = after
            single = self._single(kind, channel, data[after - size - 1 : after - 1])
            if single is not None:
                yield single
        if at < end:
            self._keep(data, at, wanted)

    def _keep(self, data: bytes, at: int, wanted: int) -> None:
        """For when more has come; what these bytes are a part of has `wanted`."""
        self._held = len(data) - at
        self._wanted = wanted
        self._chunks.append(data[at:])

    @staticmethod
    def _ends_discarding(data: bytes, at: int) -> bool:
        return data[at] == METHOD and data[at + 7 : at + 11] in (
            b"\x00\x14\x00\x28",
            b"\x00\x14\x00\x29",
        )

    @staticmethod
    def _content_expected(channel: int) -> UnexpectedFrame:
        return UnexpectedFrame(
            f"expected content header or body on channel {channel}, got a method"
        )

    def _single(self, kind: int, channel: int, payload: bytes) -> Event | None:
        """One frame by itself; an event if it completes something."""
        if kind == METHOD:
            unfinished = self._unfinished.get(channel)
            method = decode_method(payload)
            self.method_bytes = len(payload)
            if unfinished is not None:
                if not isinstance(method, ChannelClose | ChannelCloseOk):
                    raise self._content_expected(channel)
                del self._unfinished[channel]
            if method.has_content:
                if self._channels is not None and channel not in self._channels:
                    raise ChannelFault(f"channel {channel} is not open: expected 'channel.open'")
                self._unfinished[channel] = _Unfinished(method, payload)
                return None
            return MethodReceived(channel, method)
        if kind == HEARTBEAT:
            if channel or payload:
                raise FrameError("a heartbeat belongs to channel 0 and carries nothing")
            return HeartbeatReceived()
        if kind == HEADER:
            return self._content_header(channel, payload)
        if kind == BODY:
            return self._content_body(channel, payload)
        raise FrameError(f"unknown frame type {kind} on channel {channel}")

    def _content_header(self, channel: int, payload: bytes) -> Event | None:
        unfinished = self._unfinished.get(channel)
        if unfinished is None or unfinished.properties is not None:
            raise UnexpectedFrame(f"expected a method on channel {channel}, got a content header")
        if len(payload) < PROPERTIES_AT - ENVELOPE.size + 2:
            raise SyntaxFault(f"content header on channel {channel} is too short")
        class_id = int.from_bytes(payload[:2], "big")
        if class_id != BASIC_CLASS:
            raise FrameError(f"content header on channel {channel} is of class {class_id}, not 60")
        if payload[2:4] != b"\x00\x00":
            raise UnexpectedFrame(f"content header on channel {channel} has a weight")
        size = int.from_bytes(payload[4:12], "big")
        unfinished.properties = payload[12:]
        if not self._gathers:  # a client's are read by whoever wants them
            unfinished.facts = facts_of(unfinished.properties)
        unfinished.missing = size
        if size > self.body_max:
            unfinished.body = None
            return TooLarge(channel, size)
        return self._finish(channel, unfinished) if not size else None

    def _content_body(self, channel: int, payload: bytes) -> Event | None:
        unfinished = self._unfinished.get(channel)
        if unfinished is None or unfinished.properties is None:
            raise UnexpectedFrame(f"expected a method on channel {channel}, got a content body")
        unfinished.missing -= len(payload)
        if unfinished.missing < 0:
            raise FrameError(f"body on channel {channel} is longer than its header says")
        if unfinished.body is not None:
            unfinished.body += payload
        return None if unfinished.missing else self._finish(channel, unfinished)

    def _finish(self, channel: int, message: _Unfinished) -> Event | None:
        del self._unfinished[channel]
        if message.body is None or message.properties is None:
            return None  # too large, and announced when its header came
        body = bytes(message.body)
        content = content_frames(channel, message.properties, body, self.frame_max)
        if isinstance(message.method, BasicPublish):
            method = frame(METHOD, channel, message.payload)
            return Published(channel, method, message.facts, b"", [content])
        if self._gathers and isinstance(message.method, BasicDeliver):
            tag, route = message.method.delivery_tag, route_of(message.method)
            return Delivered(channel, route, tag, [message.properties], [body])
        return ContentReceived(channel, message.method, content)
