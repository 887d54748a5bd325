"""A session on a socket: reads, writes, heartbeats, and the ends that a connection can come to.

What a session writes is gathered in its outbox and written at the end of a turn of the loop, as far as the
socket takes it. Whatever stops here has its restart: reading waits for the outbox to empty, the outbox for
`resume_writing`, deliveries for the flush that found the socket taking everything.
"""

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, cast

from recado.amqp.errors import InternalError
from recado.amqp.handshake import Credentials

from .session import Session, SessionState

if TYPE_CHECKING:
    from .server import Server

log = logging.getLogger("recado.server")

# The transport copies what the socket does not take into a buffer of its own, one per slow reader, and such
# buffers leave holes in the heap. So it is given little at a time; the rest waits in the outbox.
WRITE_BUFFER_MAX_BYTES = 64 * 1024
WRITE_CHUNK_BYTES = 256 * 1024
CLOSE_TIMEOUT_S = 5.0  # for a client to answer connection.close
REFUSAL_DELAY_S = 1.0  # before a client that is not told of a refusal sees the socket close


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_blocked",
        "_ending",
        "_finished",
        "_heartbeat_timer",
        "_opening",
        "_read_count",
        "_read_count_seen",
        "_server",
        "_silent_intervals",
        "_timeout_timer",
        "_unsent_bytes",
        "_write_count",
        "_write_count_seen",
        "_yielding",
        "last_write_progress",
        "peer",
        "reading_paused",
        "session",
        "transport",
        "unread_since",
        "writing_paused",
    )

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.writing_paused = False
        self.reading_paused = False
        self._opening = True
        self._ending = False
        self._finished = False
        self._blocked = False  # by an alarm
        self._yielding = False
        self.last_write_progress = 0.0  # when the socket took something for the last time
        self._unsent_bytes = 0
        self.unread_since: float | None = None
        self._read_count = self._read_count_seen = 0
        self._write_count = self._write_count_seen = 0
        self._silent_intervals = 0
        self._heartbeat_timer: asyncio.TimerHandle | None = None

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self._server
        server.connections.add(self)
        # Not before: many protocols may be created before the first of them is connected, and counted.
        wake = partial(server.request_flush, self)
        self.session = Session(
            server.broker, server.options, self._verify, wake, server.refusal_reason()
        )
        self.transport.set_write_buffer_limits(WRITE_BUFFER_MAX_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "local"
        self._timeout_timer: asyncio.TimerHandle = server.loop.call_later(
            server.limits.handshake_timeout, self._on_handshake_timeout
        )
        if server.is_overloaded():
            server.aborted_count += 1
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._read_count += 1
        session, server = self.session, self._server
        if server.alarm is not None:
            session.has_published = False
        now = now_ms()
        server.begin_turn()
        try:
            session.receive(bytes(server.read_buffer[:nbytes]), now)
        except Exception as error:  # noqa: BLE001 - see _fault
            self._handle_internal_error(error, now)
        if server.alarm is not None and session.is_publishing:
            self.block_publisher(server.alarm)
        # All that it would find out, for the many times that there is nothing: 1 µs of 40.
        changing = self._opening or self._blocked or self.reading_paused
        if nbytes == len(server.read_buffer) and server.reads_repeatedly_per_turn:
            self._yield_to_other_connections()
        elif changing or session.has_input or session.state is not SessionState.OPEN:
            self._sync_transport()
        server.end_turn()

    def _yield_to_other_connections(self) -> None:
        """Read on in the next turn of the loop. uvloop reads up to 32 times from a socket that fills the buffer
        before it looks at any other: a busy publisher had an idle client wait 0.5 s, and it is 20 ms so."""
        self._yielding = True
        self._sync_transport()
        self._server.loop.call_soon(self._resume_after_yield)

    def _resume_after_yield(self) -> None:
        self._yielding = False
        self._sync_transport()

    def _handle_internal_error(self, error: Exception, now: int) -> None:
        """A fault of ours costs the client that met it, and nobody else."""
        log.error("connection from %s", self.peer, exc_info=error)
        self.session.fail(InternalError("see the broker's log"), now)

    def _sync_transport(self) -> None:
        """What may have to be done once the session has handled something."""
        session, loop = self.session, self._server.loop
        if session.state is SessionState.OPEN:
            if self._opening:
                self._on_open()
        elif session.state in (SessionState.CLOSING, SessionState.CLOSED) and not self._ending:
            self._ending = True
            self._cancel_timers()
            self._timeout_timer = loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)
        if session.is_finished:
            self._half_close()
        more = session.has_input
        if more and not session.is_stalled:
            self._server.request_flush(self)
        hold = more or self._yielding or (self._blocked and session.state is SessionState.OPEN)
        if hold is not self.reading_paused and not self.transport.is_closing():
            self.reading_paused = hold
            if hold:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        self._server.schedule_pending()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove_connection(self)
        self._cancel_timers()
        self.session.terminate(now_ms())
        self.session.detach()
        self._server.schedule_pending()
        # asyncio's transport refers to itself by this, until the garbage collector looks at it.
        if hasattr(self.transport, "_read_ready_cb"):
            self.transport._read_ready_cb = None

    def pause_writing(self) -> None:
        self.writing_paused = True
        self.last_write_progress = self._server.loop.time()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._server.write_paused.add(self)

    def resume_writing(self) -> None:
        self.writing_paused = False
        self.unread_since = None
        self._server.write_paused.discard(self)
        self._server.request_flush(self)

    def update_write_progress(self, now: float) -> None:
        """However slowly a peer reads, it is not one that takes nothing."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent_bytes:
            self.last_write_progress = now
        self._unsent_bytes = unsent

    def unread_bytes(self) -> int:
        """Bytes that the peer has not taken."""
        return self.transport.get_write_buffer_size() + self.session.unsent_bytes

    def abort(self, reason: str) -> None:
        """End a connection whose peer would not hear why."""
        log.warning("connection from %s ends: %s", self.peer, reason)
        self.transport.abort()

    def shut_down(self) -> None:
        self.session.shut_down(now_ms())
        self._sync_transport()

    def close_socket(self) -> None:
        """Close the socket; what the peer does not take by now is lost.

        A peer that speaks TLS would be asked to take its leave, and waited for.
        """
        if self.transport.get_write_buffer_size() or not self.transport.can_write_eof():
            self.transport.abort()
        else:
            self.transport.close()

    # ── output ────────────────────────────────────────────────────────────────────────────────────────

    def write_output(self) -> None:
        """What there is, unless the socket is full, or gone."""
        session = self.session
        if self.transport.is_closing():  # uvloop's raises then
            return
        while session.output and not self.writing_paused:
            output = session.take_output(WRITE_CHUNK_BYTES)
            self._write_count += 1
            self.transport.write(output[0] if len(output) == 1 else b"".join(output))

    def resume_input(self) -> None:
        """With what had to wait for that."""
        session = self.session
        if self.writing_paused:
            return
        if session.congested or session.has_input:
            self._continue_input()
        elif session.is_finished:
            self._half_close()

    def _continue_input(self) -> None:
        session, now = self.session, now_ms()
        try:
            session.on_drained(now)
            session.process_input(now)
        except Exception as error:  # noqa: BLE001 - see _fault
            self._handle_internal_error(error, now)
        self._sync_transport()

    def _half_close(self) -> None:
        """End our half and read on until the peer ends its own: it may be writing still.

        Closing a socket on which unread bytes arrive would reset it, and the peer could lose our last words.
        """
        if not self.transport.can_write_eof():
            self.transport.close()
        elif not self._finished and not self.transport.is_closing():
            self._finished = True
            try:
                self.transport.write_eof()
            except OSError:  # the peer has just reset it
                self.transport.abort()

    # ── login ─────────────────────────────────────────────────────────────────────────────────────────

    def _on_handshake_timeout(self) -> None:
        self.abort("its handshake took too long")

    def _verify(self, session: Session, credentials: Credentials) -> None:
        self._server.authenticator.verify(self, credentials)

    def refuse_login(self) -> None:
        self.session.refuse_login()
        if self.session.state is SessionState.REFUSED:
            self._server.loop.call_later(REFUSAL_DELAY_S, self.transport.close)

    def _on_open(self) -> None:
        self._opening = False
        self._cancel_timers()
        if self.session.heartbeat:
            self._schedule_heartbeat()

    def _cancel_timers(self) -> None:
        self._timeout_timer.cancel()
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────

    def _schedule_heartbeat(self) -> None:
        self._heartbeat_timer = self._server.loop.call_later(
            self.session.heartbeat / 2, self._check_heartbeat
        )

    def _check_heartbeat(self) -> None:
        """Twice per interval: say something if we said nothing, and end what was silent for two intervals."""
        silent = self._write_count == self._write_count_seen
        self._write_count_seen = (
            self._write_count + silent
        )  # the beat itself is no reason to skip the next
        if silent:
            self.session.send_heartbeat()
        heard = self._read_count != self._read_count_seen or self.reading_paused
        self._read_count_seen = self._read_count
        self._silent_intervals = 0 if heard else self._silent_intervals + 1
        if self._silent_intervals >= 4:
            self.abort("it has been silent for two heartbeats")
        else:
            self._schedule_heartbeat()

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────

    def block_publisher(self, reason: str) -> None:
        if not self._blocked:
            self._blocked = True
            self.session.send_blocked(reason)
            self._server.blocked.add(self)

    def unblock_publisher(self) -> None:
        self._blocked = False
        self.session.send_unblocked()
        self._sync_transport()
