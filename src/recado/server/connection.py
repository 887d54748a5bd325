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

from .session import Session, State

if TYPE_CHECKING:
    from .listener import Server

log = logging.getLogger("recado.server")

# The transport copies what the socket does not take into a buffer of its own, one per slow reader, and such
# buffers leave holes in the heap. So it is given little at a time; the rest waits in the outbox.
WRITE_HIGH = 64 * 1024
WRITE_SIZE = 256 * 1024
CLOSE_SECONDS = 5.0  # for a client to answer connection.close
REFUSAL_SECONDS = 1.0  # before a client that is not told of a refusal sees the socket close


def clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_beat_timer",
        "_blocked",
        "_end_timer",
        "_ending",
        "_finished",
        "_opening",
        "_paused_for_others",
        "_quiet_beats",
        "_reads",
        "_reads_seen",
        "_server",
        "_unsent",
        "_writes",
        "_writes_seen",
        "full_since",
        "overfull_since",
        "peer",
        "reading_paused",
        "session",
        "transport",
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
        self._paused_for_others = False
        self.full_since = 0.0  # when the socket took something for the last time
        self._unsent = 0
        self.overfull_since: float | None = None
        self._reads = self._reads_seen = 0
        self._writes = self._writes_seen = 0
        self._quiet_beats = 0
        self._beat_timer: asyncio.TimerHandle | None = None

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self._server
        server.connections.add(self)
        # Not before: many protocols may be created before the first of them is connected, and counted.
        wake = partial(server.flush_soon, self)
        self.session = Session(
            server.broker, server.offer, self._verify, wake, server.full_reason()
        )
        self.transport.set_write_buffer_limits(WRITE_HIGH)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "local"
        self._end_timer: asyncio.TimerHandle = server.loop.call_later(
            server.limits.handshake_seconds, self._handshake_over
        )
        if server.is_overrun():
            server.turned_away += 1
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reads += 1
        session, server = self.session, self._server
        if server.alarm is not None:
            session.publishes = False
        now = clock()
        server.begin_read()
        try:
            session.receive(bytes(server.buffer[:nbytes]), now)
        except Exception as error:  # noqa: BLE001 - see _fault
            self._fault(error, now)
        if server.alarm is not None and session.is_publishing:
            self.pause_publisher(server.alarm)
        # All that it would find out, for the many times that there is nothing: 1 µs of 40.
        changing = self._opening or self._blocked or self.reading_paused
        if nbytes == len(server.buffer) and server.reads_repeatedly:
            self._pause_for_others()
        elif changing or session.has_more or session.state is not State.OPEN:
            self._look_after()
        server.end_read()

    def _pause_for_others(self) -> None:
        """Read on in the next turn of the loop. uvloop reads up to 32 times from a socket that fills the buffer
        before it looks at any other: a busy publisher had an idle client wait 0.5 s, and it is 20 ms so."""
        self._paused_for_others = True
        self._look_after()
        self._server.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._paused_for_others = False
        self._look_after()

    def _fault(self, error: Exception, now: int) -> None:
        """A fault of ours costs the client that met it, and nobody else."""
        log.error("connection from %s", self.peer, exc_info=error)
        self.session.fail(InternalError("see the broker's log"), now)

    def _look_after(self) -> None:
        """What may have to be done once the session has handled something."""
        session, loop = self.session, self._server.loop
        if session.state is State.OPEN:
            if self._opening:
                self._opened()
        elif session.state in (State.CLOSING, State.CLOSED) and not self._ending:
            self._ending = True
            self._cancel_timers()
            self._end_timer = loop.call_later(CLOSE_SECONDS, self.transport.abort)
        if session.is_done:
            self._finish()
        more = session.has_more
        if more and not session.is_stalled:
            self._server.flush_soon(self)
        hold = more or self._paused_for_others or (self._blocked and session.state is State.OPEN)
        if hold is not self.reading_paused and not self.transport.is_closing():
            self.reading_paused = hold
            if hold:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        self._server.arm()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._cancel_timers()
        self.session.end(clock())
        self.session.detach()
        self._server.arm()
        # asyncio's transport refers to itself by this, until the garbage collector looks at it.
        if hasattr(self.transport, "_read_ready_cb"):
            self.transport._read_ready_cb = None

    def pause_writing(self) -> None:
        self.writing_paused = True
        self.full_since = self._server.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        self._server.overfull.add(self)

    def resume_writing(self) -> None:
        self.writing_paused = False
        self.overfull_since = None
        self._server.overfull.discard(self)
        self._server.flush_soon(self)

    def note_progress(self, now: float) -> None:
        """However slowly a peer reads, it is not one that takes nothing."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self.full_since = now
        self._unsent = unsent

    def unread(self) -> int:
        """Bytes that the peer has not taken."""
        return self.transport.get_write_buffer_size() + self.session.backlog

    def drop(self, why: str) -> None:
        """End a connection whose peer would not hear why."""
        log.warning("connection from %s ends: %s", self.peer, why)
        self.transport.abort()

    def shut_down(self) -> None:
        self.session.shut_down(clock())
        self._look_after()

    def leave(self) -> None:
        """Close the socket; what the peer does not take by now is lost.

        A peer that speaks TLS would be asked to take its leave, and waited for.
        """
        if self.transport.get_write_buffer_size() or not self.transport.can_write_eof():
            self.transport.abort()
        else:
            self.transport.close()

    # ── output ────────────────────────────────────────────────────────────────────────────────────────

    def write(self) -> None:
        """What there is, unless the socket is full, or gone."""
        session = self.session
        if self.transport.is_closing():  # uvloop's raises then
            return
        while session.output and not self.writing_paused:
            output = session.take(WRITE_SIZE)
            self._writes += 1
            self.transport.write(output[0] if len(output) == 1 else b"".join(output))

    def proceed(self) -> None:
        """With what had to wait for that."""
        session = self.session
        if self.writing_paused:
            return
        if session.congested or session.has_more:
            self._go_on()
        elif session.is_done:
            self._finish()

    def _go_on(self) -> None:
        session, now = self.session, clock()
        try:
            session.keeps_up(now)
            session.go_on(now)
        except Exception as error:  # noqa: BLE001 - see _fault
            self._fault(error, now)
        self._look_after()

    def _finish(self) -> None:
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

    def _handshake_over(self) -> None:
        self.drop("its handshake took too long")

    def _verify(self, session: Session, credentials: Credentials) -> None:
        self._server.logins.verify(self, credentials)

    def refuse(self) -> None:
        self.session.refuse()
        if self.session.state is State.REFUSED:
            self._server.loop.call_later(REFUSAL_SECONDS, self.transport.close)

    def _opened(self) -> None:
        self._opening = False
        self._cancel_timers()
        if self.session.heartbeat:
            self._schedule_beat()

    def _cancel_timers(self) -> None:
        self._end_timer.cancel()
        if self._beat_timer is not None:
            self._beat_timer.cancel()

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────

    def _schedule_beat(self) -> None:
        self._beat_timer = self._server.loop.call_later(self.session.heartbeat / 2, self._beat)

    def _beat(self) -> None:
        """Twice per interval: say something if we said nothing, and end what was silent for two intervals."""
        silent = self._writes == self._writes_seen
        self._writes_seen = self._writes + silent  # the beat itself is no reason to skip the next
        if silent:
            self.session.beat()
        heard = self._reads != self._reads_seen or self.reading_paused
        self._reads_seen = self._reads
        self._quiet_beats = 0 if heard else self._quiet_beats + 1
        if self._quiet_beats >= 4:
            self.drop("it has been silent for two heartbeats")
        else:
            self._schedule_beat()

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────

    def pause_publisher(self, reason: str) -> None:
        if not self._blocked:
            self._blocked = True
            self.session.block(reason)
            self._server.blocked.add(self)

    def resume_publisher(self) -> None:
        self._blocked = False
        self.session.unblock()
        self._look_after()
