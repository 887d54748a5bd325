"""The asyncio protocol of one client connection: runs a `Session` on a socket.

A session collects its output in its output buffer. The server writes it at the end of a turn of the event loop,
as far as the socket takes it. Backpressure works in both directions, and each pause has its own resumption:
reading pauses while the session has input that it cannot handle yet, writing pauses until asyncio calls
`resume_writing`, deliveries pause until the socket has taken the output.
"""

import asyncio
import logging
import time
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, cast

from recado.amqp.errors import InternalError
from recado.amqp.handshake import EXTERNAL, Credentials
from recado.broker.access import User
from recado.broker.observer import Change

from .certificate_login import PeerCertificate
from .options import PASSWORD_MECHANISMS
from .session import LOCAL_END, ConnectionEnd, Session, SessionState

if TYPE_CHECKING:
    from .server import Server

log = logging.getLogger("recado.server")

# The transport copies whatever the socket does not take into a buffer of its own, one per slow client, and such
# buffers fragment the heap. So the transport gets little at a time; the rest waits in the output buffer of the
# session.
PROTOCOL = "amqp091"  # as RabbitMQ names it in statistics
WRITE_BUFFER_MAX_BYTES = 64 * 1024
WRITE_CHUNK_BYTES = 256 * 1024
CLOSE_TIMEOUT_S = 5.0  # for a client to answer connection.close
# Before the socket closes, for clients that do not understand a login refusal.
REFUSAL_DELAY_S = 1.0
EXPIRY_CHECK_INTERVAL_S = 60.0  # of the time at which a token expires, by the clock of the system
SILENT_CHECKS_MAX = 4  # heartbeats are checked twice per interval: a client may miss two


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class ConnectionPhase(Enum):
    """Which timer runs: that of the handshake, of heartbeats, or of closing."""

    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()


class Connection(asyncio.BufferedProtocol):
    """The protocol of one client socket. It owns a `Session` and its timers, and pauses its transport."""

    __slots__ = (
        "_blocked",
        "_eof_sent",
        "_expiry_timer",
        "_heartbeat_timer",
        "_last_write_progress",
        "_phase",
        "_read_count",
        "_read_count_seen",
        "_server",
        "_silent_checks",
        "_timeout_timer",
        "_unread_since",
        "_unsent_bytes",
        "_write_count",
        "_write_count_seen",
        "_yielding",
        "connected_at_ms",
        "peer",
        "reading_paused",
        "received_bytes",
        "sent_bytes",
        "session",
        "transport",
        "writing_paused",
    )

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._phase = ConnectionPhase.HANDSHAKE
        self._eof_sent = False
        # Reasons to pause reading, besides input that the session cannot handle yet.
        self._blocked = False  # a memory or disk alarm blocks publishers
        self._yielding = False  # other connections are read first
        # The state of the transport.
        self.reading_paused = False
        self.writing_paused = False
        self._last_write_progress = 0.0  # when the socket last took bytes while writing was paused
        self._unread_since: float | None = None  # when the client began to leave too much unread
        self._unsent_bytes = 0
        self.received_bytes = self.sent_bytes = 0
        self.connected_at_ms = now_ms()
        self._read_count = self._read_count_seen = 0
        self._write_count = self._write_count_seen = 0
        self._silent_checks = 0
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self._server
        server.connections.add(self)
        # The session is created here because asyncio may create many protocols before the first of them is
        # connected and counted.
        on_output = partial(server.request_flush, self)
        mechanisms: tuple[str, ...] = PASSWORD_MECHANISMS
        if server.options.certificate_login is not None and self.peer_certificate:
            mechanisms = (*mechanisms, EXTERNAL)
        self.session = Session(
            server.broker,
            server.options,
            self._verify,
            on_output,
            server.refusal_reason(),
            mechanisms,
            self._update_secret,
            (_read_end(transport, "peername"), _read_end(transport, "sockname")),
        )
        self.transport.set_write_buffer_limits(WRITE_BUFFER_MAX_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "local"
        self._timeout_timer: asyncio.TimerHandle = server.loop.call_later(
            server.limits.handshake_timeout, self._on_handshake_timeout
        )
        if server.is_overloaded():
            server.count_aborted()
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._read_count += 1
        self.received_bytes += nbytes
        session, server = self.session, self._server
        if server.alarm is not None:
            session.has_published = False
        now = now_ms()
        server.begin_turn()
        try:
            session.receive(bytes(server.read_buffer[:nbytes]), now)
        except Exception as error:  # noqa: BLE001 - see _handle_internal_error
            self._handle_internal_error(error, now)
        if server.alarm is not None and session.is_publishing:
            self.block_publisher(server.alarm)
        # Most reads change nothing that concerns the transport; checking here saves 1 µs of 40.
        may_change = self._phase is not ConnectionPhase.OPEN or self._blocked or self.reading_paused
        if nbytes == len(server.read_buffer) and server.reads_repeatedly_per_turn:
            self._yield_to_other_connections()
        elif may_change or session.has_input or session.state is not SessionState.OPEN:
            self.sync_transport()
        server.end_turn()

    def _yield_to_other_connections(self) -> None:
        """Continue reading in the next turn of the loop.

        uvloop reads up to 32 times from a socket that fills the buffer before it polls any other socket: a busy
        publisher made an idle client wait 0.5 s; with this it is 20 ms.
        """
        self._yielding = True
        self.sync_transport()
        self._server.loop.call_soon(self._resume_after_yield)

    def _resume_after_yield(self) -> None:
        self._yielding = False
        self.sync_transport()

    def _handle_internal_error(self, error: Exception, now: int) -> None:
        """Close the connection that ran into a bug of the broker; others are not affected."""
        log.error("closing connection: internal error (peer=%s)", self.peer, exc_info=error)
        self.session.fail(InternalError("see the broker's log"), now)

    def sync_transport(self) -> None:
        """Apply the state of the session to the transport: pause or resume reading, arm timers, close."""
        session, loop = self.session, self._server.loop
        if session.state is SessionState.OPEN:
            if self._phase is ConnectionPhase.HANDSHAKE:
                self._on_open()
        elif (
            session.state in (SessionState.CLOSING, SessionState.CLOSED)
            and self._phase is not ConnectionPhase.CLOSING
        ):
            self._phase = ConnectionPhase.CLOSING
            self._cancel_timers()
            self._timeout_timer = loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)
        if session.is_finished:
            self._half_close()
        has_input = session.has_input
        if has_input and not session.is_stalled:
            self._server.request_flush(self)
        must_pause = (
            has_input or self._yielding or (self._blocked and session.state is SessionState.OPEN)
        )
        if must_pause is not self.reading_paused and not self.transport.is_closing():
            self.reading_paused = must_pause
            if must_pause:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        self._server.schedule_pending()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove_connection(self)
        self._cancel_timers()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self.session.terminate(now_ms())
        self.session.detach()
        self._server.schedule_pending()
        # asyncio's transport refers to itself by this attribute, a cycle that only the garbage collector frees.
        if hasattr(self.transport, "_read_ready_cb"):
            self.transport._read_ready_cb = None

    def pause_writing(self) -> None:
        self.writing_paused = True
        self._last_write_progress = self._server.loop.time()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._server.write_paused.add(self)

    def resume_writing(self) -> None:
        self.writing_paused = False
        self._unread_since = None
        self._server.write_paused.discard(self)
        self._server.request_flush(self)

    def check_unread(self, now: float) -> None:
        """While writing is paused: abort if the client leaves too much unread, or reads nothing at all."""
        limits = self._server.limits
        transport_bytes = self.transport.get_write_buffer_size()
        if transport_bytes < self._unsent_bytes:  # a slow reader is not a stalled one
            self._last_write_progress = now
        self._unsent_bytes = transport_bytes
        unread_bytes = transport_bytes + self.session.unsent_bytes
        stalled = now - self._last_write_progress
        if stalled > limits.write_timeout:
            self.abort("write stalled", f"stalled_s={stalled:.0f} unread_bytes={unread_bytes}")
        elif unread_bytes <= limits.unread_max_bytes:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since > limits.unread_timeout:
            settings = "broker.unread_max_bytes,broker.unread_timeout"
            self.abort(
                "client does not read its output",
                f"unread_bytes={unread_bytes} setting={settings}",
            )

    def abort(self, reason: str, fields: str) -> None:
        """Abort a connection whose client would not read connection.close; log the reason with its fields."""
        log.warning("closing connection: %s (peer=%s %s)", reason, self.peer, fields)
        self.transport.abort()

    @property
    def peer_certificate(self) -> PeerCertificate | None:
        """The verified certificate of the client; empty or None if it has none, or without TLS."""
        certificate: PeerCertificate | None = self.transport.get_extra_info("peercert")
        return certificate

    @property
    def io_counts(self) -> tuple[int, int]:
        """The number of reads and of writes."""
        return self._read_count, self._write_count

    @property
    def unsent_bytes(self) -> int:
        """The output that the client has not read yet."""
        return self.transport.get_write_buffer_size() + self.session.unsent_bytes

    @property
    def is_blocked(self) -> bool:
        """Whether an alarm blocks this publisher."""
        return self._blocked

    def close_forced(self, reason: str) -> None:
        """Close the connection at the request of an operator, who gives the reason."""
        self.session.close_forced(reason, now_ms())
        self.sync_transport()

    def shut_down(self) -> None:
        self.session.shut_down(now_ms())
        self.sync_transport()

    def close_socket(self) -> None:
        """Close the socket without waiting for the client; output that it has not read is lost.

        A TLS transport would first send its close_notify and wait for the answer, so it is aborted.
        """
        if self.transport.get_write_buffer_size() or not self.transport.can_write_eof():
            self.transport.abort()
        else:
            self.transport.close()

    # ── output ────────────────────────────────────────────────────────────────────────────────────────

    def write_output(self) -> None:
        """Write the output of the session until the socket is full."""
        session = self.session
        if self.transport.is_closing():  # uvloop's transport would raise
            return
        while session.output and not self.writing_paused:
            output = session.take_output(WRITE_CHUNK_BYTES)
            self._write_count += 1
            data = output[0] if len(output) == 1 else b"".join(output)
            self.sent_bytes += len(data)
            self.transport.write(data)

    def resume_input(self) -> None:
        """After `write_output`: handle input and deliveries that waited for the socket to take the output."""
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
        except Exception as error:  # noqa: BLE001 - see _handle_internal_error
            self._handle_internal_error(error, now)
        self.sync_transport()

    def _half_close(self) -> None:
        """Send EOF and continue reading until the client closes its half.

        Closing a socket on which unread bytes arrive resets it, and the client could lose our last replies.
        """
        if not self.transport.can_write_eof():
            self.transport.close()
        elif not self._eof_sent and not self.transport.is_closing():
            self._eof_sent = True
            try:
                self.transport.write_eof()
            except OSError:  # reset by the client
                self.transport.abort()

    # ── login ─────────────────────────────────────────────────────────────────────────────────────────

    def _on_handshake_timeout(self) -> None:
        timeout = self._server.limits.handshake_timeout
        self.abort("handshake timed out", f"timeout_s={timeout:g} setting=server.handshake_timeout")

    def _verify(self, session: Session, credentials: Credentials) -> None:
        self._server.authenticator.verify(self, credentials)

    def accept_login(self, user: User) -> None:
        self._server.authenticator.count_attempt(PROTOCOL, succeeded=True)
        self.session.accept_login(user)

    def refuse_login(self) -> None:
        self._server.authenticator.count_attempt(PROTOCOL, succeeded=False)
        self.session.refuse_login()
        if self.session.state is SessionState.REFUSED:
            self._server.loop.call_later(REFUSAL_DELAY_S, self.transport.close)

    def _update_secret(self, secret: bytes) -> None:
        self._server.authenticator.update_secret(self, secret)

    def expire_at(self, time_s: float) -> None:
        """Close the connection at this time, in seconds since 1970; a later call replaces the time."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        left_s = time_s - now_ms() / 1000
        if left_s > 0:  # the clock of the system may change, and a timer may be early
            delay_s = min(left_s, EXPIRY_CHECK_INTERVAL_S)
            self._expiry_timer = self._server.loop.call_later(delay_s, self.expire_at, time_s)
        else:
            log.warning("closing connection: token expired (peer=%s)", self.peer)
            self.close_forced("broker forced connection closure with reason 'credential expired'")

    def _on_open(self) -> None:
        self._phase = ConnectionPhase.OPEN
        self._cancel_timers()
        if self.session.heartbeat:
            self._schedule_heartbeat()

    def _cancel_timers(self) -> None:
        self._timeout_timer.cancel()
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────

    def _schedule_heartbeat(self) -> None:
        interval = self.session.heartbeat / 2
        self._heartbeat_timer = self._server.loop.call_later(interval, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        """Twice per interval: send a heartbeat if nothing was sent, and abort a client that is silent."""
        nothing_sent = self._write_count == self._write_count_seen
        # The heartbeat itself must not count as output.
        self._write_count_seen = self._write_count + nothing_sent
        if nothing_sent:
            self.session.send_heartbeat()
        received = self._read_count != self._read_count_seen or self.reading_paused
        self._read_count_seen = self._read_count
        self._silent_checks = 0 if received else self._silent_checks + 1
        if self._silent_checks >= SILENT_CHECKS_MAX:
            interval = self.session.heartbeat
            self.abort("missed heartbeats", f"heartbeat_s={interval} setting=server.heartbeat")
        else:
            self._schedule_heartbeat()

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────

    def block_publisher(self, reason: str) -> None:
        """Stop reading from a client that publishes while memory or disk is short."""
        if not self._blocked:
            self._blocked = True
            self._server.broker.observer.connection_changed(Change.BLOCKED, self.session)
            self.session.send_blocked(reason)
            self._server.blocked.add(self)

    def unblock_publisher(self) -> None:
        self._blocked = False
        self._server.broker.observer.connection_changed(Change.UNBLOCKED, self.session)
        self.session.send_unblocked()
        self.sync_transport()


def _read_end(transport: asyncio.BaseTransport, key: str) -> ConnectionEnd:
    """Return the address and the port of one end of a socket: `peername` or `sockname`."""
    address = transport.get_extra_info(key)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else LOCAL_END
