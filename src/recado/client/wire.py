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
from recado.amqp.values import Table

from . import errors
from .address import Address
from .occurrences import BlockChanged, Ended, Occurrence
from .session import Session, State
from .waits import Waiters, Waits

P = ParamSpec("P")
T = TypeVar("T")

READ = 256 * 1024  # bytes at a time
WRITE_HIGH = 256 * 1024  # bytes that the transport holds before it says stop
ROOM_BELOW = 1 << 20  # bytes in the session and the transport up to which there is room for more
BUFFERED_MOST = 32 << 20  # bytes of deliveries that nobody has taken yet, before reading stops
CLOSE_SECONDS = 5.0  # for the broker to answer connection.close


class _Buffers(local):
    """One for all connections of a thread: a read is turned into bytes before the next. asyncio's own way, a
    new one for each read, takes 20 µs more, for what is this large comes from the system and goes back to it.
    """

    def __init__(self) -> None:
        self.read = memoryview(bytearray(READ))


_buffers: Final = _Buffers()


class Wire(asyncio.BufferedProtocol):
    def __init__(
        self,
        address: Address,
        properties: Table,
        waits: Waits,
        handler: Callable[[Occurrence], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._buffer = _buffers.read
        self._transport: asyncio.Transport | None = None
        self._flushing = False
        self._writing_paused = False
        self.reading_paused = False
        self._drainers = Waiters()
        self._heard = self._heard_before = 0
        self._wrote = self._wrote_before = 0
        self._quiet_beats = 0
        self._beat_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self.blocked: str | None = None  # why the broker takes no messages now
        self.buffered = 0  # bytes of deliveries that nobody has taken yet
        self.closed = self._loop.create_future()  # when the socket is gone
        self.waits = waits
        waits.look = self.look_at_reading
        self.session = Session(address, properties, self._flush_soon)

    # ── the socket ────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._heard += 1
        for occurrence in self.session.receive(bytes(self._buffer[:nbytes])):
            match occurrence:
                case Delivered():
                    pass
                case BlockChanged(reason):
                    self.blocked = reason
                    self._release()
                case Ended():
                    self._end(occurrence)
                    return
                case _:
                    pass
            self._handler(occurrence)
        if self.buffered > BUFFERED_MOST or self.reading_paused:
            self.look_at_reading()

    def eof_received(self) -> bool:
        self.fail(self.session.cut_off())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self.fail(self.session.cut_off())
        else:
            self.fail(self._reset(exc))
        if self._end_timer is not None:
            self._end_timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)

    def _reset(self, exc: Exception) -> Exception:
        """A socket that breaks is as good as one that is closed: brokers reset those that they refuse."""
        found = self.session.cut_off()
        found.__cause__ = exc
        return found

    def opened(self) -> None:
        """From now on silence is a sign of death."""
        if self.session.heartbeat:
            self._schedule_beat()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────

    def fail(self, error: Exception) -> None:
        """The connection ends here, for this reason, unless it has ended already."""
        ended = self.session.lose(error)
        if ended is not None:
            self._end(ended)

    def close(self) -> None:
        """Part in order; if the broker does not answer, without it."""
        if self.session.state is State.OPEN:
            self.session.close()
            self._cancel_beat()
            self._end_timer = self._loop.call_later(
                CLOSE_SECONDS, self.fail, errors.ConnectionClosed()
            )
            self.look_at_reading()
        elif self.session.state is State.OPENING:
            self.fail(errors.ConnectionClosed())

    def _end(self, ended: Ended) -> None:
        self._error = ended.error
        self._cancel_beat()
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._drainers.wake()
        if self._transport is None:
            if not self.closed.done():
                self.closed.set_result(None)
        elif isinstance(ended.error, errors.ConnectionLost | errors.CannotConnect):
            self._transport.abort()
        else:
            self._flush()  # the answer to the broker's last word
            self._transport.close()
            self._end_timer = self._loop.call_later(CLOSE_SECONDS, self._transport.abort)
        self._handler(ended)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is None or self._transport.is_closing():
            return
        if self.session.output and not self._writing_paused:
            self._wrote += 1
            self._transport.write(self.session.take())
        self._release()

    def write_at_once(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `call` has to say goes out now, not at the end of the turn: somebody waits for the answer."""
        scheduled, self._flushing = self._flushing, True
        try:
            return call(*args, **kwargs)
        finally:
            self._flushing = scheduled
            self._flush()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._flush()

    def has_room(self) -> bool:
        return (
            not self._writing_paused and self.blocked is None and self.session.backlog < ROOM_BELOW
        )

    async def drain(self) -> None:
        """Wait until there is room for more, and the broker takes messages."""
        while self._error is None and not self.has_room():
            with self.waits:
                await self._drainers.wait()
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _release(self) -> None:
        if self._drainers.are_any and self.has_room():
            self._drainers.wake()

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────

    def look_at_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        open_ = self.session.state is State.OPEN
        pause = open_ and self.buffered > BUFFERED_MOST and not self.waits.count
        if pause is not self.reading_paused:
            self.reading_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────

    def _schedule_beat(self) -> None:
        self._beat_timer = self._loop.call_later(self.session.heartbeat / 2, self._beat)

    def _cancel_beat(self) -> None:
        if self._beat_timer is not None:
            self._beat_timer.cancel()

    def _beat(self) -> None:
        """Twice per interval: say something if we said nothing, and end what was silent for two intervals."""
        silent = self._wrote == self._wrote_before
        self._wrote_before = self._wrote + silent  # the beat itself is no reason to skip the next
        if silent:
            self.session.beat()
        heard = self._heard != self._heard_before or self.reading_paused
        self._heard_before = self._heard
        self._quiet_beats = 0 if heard else self._quiet_beats + 1
        if self._quiet_beats >= 4:
            self.fail(
                errors.ConnectionLost(
                    f"the broker has been silent for {2 * self.session.heartbeat} s, two heartbeats"
                )
            )
        else:
            self._schedule_beat()
