"""Links over TCP: one that we make and make again, and one that a peer made.

L1  While a link is not up, frames wait, as many bytes as the limit says. When an attempt to connect has failed,
    those that waited for it are returned: nobody waits longer than one attempt and the delay before it. So are
    those that wait when the link is closed.
L2  A link that we made is gone only when it was closed, or when nothing answered for as long as `give_up` says.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from recado.actors.remote.errors import LinkClosedError
from recado.actors.remote.events import LinkClosed, LinkLost, LinkRestored, LinkStillDown
from recado.actors.remote.transport import LimitExceededError, TransportListener

from .connection import TcpConnection

log = logging.getLogger("recado.actors")

RETRY_INITIAL_S: Final = 0.05  # seconds; then twice as long each time


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
    """What the two kinds have in common: room, and an end."""

    is_durable = False

    def __init__(self, peer: str, listener: TransportListener, send_buffer_bytes: int) -> None:
        self.peer = peer
        self._listener = listener
        self._send_buffer_bytes = send_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._waiters: list[asyncio.Future[None]] = []
        self.connection: TcpConnection | None = None
        self.close_reason: str | None = None  # why there is nothing any more

    @property
    def is_up(self) -> bool:
        return self.close_reason is None

    def post(self, frame: bytes) -> None:
        if self.close_reason is not None:
            raise LinkClosedError(self.close_reason)
        wire = self.connection
        if wire is None or self.buffered_bytes + len(frame) > self._send_buffer_bytes:
            self._buffer_frame(frame)
        else:
            wire.post(frame)

    @property
    def buffered_bytes(self) -> int:
        return self.connection.queued_bytes if self.connection is not None else 0

    def _buffer_frame(self, frame: bytes) -> None:
        raise LimitExceededError(
            f"{self.buffered_bytes} bytes wait for {self.peer or 'a client'} already"
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

    def buffer_drained(self) -> None:
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


class InboundTcpLink(TcpLink):
    """A peer came to us. We cannot go to it: when it is lost, it is gone."""

    def __init__(
        self,
        listener: TransportListener,
        send_buffer_bytes: int,
        on_closed: Callable[[InboundTcpLink], None],
    ) -> None:
        super().__init__("", listener, send_buffer_bytes)
        self._on_closed = on_closed

    def handshake_completed(self) -> None:
        pass  # it is kept if a frame comes, too

    def connection_closed(self, reason: str) -> None:
        closed = self.close_reason is not None
        self.close_reason = self.close_reason or reason
        self._on_closed(self)
        self.buffer_drained()
        if not closed:
            self._listener.link_closed(self, reason)


class OutboundTcpLink(TcpLink):
    """We go to the peer, and again when we lost it."""

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
        self._is_open = False  # whether the other end has answered as a node does
        self._is_lost = False
        self._retry_delay = 0.0  # before the next attempt
        self._down_since = self._reported_at = self._loop.time()
        self.connect_task: asyncio.Task[None] | None = None  # while there is no connection
        self._start_connecting()

    @property
    def is_up(self) -> bool:
        return self._is_open

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

    # ── getting there ─────────────────────────────────────────────────────────────────────────────────────

    def _start_connecting(self) -> None:
        if self.close_reason is not None:  # whoever was told of the loss has closed it
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
                    _, wire = await self._loop.create_connection(
                        lambda: self._make_connection(self), host, port
                    )
            except (OSError, UnicodeError) as error:  # the latter by what is no name of a host
                self._attempt_failed(str(error) or "nobody answered in time")
            else:
                if not wire.closed.done():
                    self._attach(wire)
                    return
                self._attempt_failed("it hung up")

    def _attach(self, wire: TcpConnection) -> None:
        self.connect_task = None
        self.connection = wire
        for frame in self._take_waiting():
            wire.post(frame)
        self.buffer_drained()

    def handshake_completed(self) -> None:
        self._is_open = True
        self._retry_delay = RETRY_INITIAL_S
        if self._is_lost:
            self._is_lost = False
            self._listener.publish_event(LinkRestored(self._event_name))
            self._listener.link_restored(self)

    async def wait_until_sent(self) -> None:
        """Wait while something waits for hands to be shaken: then it is sent, or returned."""
        while self.buffered_bytes and not self._is_open and self.close_reason is None:
            await self._wait_for_change()

    def _attempt_failed(self, reason: str) -> None:
        if not self._is_lost:
            self._report_lost(reason)
        else:
            self._report_down(reason)
        self._return_frames(self._take_waiting(), reason)
        self.buffer_drained()

    def _return_frames(self, frames: list[bytes], reason: str) -> None:
        for frame in frames:
            self._listener.frame_returned(self, frame, reason)

    def _report_down(self, reason: str) -> None:
        now = self._loop.time()
        if now - self._reported_at >= self._settings.report_interval:
            self._reported_at = now
            seconds = now - self._down_since
            log.warning(
                "link still down, reconnecting (node=%s down_s=%.0f give_up=%g): %s",
                self.peer, seconds, self._settings.reconnect_timeout, reason,
            )  # fmt: skip
            self._listener.publish_event(LinkStillDown(self._event_name, seconds, reason))

    def _report_lost(self, reason: str) -> None:
        self._is_lost = True
        self._reported_at = self._loop.time()
        self._listener.publish_event(LinkLost(self._event_name, reason))
        self._listener.link_lost(self, reason)

    def _take_waiting(self) -> list[bytes]:
        frames = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return frames

    # ── losing it ─────────────────────────────────────────────────────────────────────────────────────────

    def connection_closed(self, reason: str) -> None:
        wire, self.connection = self.connection, None
        if wire is None:  # `_connect` will find out
            return
        if self.close_reason is not None:
            self._return_frames(wire.take_unsent(), self.close_reason)
            return
        for frame in wire.take_unsent():
            self._waiting.append(frame)
            self._waiting_bytes += len(frame)
        if self._is_open:
            self._is_open = False
            self._down_since = self._loop.time()
            self._report_lost(reason)
        else:
            self._attempt_failed(reason)
        if self.connect_task is None:
            self._start_connecting()

    def _stop_reconnecting(self) -> None:
        self.close_reason = f"no answer for {self._settings.reconnect_timeout:g} s (give_up)"
        self.buffer_drained()
        log.error("link given up (node=%s): %s", self.peer, self.close_reason)
        self._listener.publish_event(LinkClosed(self._event_name, self.close_reason))
        self._listener.link_closed(self, self.close_reason)

    def close(self) -> None:
        if self.connect_task is not None:
            self.connect_task.cancel()
        super().close()
        self._return_frames(self._take_waiting(), "closed")
