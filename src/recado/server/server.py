"""The server: listens, flushes output at the end of each turn, provides time to the broker, enforces limits.

There is one event loop and no lock: the broker runs in the thread of the loop. A *turn* is one pass of the loop
over its ready sockets. Output, journal records and coalesced publishes of a turn are collected, and flushed
together at its end.

Each read is handled between `begin_turn` and `end_turn`, and so are finished syncs and maintenance. A turn has
many such pairs; `end_turn` flushes at once if its read was the last one of the turn, and otherwise schedules
one flush for all reads. With uvloop it always schedules, because the ready callbacks of that loop are not
visible. The order of a flush is: publish the coalesced messages, commit the journal, write output, resume
input.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from recado.broker.broker import Broker

from . import memory, open_files
from .authentication import Authenticator
from .connection import Connection, now_ms
from .options import ConnectionOptions, ServerLimits

if TYPE_CHECKING:
    import ssl

    from .committer import Committer

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("recado.server")

READ_BUFFER_BYTES = 256 * 1024
MAINTENANCE_INTERVAL_S = 1.0
# How long the records of acks are buffered, so that they are written together with later records. Writing the
# acks of fifty consumers separately took a tenth of the CPU time.
DEFERRED_WRITE_DELAY_S = 0.005
STOP_TIMEOUT_S = 0.5  # for clients to answer connection.close
REFUSED_CONNECTIONS_MAX = 100  # beyond the limit; they get connection.close with the reason
MEMORY_PRESSURE_RATIO = 0.5  # of the memory limit, above which long queues are paged out earlier


class FlushState(Enum):
    """When the next flush runs."""

    IDLE = auto()
    SCHEDULED = auto()  # for the next turn of the loop
    POSTPONED = auto()  # for the turn after that


class DurabilityWaiter:
    """A future that completes when the store is durable up to now."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.durable = loop.create_future()

    def on_durable(self) -> None:
        self.durable.set_result(None)


class Server:
    """The listeners and connections of a broker, and its timers."""

    def __init__(
        self,
        broker: Broker,
        options: ConnectionOptions | None = None,
        limits: ServerLimits | None = None,
        used_memory: Callable[[], int] = memory.resident_bytes,
    ) -> None:
        """Serve a broker in the running event loop; `listen` then accepts connections."""
        self.broker = broker
        self.options = options or ConnectionOptions()
        self.limits = limits or ServerLimits()
        self.loop = asyncio.get_running_loop()
        # Shared by all connections: each read is copied out before the next one.
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.write_paused: set[Connection] = set()  # their clients do not read
        self.blocked: set[Connection] = set()  # publishers that wait for the alarm to end
        self.alarm: str | None = None
        self._aborted_count = 0  # connections aborted since the last log line about it
        self.failure: asyncio.Future[str] = self.loop.create_future()
        broker.coalescer.is_enabled = True
        self.committer: Committer | None = None  # without a data folder there is none
        self._read_used_memory = used_memory
        self._memory_limit = int(memory.total_bytes() * self.limits.memory_watermark)
        self._file_budget = open_files.current_budget()
        self.authenticator = Authenticator(self)
        self._listeners: list[asyncio.Server] = []
        self._all_closed: asyncio.Future[None] | None = None  # awaited by `stop`
        self._stopping = False
        self._to_flush: dict[Connection, None] = {}
        self._in_turn = False
        self._flush_state = FlushState.IDLE
        # The callbacks that asyncio's loop has still to run in this turn; other loops do not expose them.
        self._ready_callbacks: Collection[object] | None = getattr(self.loop, "_ready", None)
        # asyncio's loop reads once from each socket per turn; uvloop reads repeatedly.
        self.reads_repeatedly_per_turn = self._ready_callbacks is None
        self._timer_deadline: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deferred_write_timer: asyncio.TimerHandle | None = None
        self._maintenance_timer = self.loop.call_later(MAINTENANCE_INTERVAL_S, self._maintain)

    @property
    def memory_limit_bytes(self) -> int:
        """The resident memory above which publishers are blocked."""
        return self._memory_limit

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────

    async def listen(self, host: str, port: int, tls: "ssl.SSLContext | None" = None) -> int:
        """Accept connections; return the port, which is a free one if 0 was asked for.

        Raises `OSError` if the address cannot be bound.
        """
        handshake_timeout = self.limits.handshake_timeout if tls is not None else None
        listener = await self.loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=handshake_timeout,
            backlog=self._file_budget.backlog,
        )
        self._listeners.append(listener)
        bound_port: int = listener.sockets[0].getsockname()[1]
        return bound_port

    async def stop(self) -> None:
        """Send connection.close to every client, wait for the answers up to a timeout, and close."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        self._maintenance_timer.cancel()
        for connection in list(self.connections):
            connection.shut_down()
        if self.connections:
            self._all_closed = self.loop.create_future()
            await asyncio.wait([self._all_closed], timeout=STOP_TIMEOUT_S)
        for connection in list(self.connections):
            connection.close_socket()
        for listener in self._listeners:
            await listener.wait_closed()
        for timer in (self._timer, self._deferred_write_timer):
            if timer is not None:
                timer.cancel()
        if self.committer is not None:
            await self.committer.close()

    def attach_committer(self, committer: "Committer") -> None:
        """From now on, commit the store of the broker at the end of each turn."""
        self.committer = committer

    def fail(self, reason: str) -> None:
        """Stop serving at once, because nothing can be made durable any more; complete `failure`."""
        log.critical("broker failed: %s", reason)
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.transport.abort()
        if not self.failure.done():
            self.failure.set_result(reason)

    def remove_connection(self, connection: Connection) -> None:
        for group in (self.connections, self.write_paused, self.blocked):
            group.discard(connection)
        if self._all_closed is not None and not self.connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def is_overloaded(self) -> bool:
        """Whether to abort a new connection without even refusing it.

        This is also true while the server stops: `stop` does not close a connection that was accepted before it
        and whose `connection_made` is called after it.
        """
        count, files = len(self.connections), self._file_budget.connections
        limit = self.limits.max_connections
        over_limit = limit is not None and count > limit + REFUSED_CONNECTIONS_MAX
        over_files = files is not None and count > files + self._file_budget.refusals
        return over_limit or over_files or self._stopping

    def count_aborted(self) -> None:
        """Count an aborted connection; the number is logged once per maintenance interval."""
        self._aborted_count += 1

    def refusal_reason(self) -> str | None:
        """Return why the newest connection, which is counted already, exceeds a limit; None if it does not."""
        limit, files = self.limits.max_connections, self._file_budget.connections
        if limit is not None and len(self.connections) > limit:
            log.warning(
                "connection refused: too many connections (limit=%d setting=server.max_connections)",
                limit,
            )
            return f"the server is full: it takes {limit} connections"
        if files is not None and len(self.connections) > files:
            log.warning(
                "connection refused: open file limit reached"
                " (connections=%d open_files=%d setting=ulimit -n)",
                files,
                self._file_budget.limit,
            )
            return (
                f"the server is full: its open file limit of {self._file_budget.limit} allows"
                f" {files} connections; raise it with ulimit -n"
            )
        return None

    # ── output and time ───────────────────────────────────────────────────────────────────────────────

    def request_flush(self, connection: Connection) -> None:
        """Write the output of a connection at the end of this turn, so that many messages are one write."""
        self._to_flush[connection] = None
        if not self._in_turn:
            self._schedule_flush()

    def begin_turn(self) -> None:
        """Begin to handle a read or a timer: until `end_turn`, requests to flush are only collected."""
        self._in_turn = True
        # Disabled for the last read of a turn, which has nothing to coalesce with.
        if self._ready_callbacks is not None:
            self.broker.coalescer.is_enabled = bool(self._ready_callbacks)

    def run_in_turn(self, action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `action` as if it handled a read.

        Coalesced publishes are flushed first: if the action reports a finished sync, it also begins the next
        one, which must cover these messages. Otherwise their confirms would wait for one sync more.
        """
        if self.broker.coalescer.pending_run is not None:
            self._flush_coalescer()
        self.begin_turn()
        try:
            action(*args, **kwargs)
        finally:
            self.end_turn()

    def end_turn(self) -> None:
        """Flush now if no other callback is ready in this turn, else in the next turn.

        Flushing at once when nothing else is ready took a round trip from 245 to 152 µs; always flushing at
        once doubled the cost of fifty publishers that await each confirm.
        """
        self._in_turn = False
        if self._flush_state is not FlushState.IDLE:
            return
        if self._to_flush or self.broker.has_pending_work:
            if self._ready_callbacks is not None and not self._ready_callbacks:
                self._flush()
            else:
                self._schedule_flush()
        else:
            self._set_timers()

    def _schedule_flush(self) -> None:
        if self._flush_state is FlushState.IDLE:
            self._flush_state = FlushState.SCHEDULED
            self.loop.call_soon(self._run_scheduled_flush)

    def _run_scheduled_flush(self) -> None:
        """Flush; or postpone it once if further callbacks are ready whose messages can share the sync.

        Fifty publishers that await each confirm arrive in two halves. Postponing makes them share one sync
        instead of two (+12 %).
        """
        is_first_attempt = self._flush_state is FlushState.SCHEDULED
        if self._ready_callbacks and is_first_attempt and self._has_work_to_sync():
            self._flush_state = FlushState.POSTPONED
            self.loop.call_soon(self._run_scheduled_flush)
        else:
            self._flush_state = FlushState.IDLE
            self._flush()

    def _has_work_to_sync(self) -> bool:
        return self.broker.store.has_pending_writes or self.broker.coalescer.will_be_stored

    def _flush(self) -> None:
        if self.broker.coalescer.pending_run is not None:
            self._flush_coalescer()
        if self.committer is not None:
            # Write first to connections whose output does not depend on the journal. While a durable queue
            # receives 340,000 messages a second, a live subscriber of a feed gets a message in 1.0 ms, not 1.3.
            self._for_each(
                Connection.write_output,
                [each for each in self._to_flush if not each.session.awaits_journal],
            )
            self._commit(self.committer)
        # Write to all connections before resuming the input of any: handling input may add output for another
        # connection that must wait for journal records of the next commit.
        connections, self._to_flush = list(self._to_flush), {}
        self._for_each(Connection.write_output, connections)
        self._for_each(Connection.resume_input, connections)
        self._set_timers()  # a stream may have more to deliver than one turn allows

    def _for_each(
        self, action: Callable[[Connection], None], connections: list[Connection]
    ) -> None:
        for connection in connections:
            try:
                action(connection)
            except Exception:  # a bug met by one connection must not affect the others
                log.exception("closing connection: error while flushing (peer=%s)", connection.peer)
                connection.transport.abort()

    def _flush_coalescer(self) -> None:
        """Publish the coalesced run; its output is flushed with the rest of the turn."""
        self._in_turn = True
        try:
            self.broker.coalescer.flush(now_ms())
        except Exception:  # a bug met by one queue must not delay other confirms
            log.exception("error while flushing coalesced publishes")
        finally:
            self._in_turn = False

    def _commit(self, committer: "Committer") -> None:
        """Commit within the turn, so that confirms of an immediate sync are written by this flush."""
        self._in_turn = True
        try:
            committer.commit()
        finally:
            self._in_turn = False

    def schedule_pending(self) -> None:
        """Schedule a flush and timers for the broker's pending work; within a turn, `end_turn` does it."""
        if not self._in_turn:
            if self.broker.has_pending_work:
                self._schedule_flush()
            self._set_timers()

    def _set_timers(self) -> None:
        if self.broker.store.has_deferred_writes and self._deferred_write_timer is None:
            self._deferred_write_timer = self.loop.call_later(
                DEFERRED_WRITE_DELAY_S, self._write_deferred
            )
        deadline = self.broker.deadline()
        if deadline is not None and (
            self._timer_deadline is None or deadline < self._timer_deadline
        ):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_deadline = deadline
            self._timer = self.loop.call_later(max(deadline - now_ms(), 0) / 1000, self._tick)

    def _write_deferred(self) -> None:
        self._deferred_write_timer = None
        if self.committer is not None:
            self.run_in_turn(self.committer.write_deferred)

    def _tick(self) -> None:
        self._timer_deadline = self._timer = None
        try:
            self.broker.tick(now_ms())
        except Exception:  # a bug met by one queue must not stop the timers of the others
            log.exception("error while running timers of the broker")
        self.schedule_pending()

    def run_on_broker(self, action: Callable[[Broker, int], T]) -> T:
        """Call `action(broker, now)` for an administrator, in the thread of the loop; return its result."""
        now = now_ms()
        self.broker.coalescer.flush(now)
        result = action(self.broker, now)
        self.schedule_pending()
        return result

    async def wait_until_durable(self) -> None:
        """Wait until everything up to now is on disk, or the broker has failed."""
        if self.broker.store.has_disk:
            waiter = DurabilityWaiter(self.loop)
            self.broker.store.notify_when_durable(waiter)
            self.schedule_pending()
            await asyncio.wait((waiter.durable, self.failure), return_when=asyncio.FIRST_COMPLETED)

    # ── maintenance ───────────────────────────────────────────────────────────────────────────────────

    def _maintain(self) -> None:
        self._maintenance_timer = self.loop.call_later(MAINTENANCE_INTERVAL_S, self._maintain)
        if self.committer is not None:
            self.run_in_turn(self.committer.maintain)
        self.check_resources()
        self._check_unread()
        self.authenticator.refusals.flush(self.loop.time())
        if self._aborted_count:
            log.warning(
                "connections aborted: far too many connections"
                " (count=%d open=%d setting=server.max_connections)",
                self._aborted_count,
                len(self.connections),
            )
            self._aborted_count = 0

    def check_resources(self) -> None:
        """Block publishers while memory or disk is short, and unblock them afterwards."""
        used_bytes, store = self._read_used_memory(), self.broker.store
        had_pressure = store.memory_pressure
        store.set_memory_pressure(active=used_bytes > self._memory_limit * MEMORY_PRESSURE_RATIO)
        if had_pressure and not store.memory_pressure:
            for connection in list(self.connections):
                connection.session.resume(now_ms())
        alarm = "low on memory" if used_bytes > self._memory_limit else store.disk_shortage()
        if alarm is not None and self.alarm is None:
            fields = (
                f"used_bytes={used_bytes} limit_bytes={self._memory_limit}"
                " setting=broker.memory_watermark"
                if used_bytes > self._memory_limit
                else "setting=broker.disk_free_min_bytes"
            )
            log.warning("alarm: %s, publishers are blocked (%s)", alarm, fields)
        elif alarm is None and self.alarm is not None:
            log.warning("alarm cleared: %s, publishers are unblocked", self.alarm)
            for connection in self.blocked:
                connection.unblock_publisher()
            self.blocked.clear()
        if alarm != self.alarm:
            self.broker.observer.alarm_changed(self.alarm, alarm)
        self.alarm = alarm

    def _check_unread(self) -> None:
        """Abort connections whose clients do not read, because their output uses the memory of all."""
        now = self.loop.time()
        for connection in list(self.write_paused):
            connection.check_unread(now)
        for connection in self.blocked:
            # Reading is paused, so EOF is not noticed; a client that is gone answers this with a reset.
            connection.session.send_heartbeat()
