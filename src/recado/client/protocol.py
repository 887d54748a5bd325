"""A session on a socket, as an asyncio protocol: reads, writes, heartbeats, backpressure both ways.

Output is collected in the session and written by one `_flush` per iteration of the event loop (`call_soon`).
While the transport's write buffer is full, output stays in the session and `drain` waits.

CPR1  A coroutine in `drain` continues when the output buffers have room again, or gets the error that ended the
      connection.
CPR2  Reading pauses only while no coroutine waits for the broker: the reply may be behind unread deliveries.
"""

import asyncio
from collections.abc import Callable
from threading import local
from typing import Final, ParamSpec, TypeVar, cast

from recado.amqp.deliveries import Delivered
from recado.amqp.values import FieldTable

from . import errors
from .parameters import ConnectionParameters
from .session import Session, SessionState
from .session_events import BlockedStateChanged, ConnectionTerminated, SessionEvent
from .waiters import Notifier, WaitCounter

P = ParamSpec("P")
T = TypeVar("T")

READ_BUFFER_BYTES = 256 * 1024
WRITE_HIGH_WATER_BYTES = 256 * 1024  # of the transport's write buffer
OUTPUT_HIGH_WATER_BYTES = 1 << 20  # of unsent output in the session, above which `drain` waits
DELIVERY_BUFFER_MAX_BYTES = 32 << 20  # of deliveries in consumers, above which reading pauses
CLOSE_TIMEOUT_S = 5.0  # for the broker's reply to connection.close


class _ThreadReadBuffer(local):
    """One read buffer for all connections of a thread; each read is copied to bytes before the next.

    asyncio's default, a new buffer per read, takes 20 µs more, because buffers of this size are mapped by the
    system and unmapped again.
    """

    def __init__(self) -> None:
        self.read = memoryview(bytearray(READ_BUFFER_BYTES))


_thread_read_buffer: Final = _ThreadReadBuffer()


class ConnectionProtocol(asyncio.BufferedProtocol):
    """Connects a `Session` with a transport; `handler` is called with the events of the session."""

    def __init__(
        self,
        parameters: ConnectionParameters,
        properties: FieldTable,
        wait_counter: WaitCounter,
        handler: Callable[[SessionEvent], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._buffer = _thread_read_buffer.read
        self._transport: asyncio.Transport | None = None
        self._is_flush_scheduled = False
        self._is_writing_paused = False
        self.is_reading_paused = False
        self._drain_notifier = Notifier()
        self._read_count = self._read_count_at_tick = 0
        self._write_count = self._write_count_at_tick = 0
        self._silent_ticks = 0
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self.blocked_reason: str | None = None  # why the broker accepts no messages now
        self.buffered_bytes = 0  # deliveries that consumers have not handed to the program yet
        self.closed = self._loop.create_future()  # done when the socket is closed
        self.wait_counter = wait_counter
        wait_counter.on_change = self.update_reading
        self.session = Session(parameters, properties, self._schedule_flush)

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._read_count += 1
        for event in self.session.receive(bytes(self._buffer[:nbytes])):
            match event:
                case Delivered():
                    pass
                case BlockedStateChanged(reason):
                    self.blocked_reason = reason
                    self._wake_drainers()
                case ConnectionTerminated():
                    self._terminate(event)
                    return
                case _:
                    pass
            self._handler(event)
        if self.buffered_bytes > DELIVERY_BUFFER_MAX_BYTES or self.is_reading_paused:
            self.update_reading()

    def eof_received(self) -> bool:
        self.fail(self.session.make_eof_error())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.fail(self.session.make_eof_error())
        else:
            self.fail(self._make_reset_error(exc))
        if self._close_timer is not None:
            self._close_timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def _make_reset_error(self, exc: Exception) -> Exception:
        """Treat a reset like an end of file: brokers reset connections that they refuse."""
        error = self.session.make_eof_error()
        error.__cause__ = exc
        return error

    def start_heartbeats(self) -> None:
        """Send heartbeats, and fail the connection when the broker sends nothing for two intervals."""
        if self.session.heartbeat:
            self._schedule_heartbeat()

    # ── termination ───────────────────────────────────────────────────────────────────────────────────────

    def fail(self, error: Exception) -> None:
        """Abort the connection with this error, unless it has terminated before."""
        terminated = self.session.terminate(error)
        if terminated is not None:
            self._terminate(terminated)

    def close(self) -> None:
        """Begin to close the connection: send connection.close after all output; `closed` is done at the end.

        The connection is aborted if the broker does not reply within `CLOSE_TIMEOUT_S`.
        """
        if self.session.state is SessionState.OPEN:
            self.session.close()
            self._cancel_heartbeat()
            self._close_timer = self._loop.call_later(
                CLOSE_TIMEOUT_S, self.fail, errors.ConnectionClosedByClientError()
            )
            self.update_reading()
        elif self.session.state is SessionState.OPENING:
            self.fail(errors.ConnectionClosedByClientError())

    def _terminate(self, terminated: ConnectionTerminated) -> None:
        self._error = terminated.error
        self._cancel_heartbeat()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._drain_notifier.notify_all()
        if self._transport is None:
            if not self.closed.done():
                self.closed.set_result(None)
        elif isinstance(terminated.error, errors.ConnectionLostError | errors.CannotConnectError):
            self._transport.abort()
        else:
            self._flush()  # close-ok, if the broker closed the connection
            self._transport.close()
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)
        self._handler(terminated)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def _schedule_flush(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._transport is None or self._transport.is_closing():
            return
        if self.session.output and not self._is_writing_paused:
            self._write_count += 1
            self._transport.write(self.session.take_output())
        self._wake_drainers()

    def call_and_flush(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write the output of `call` at once, not in the next iteration of the loop, for lower latency."""
        # While the flag is set, `_schedule_flush` does nothing.
        scheduled, self._is_flush_scheduled = self._is_flush_scheduled, True
        try:
            return call(*args, **kwargs)
        finally:
            self._is_flush_scheduled = scheduled
            self._flush()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._flush()

    def has_output_capacity(self) -> bool:
        """Return whether output is below the high-water mark and the broker accepts messages."""
        return (
            not self._is_writing_paused
            and self.blocked_reason is None
            and self.session.output_bytes < OUTPUT_HIGH_WATER_BYTES
        )

    async def drain(self) -> None:
        """Wait until output is below the high-water mark and the broker accepts messages."""
        while self._error is None and not self.has_output_capacity():
            with self.wait_counter:
                await self._drain_notifier.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _wake_drainers(self) -> None:
        if self._drain_notifier.has_waiters and self.has_output_capacity():
            self._drain_notifier.notify_all()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def count_buffered(self, size_bytes: int) -> None:
        """Add to the size of the deliveries that consumers buffer; a negative size subtracts.

        This may resume reading. It does not pause it: `buffer_updated` does, after the events of a read.
        """
        self.buffered_bytes += size_bytes
        if self.is_reading_paused:
            self.update_reading()

    def update_reading(self) -> None:
        """Pause or resume reading according to the buffered deliveries (CPR2)."""
        if self._transport is None or self._transport.is_closing():
            return
        pause = (
            self.session.state is SessionState.OPEN
            and self.buffered_bytes > DELIVERY_BUFFER_MAX_BYTES
            and not self.wait_counter.count
        )
        if pause is not self.is_reading_paused:
            self.is_reading_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────

    def _schedule_heartbeat(self) -> None:
        self._heartbeat_timer = self._loop.call_later(
            self.session.heartbeat / 2, self._tick_heartbeat
        )

    def _cancel_heartbeat(self) -> None:
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()

    def _tick_heartbeat(self) -> None:
        """Twice per interval: send a heartbeat if nothing was written; fail after 2 intervals without input."""
        wrote_nothing = self._write_count == self._write_count_at_tick
        # The heartbeat itself counts as one write; it must not suppress the next one.
        self._write_count_at_tick = self._write_count + wrote_nothing
        if wrote_nothing:
            self.session.send_heartbeat()
        has_read = self._read_count != self._read_count_at_tick or self.is_reading_paused
        self._read_count_at_tick = self._read_count
        self._silent_ticks = 0 if has_read else self._silent_ticks + 1
        if self._silent_ticks >= 4:
            self.fail(
                errors.ConnectionLostError(
                    f"the broker sent nothing for {2 * self.session.heartbeat} s "
                    f"(2 × heartbeat, setting heartbeat={self.session.heartbeat})"
                )
            )
        else:
            self._schedule_heartbeat()
