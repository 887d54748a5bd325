"""A session on a socket: reads, writes, heartbeats, and back-pressure both ways.

What is written during a turn of the loop goes out together at its end. While the socket does not take it, it
waits in the session, and `drain` with it.

W1  Whoever waits in `drain` goes on when there is room, or gets the error that ended the connection.
W2  Reading stops only while nobody waits for the broker: what they wait for may be behind what is not read.
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

READ_BUFFER_BYTES = 256 * 1024  # bytes at a time
WRITE_HIGH_WATER_BYTES = 256 * 1024  # bytes that the transport holds before it says stop
OUTPUT_HIGH_WATER_BYTES = (
    1 << 20
)  # bytes in the session and the transport up to which there is room for more
DELIVERY_BUFFER_MAX_BYTES = (
    32 << 20
)  # bytes of deliveries that nobody has taken yet, before reading stops
CLOSE_TIMEOUT_S = 5.0  # for the broker to answer connection.close


class _ThreadReadBuffer(local):
    """One for all connections of a thread: a read is turned into bytes before the next. asyncio's own way, a
    new one for each read, takes 20 µs more, for what is this large comes from the system and goes back to it.
    """

    def __init__(self) -> None:
        self.read = memoryview(bytearray(READ_BUFFER_BYTES))


_thread_read_buffer: Final = _ThreadReadBuffer()


class ConnectionProtocol(asyncio.BufferedProtocol):
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
        self.blocked_reason: str | None = None  # why the broker takes no messages now
        self.buffered_bytes = 0  # bytes of deliveries that nobody has taken yet
        self.closed = self._loop.create_future()  # when the socket is gone
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
        """A socket that breaks is as good as one that is closed: brokers reset those that they refuse."""
        found = self.session.make_eof_error()
        found.__cause__ = exc
        return found

    def start_heartbeats(self) -> None:
        """From now on silence is a sign of death."""
        if self.session.heartbeat:
            self._schedule_heartbeat()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────

    def fail(self, error: Exception) -> None:
        """The connection ends here, for this reason, unless it has ended already."""
        ended = self.session.terminate(error)
        if ended is not None:
            self._terminate(ended)

    def close(self) -> None:
        """Part in order; if the broker does not answer, without it."""
        if self.session.state is SessionState.OPEN:
            self.session.close()
            self._cancel_heartbeat()
            self._close_timer = self._loop.call_later(
                CLOSE_TIMEOUT_S, self.fail, errors.ConnectionClosedByClientError()
            )
            self.update_reading()
        elif self.session.state is SessionState.OPENING:
            self.fail(errors.ConnectionClosedByClientError())

    def _terminate(self, ended: ConnectionTerminated) -> None:
        self._error = ended.error
        self._cancel_heartbeat()
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._drain_notifier.notify_all()
        if self._transport is None:
            if not self.closed.done():
                self.closed.set_result(None)
        elif isinstance(ended.error, errors.ConnectionLostError | errors.CannotConnectError):
            self._transport.abort()
        else:
            self._flush()  # the answer to the broker's last word
            self._transport.close()
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)
        self._handler(ended)

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
        """What `call` has to say goes out now, not at the end of the turn: somebody waits for the answer."""
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
        return (
            not self._is_writing_paused
            and self.blocked_reason is None
            and self.session.output_bytes < OUTPUT_HIGH_WATER_BYTES
        )

    async def drain(self) -> None:
        """Wait until there is room for more, and the broker takes messages."""
        while self._error is None and not self.has_output_capacity():
            with self.wait_counter:
                await self._drain_notifier.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _wake_drainers(self) -> None:
        if self._drain_notifier.has_waiters and self.has_output_capacity():
            self._drain_notifier.notify_all()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def update_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        open_ = self.session.state is SessionState.OPEN
        pause = (
            open_
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
        """Twice per interval: say something if we said nothing, and end what was silent for two intervals."""
        silent = self._write_count == self._write_count_at_tick
        self._write_count_at_tick = (
            self._write_count + silent
        )  # the beat itself is no reason to skip the next
        if silent:
            self.session.send_heartbeat()
        heard = self._read_count != self._read_count_at_tick or self.is_reading_paused
        self._read_count_at_tick = self._read_count
        self._silent_ticks = 0 if heard else self._silent_ticks + 1
        if self._silent_ticks >= 4:
            self.fail(
                errors.ConnectionLostError(
                    f"the broker has been silent for {2 * self.session.heartbeat} s, two heartbeats"
                )
            )
        else:
            self._schedule_heartbeat()
