"""Links over TCP: an outbound link connects and reconnects to its peer; an inbound link was opened by the peer.

TCL1  While an outbound link is not connected, frames wait, up to `send_buffer_bytes`. When an attempt to
      connect fails, the frames that waited for it are returned, so no frame waits longer than one attempt and
      the delay before it. Frames that wait when the link is closed are returned, too.
TCL2  An outbound link closes only by `close`, or when no attempt succeeds for `reconnect_timeout` seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

from recado.actors.remote.errors import LimitExceededError, LinkClosedError
from recado.actors.remote.events import LinkClosed, LinkLost, LinkRestored, LinkStillDown
from recado.actors.remote.transport import TransportListener

from .connection import TcpConnection

log = logging.getLogger("recado.actors")

RETRY_INITIAL_S: Final = 0.05  # doubled after each failed attempt, up to `retry_max`


class TcpLinkSettings(Protocol):
    @property
    def connect_timeout(self) -> float: ...
    @property
    def retry_max(self) -> float: ...
    @property
    def reconnect_timeout(self) -> float: ...
    @property
    def report_interval(self) -> float: ...
    @property
    def send_buffer_bytes(self) -> int: ...


class TcpLink:
    """The common part of inbound and outbound links: the bounded send buffer, and closing."""

    is_durable = False

    def __init__(self, peer: str, listener: TransportListener, send_buffer_bytes: int) -> None:
        self.peer = peer
        self._listener = listener
        self._send_buffer_bytes = send_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[None]] = []
        self.connection: TcpConnection | None = None
        self.close_reason: str | None = None  # set when the link is closed

    @property
    def is_up(self) -> bool:
        return self.close_reason is None

    def post(self, frame: bytes) -> None:
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)
        connection = self.connection
        if connection is None or self.buffered_bytes + len(frame) > self._send_buffer_bytes:
            self._buffer_frame(frame)
        else:
            connection.post(frame)

    @property
    def buffered_bytes(self) -> int:
        return self.connection.queued_bytes if self.connection is not None else 0

    def _buffer_frame(self, frame: bytes) -> None:
        """Keep the frame until the link is connected. Raises LimitExceededError."""
        raise LimitExceededError(
            f"the send buffer for {self.peer or 'a client'} is full: {self.buffered_bytes} bytes wait",
            "Raise send_buffer_bytes, or send less while the peer is slow or away",
        )

    async def drain(self) -> None:
        while self.buffered_bytes > self._send_buffer_bytes // 2:
            await self._wait_for_change()
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)

    async def _wait_for_change(self) -> None:
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def pause_reading(self) -> None:
        if self.connection is not None:
            self.connection.pause_reading()

    def resume_reading(self) -> None:
        if self.connection is not None:
            self.connection.resume_reading()

    def close(self) -> None:
        if self.close_reason is None:
            self.close_reason = "closed"
        if self.connection is not None:
            self.connection.close()
        self.buffer_drained()

    # ── callbacks of the connection ───────────────────────────────────────────────────────────────────────

    def buffer_drained(self) -> None:
        """Wake the callers of `drain` if the buffer is half empty, or the link closed."""
        if self._waiters and (
            self.close_reason is not None or self.buffered_bytes <= self._send_buffer_bytes // 2
        ):
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def frames_received(self, frames: list[bytes], *, authenticated: bool) -> None:
        if authenticated:
            self._listener.frames_received(self, frames)
        else:
            self._listener.unauthenticated_frames_received(self, frames)


class InboundTcpLink(TcpLink):
    """A link that the peer opened. It cannot be reopened from here: it closes when the connection is lost."""

    def __init__(
        self,
        listener: TransportListener,
        send_buffer_bytes: int,
        on_closed: Callable[[InboundTcpLink], None],
    ) -> None:
        super().__init__("", listener, send_buffer_bytes)
        self._on_closed = on_closed

    def handshake_completed(self) -> None:
        """Do nothing: only an outbound link has a state that changes, and frames that wait for this."""

    def connection_closed(self, reason: str) -> None:
        was_closed = self.close_reason is not None
        self.close_reason = self.close_reason or reason
        self._on_closed(self)
        self.buffer_drained()
        if not was_closed:
            self._listener.link_closed(self, reason)


class LinkState(Enum):
    CONNECTING = auto()  # never connected, and no attempt has failed yet
    UP = auto()  # the peer has completed the handshake
    LOST = auto()  # reported as lost; reconnecting


class OutboundTcpLink(TcpLink):
    """A link that connects to its peer, and reconnects when the connection is lost."""

    def __init__(
        self,
        peer: str,
        address: Callable[[], tuple[str, int]],
        listener: TransportListener,
        settings: TcpLinkSettings,
        make_connection: Callable[[OutboundTcpLink], TcpConnection],
    ) -> None:
        super().__init__(peer, listener, settings.send_buffer_bytes)
        self._event_name = f"client of {peer}"
        self._address = address
        self._settings = settings
        self._make_connection = make_connection
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._state = LinkState.CONNECTING
        self._retry_delay = 0.0  # before the next attempt
        self._down_since = self._reported_at = self._loop.time()
        self.connect_task: asyncio.Task[None] | None = None  # while there is no connection
        self._start_connecting()

    @property
    def is_up(self) -> bool:
        return self._state is LinkState.UP

    @property
    def buffered_bytes(self) -> int:
        return self._waiting_bytes if self.connection is None else self.connection.queued_bytes

    def _buffer_frame(self, frame: bytes) -> None:
        if (
            self.connection is not None
            or self._waiting_bytes + len(frame) > self._send_buffer_bytes
        ):
            super()._buffer_frame(frame)
        self._waiting.append(frame)
        self._waiting_bytes += len(frame)

    def _take_waiting(self) -> list[bytes]:
        frames = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return frames

    def _return_frames(self, frames: list[bytes], reason: str) -> None:
        for frame in frames:
            self._listener.frame_returned(self, frame, reason)

    async def wait_until_sent(self) -> None:
        """Wait until the buffered frames are sent or returned, that is until the handshake is completed or the
        link closed."""
        while self.buffered_bytes and self._state is not LinkState.UP and self.close_reason is None:
            await self._wait_for_change()

    # ── connecting ────────────────────────────────────────────────────────────────────────────────────────

    def _start_connecting(self) -> None:
        if self.close_reason is not None:  # the listener closed the link when it was reported lost
            return
        self.connect_task = self._loop.create_task(self._connect(), name=f"link to {self.peer}")

    async def _connect(self) -> None:
        while self.close_reason is None:
            if self._retry_delay:
                if self._loop.time() - self._down_since >= self._settings.reconnect_timeout:
                    self._stop_reconnecting()
                    return
                await asyncio.sleep(self._retry_delay)
            self._retry_delay = min(
                max(2 * self._retry_delay, RETRY_INITIAL_S), self._settings.retry_max
            )
            try:
                async with asyncio.timeout(self._settings.connect_timeout):
                    host, port = self._address()
                    _, connection = await self._loop.create_connection(
                        lambda: self._make_connection(self), host, port
                    )
            except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
                timeout = self._settings.connect_timeout
                self._attempt_failed(str(error) or f"no answer within {timeout:g} s")
            else:
                if not connection.closed.done():
                    self._attach(connection)
                    return
                self._attempt_failed("the peer closed the connection")

    def _attach(self, connection: TcpConnection) -> None:
        self.connect_task = None
        self.connection = connection
        for frame in self._take_waiting():
            connection.post(frame)
        self.buffer_drained()

    def handshake_completed(self) -> None:
        was_lost = self._state is LinkState.LOST
        self._state = LinkState.UP
        self._retry_delay = RETRY_INITIAL_S
        if was_lost:
            self._listener.publish_event(LinkRestored(self._event_name))
            self._listener.link_restored(self)

    def _attempt_failed(self, reason: str) -> None:
        # First, because the listener fails all asks on a lost link as if they might have arrived.
        self._return_frames(self._take_waiting(), reason)
        if self._state is LinkState.LOST:
            self._report_down(reason)
        else:
            self._report_lost(reason)
        self.buffer_drained()

    def _report_down(self, reason: str) -> None:
        now = self._loop.time()
        if now - self._reported_at >= self._settings.report_interval:
            self._reported_at = now
            seconds = now - self._down_since
            log.warning(
                "link still down, reconnecting (node=%s down_s=%.0f reconnect_timeout=%g): %s",
                self.peer, seconds, self._settings.reconnect_timeout, reason,
            )  # fmt: skip
            self._listener.publish_event(LinkStillDown(self._event_name, seconds, reason))

    def _report_lost(self, reason: str) -> None:
        self._state = LinkState.LOST
        self._reported_at = self._loop.time()
        self._listener.publish_event(LinkLost(self._event_name, reason))
        self._listener.link_lost(self, reason)

    # ── losing the connection, and closing ────────────────────────────────────────────────────────────────

    def connection_closed(self, reason: str) -> None:
        connection, self.connection = self.connection, None
        if connection is None:  # not attached yet: `_connect` notices it
            return
        if self.close_reason is not None:
            self._return_frames(connection.take_unsent(), self.close_reason)
            return
        for frame in connection.take_unsent():
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
        if self._state is LinkState.UP:
            self._down_since = self._loop.time()
            self._report_lost(reason)
        else:
            self._attempt_failed(reason)
        if self.connect_task is None:
            self._start_connecting()

    def _stop_reconnecting(self) -> None:
        timeout = self._settings.reconnect_timeout
        self.close_reason = f"no connection for {timeout:g} s (reconnect_timeout)"
        self.buffer_drained()
        log.error("link closed: reconnect timeout (node=%s): %s", self.peer, self.close_reason)
        self._listener.publish_event(LinkClosed(self._event_name, self.close_reason))
        self._listener.link_closed(self, self.close_reason)

    def close(self) -> None:
        if self.connect_task is not None:
            self.connect_task.cancel()
        super().close()
        self._return_frames(self._take_waiting(), "closed")
