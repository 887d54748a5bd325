"""The open event streams: their limits, the order in which they are written to, and their end.

A change is noted by the recorder, rendered once some milliseconds later, and appended to the log. Each stream is a
task that waits for its turn, collects the events that its user may see, and writes them. At most
`WRITERS_PER_TURN_COUNT` streams are written to in one turn of the event loop, so that a change that concerns
hundreds of readers delays no message.

A task whose client does not read waits in its write; meanwhile the stream is only a position in the log. All
streams are checked once a second and after each change of a user: if the user was deleted, the connection is
closed even if its client does not read.

While no stream is open, the broker has no observer, and nothing is measured. After the last stream is closed, the
recorder stays for `LINGER_S`, so that a client that reconnects misses nothing.

ES1  At most `STREAMS_MAX_COUNT` streams are open, and `STREAMS_OF_USER_MAX_COUNT` of one user.
ES2  Until the node stops, the broker has this observer if and only if a stream is open, or was in the last `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from recado.broker.observer import IGNORE_CHANGES
from recado.server.connection import now_ms

from ..request import ApiError
from . import types
from .figures import INTERVAL_S, LiveFigures
from .log import EventLog
from .reader import EndReason, EventReader, QueueName, StreamRequest
from .recorder import ChangeRecorder

if TYPE_CHECKING:
    from ..console import Console

log = logging.getLogger("recado.console")

STREAMS_MAX_COUNT: Final = 256
STREAMS_OF_USER_MAX_COUNT: Final = 32
FIRST_DELAY_S: Final = 0.02  # from a change after a quiet time to its event
FLUSH_INTERVAL_S: Final = 0.2
WRITERS_PER_TURN_COUNT: Final = 4  # about 0.1 ms each
HEARTBEAT_S: Final = 15.0  # proxies close connections that are silent for a minute
RETRY_MS: Final = 2_000  # after which a browser reconnects
LINGER_S: Final = 60.0
UNREAD_TIMEOUT_S: Final = 60.0  # for the client to read


class StreamLimitError(ApiError):
    """Too many streams are open. The connection of the request is closed, so that it is not held instead."""

    closes_connection = True


class StreamWriter(Protocol):
    """The HTTP response of a stream."""

    @property
    def is_connected(self) -> bool:
        """Whether the client has not closed its connection."""

    async def write(self, data: bytes) -> None:
        """Write, and wait until the client has read enough. Raises `ConnectionError`."""

    def abort(self) -> None:
        """Close the connection at once; a `write` that waits raises `ConnectionError`."""


class EventStreams:
    """The streams of one node."""

    def __init__(self, console: Console) -> None:
        self._console = console
        epoch = f"{time.time_ns() // 1_000_000:x}{os.urandom(4).hex()}"
        self.log = EventLog(epoch)
        self.figures = LiveFigures(console)
        self._recorder = ChangeRecorder(
            self.log,
            now_ms,
            self._schedule_flush,
            self.figures.add_deleted_queue,
            self.figures.add_deleted_exchange,
        )
        self._streams: dict[EventReader, StreamWriter] = {}
        self._count_of_user: Counter[str] = Counter()
        self._idle: dict[EventReader, asyncio.Future[None]] = {}
        self._ready: deque[asyncio.Future[None]] = deque()
        self._release_scheduled = False
        self._flush_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._flushed_at = 0.0
        self._clock: asyncio.Task[None] | None = None
        self._is_closed = False
        self.is_observing = False

    @property
    def count(self) -> int:
        """The number of open streams."""
        return len(self._streams)

    async def close(self) -> None:
        """End all streams, because the node stops."""
        self._is_closed = True
        self._wake_all()
        for stream, writer in list(self._streams.items()):
            if stream not in self._idle and stream.is_blocked:
                writer.abort()
        self._stop_observing()
        await self._stop_clock()

    # ── opening and closing ─────────────────────────────────────────────────────────────────────────

    @contextmanager
    def open(self, wanted: StreamRequest, writer: StreamWriter) -> Iterator[EventReader]:
        """Add a stream for as long as the context lasts. Raises `StreamLimitError`."""
        user = wanted.user.name
        if self._is_closed:
            raise StreamLimitError(503, "service_unavailable", "the node is stopping")
        if self._count_of_user[user] >= STREAMS_OF_USER_MAX_COUNT:
            raise StreamLimitError(
                429,
                "too_many_requests",
                f"user '{user}' has {STREAMS_OF_USER_MAX_COUNT} open event streams, the maximum",
            )
        if len(self._streams) >= STREAMS_MAX_COUNT:
            raise StreamLimitError(
                503,
                "service_unavailable",
                f"the node has {STREAMS_MAX_COUNT} open event streams, the maximum",
            )
        self._start_observing()
        self._recorder.flush()  # changes up to now are not sent, unless the stream is resumed
        stream = EventReader(os.urandom(16).hex(), wanted, self.log)
        self._streams[stream] = writer
        self._count_of_user[user] += 1
        try:
            yield stream
        finally:
            del self._streams[stream]
            self._idle.pop(stream, None)
            self._count_of_user[user] -= 1
            if not self._count_of_user[user]:
                del self._count_of_user[user]
            if not self._streams and not self._is_closed:
                loop = asyncio.get_running_loop()
                self._linger_timer = loop.call_later(LINGER_S, self._stop_observing)

    def _start_observing(self) -> None:
        if self._linger_timer is not None:
            self._linger_timer.cancel()
            self._linger_timer = None
        if not self.is_observing:
            self.is_observing = True
            self._console.broker.set_observer(self._recorder)
        if self._clock is None:
            self._clock = asyncio.get_running_loop().create_task(self._run_clock())

    def _stop_observing(self) -> None:
        """Forget all events: no stream was open for a while."""
        for timer in (self._linger_timer, self._flush_timer):
            if timer is not None:
                timer.cancel()
        self._linger_timer = self._flush_timer = None
        if self.is_observing:
            self.is_observing = False
            self._console.broker.set_observer(IGNORE_CHANGES)
            self._recorder.clear()
            self.log.clear()

    def watch(self, name: str, user: str, queues: tuple[QueueName, ...]) -> bool:
        """Replace the watched queues of a stream of this user; return whether there is such a stream."""
        for stream in self._streams:
            if stream.name == name and stream.user.name == user:
                stream.watched = queues
                return True
        return False

    # ── one stream ──────────────────────────────────────────────────────────────────────────────────

    async def run(self, stream: EventReader) -> None:
        """Write events until the client disconnects or the stream must end. Raises `ConnectionError`."""
        writer, clock = self._streams[stream], asyncio.get_running_loop().time
        await self._write(stream, writer, stream.render_opened(now_ms(), HEARTBEAT_S, RETRY_MS))
        while writer.is_connected:
            await self._wait_for_turn(stream)
            end = self._find_end(stream)
            if end is not None:
                await self._write(stream, writer, stream.render_closed(now_ms(), end))
                return
            data = stream.collect(now_ms())
            if not stream.has_backlog and stream.figures_seen != self.figures.generation:
                data += self.figures.render_for(stream)
            if not data and clock() - stream.written_at >= HEARTBEAT_S:
                data = b": heartbeat\nid: " + stream.event_id + b"\n\n"
            if data:
                await self._write(stream, writer, data)

    async def _write(self, stream: EventReader, writer: StreamWriter, data: bytes) -> None:
        stream.is_blocked = True
        try:
            async with asyncio.timeout(UNREAD_TIMEOUT_S):
                await writer.write(data)
        except TimeoutError as error:
            log.info(
                "closing event stream: the client does not read (user=%r stalled_s=%g)",
                stream.user.name,
                UNREAD_TIMEOUT_S,
            )
            writer.abort()
            raise ConnectionResetError("the client does not read") from error
        finally:
            stream.is_blocked = False
        stream.written_at = asyncio.get_running_loop().time()

    def _find_end(self, stream: EventReader) -> EndReason | None:
        if self._is_closed:
            return "node_stopping"
        session_id = stream.session_id
        if session_id and self._console.find_session(session_id) is None:
            return "session_ended"
        return stream.refresh_user(self._console.broker, now_ms())

    # ── turns ───────────────────────────────────────────────────────────────────────────────────────

    async def _wait_for_turn(self, stream: EventReader) -> None:
        """Wait until there may be something to write, and for the turn of this stream."""
        turn = asyncio.get_running_loop().create_future()
        if stream.has_backlog or self._is_closed:
            self._ready.append(turn)
            self._schedule_release()
        else:
            self._idle[stream] = turn
        await turn

    def wake(self, stream: EventReader) -> None:
        """Let a stream notice that its client has disconnected."""
        turn = self._idle.pop(stream, None)
        if turn is not None:
            self._ready.append(turn)
            self._schedule_release()

    def _wake_all(self) -> None:
        self._ready.extend(self._idle.values())
        self._idle.clear()
        self._schedule_release()

    def _schedule_release(self) -> None:
        if self._ready and not self._release_scheduled:
            self._release_scheduled = True
            asyncio.get_running_loop().call_soon(self._release)

    def _release(self) -> None:
        """Let the next few streams write, and continue in the next turn of the loop."""
        self._release_scheduled = False
        released_count = 0
        while self._ready and released_count < WRITERS_PER_TURN_COUNT:
            turn = self._ready.popleft()
            if not turn.done():  # otherwise its task was cancelled
                turn.set_result(None)
                released_count += 1
        self._schedule_release()

    # ── events ──────────────────────────────────────────────────────────────────────────────────────

    def _schedule_flush(self) -> None:
        """Render what the recorder has collected: soon after a quiet time, otherwise at the interval.

        A timer, because a callback of the current turn would make the server wait for it before it flushes.
        """
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            due = max(loop.time() + FIRST_DELAY_S, self._flushed_at + FLUSH_INTERVAL_S)
            self._flush_timer = loop.call_at(due, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._flushed_at = asyncio.get_running_loop().time()
        check_users = self._recorder.users_changed
        self._recorder.flush()
        if check_users:
            self._abort_ended()
        self._wake_all()

    def _abort_ended(self) -> None:
        """Close the connections of blocked streams that must end, or whose client is gone."""
        for stream, writer in list(self._streams.items()):
            if stream.is_blocked and self._find_end(stream) is not None:
                writer.abort()

    async def _run_clock(self) -> None:
        """Once a second: take figures if a stream wants them, and check all streams."""
        clock = asyncio.get_running_loop().time
        tick_at = totals_at = clock()
        try:
            while self._streams:
                try:
                    if self._is_wanted(types.OVERVIEW) and clock() >= totals_at - INTERVAL_S / 20:
                        totals_at = clock()
                        busy_s = await self.figures.take_totals(now_ms())
                        totals_at += self.figures.pause_after(busy_s)
                    await self._take_figures()
                except Exception:  # a bug met by a figure must not end the streams
                    log.exception("error while measuring the figures of the event stream")
                self._abort_ended()
                self._wake_all()
                tick_at = max(tick_at + INTERVAL_S, clock())
                await asyncio.sleep(tick_at - clock())
        finally:
            self._clock = None
            self.figures.clear()

    def _is_wanted(self, event_type: types.EventType) -> bool:
        return any(stream.filter.accepts_type(event_type) for stream in self._streams)

    async def _take_figures(self) -> None:
        """Take the other figures if a stream wants any."""
        if any(map(self._is_wanted, (types.OVERVIEW, types.NODE, types.QUEUES))):
            watched = dict.fromkeys(
                name
                for stream in self._streams
                if stream.filter.accepts_type(types.QUEUES)
                for name in stream.watched
            )
            await self.figures.take(watched, now_ms())

    async def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            with suppress(asyncio.CancelledError):
                await self._clock
