"""The server: listens, keeps time for the broker, and watches over memory and slow readers.

There is one loop and no lock: the broker decides in the loop's thread, between two reads.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec

from recado.broker.broker import Broker

from . import memory, open_files
from .authentication import Authenticator
from .connection import Connection, now_ms
from .options import ConnectionOptions

if TYPE_CHECKING:
    import ssl

    from .committer import Committer

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("recado.server")

READ_BUFFER_BYTES = 256 * 1024
MAINTENANCE_INTERVAL_S = 1.0
# An ack that nobody else needs to be written waits so long for something that does: to write those of fifty
# consumers' messages alone took a tenth of all.
DEFERRED_WRITE_DELAY_S = 0.005
STOP_TIMEOUT_S = 0.5  # for clients to answer; the reason has reached their sockets by then
REFUSED_CONNECTIONS_MAX = 100  # beyond the limit, to be told so
MEMORY_PRESSURE_RATIO = (
    0.5  # of the memory that there is to use: from here on long queues go to disk earlier
)


class ServerLimits(msgspec.Struct, frozen=True):
    handshake_timeout: float = 10.0
    max_connections: int | None = None
    memory_watermark: float = 0.6
    unread_limit_bytes: int = 16 << 20
    unread_timeout: float = 10.0
    write_timeout: float = 60.0


class DurabilityWaiter:
    """Waits in the loop for the keeper."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.durable = loop.create_future()

    def on_durable(self) -> None:
        self.durable.set_result(None)


class Server:
    def __init__(
        self,
        broker: Broker,
        options: ConnectionOptions | None = None,
        limits: ServerLimits | None = None,
        used_memory: Callable[[], int] = memory.resident_bytes,
    ) -> None:
        self.broker = broker
        self.options = options or ConnectionOptions()
        self.limits = limits or ServerLimits()
        self.loop = asyncio.get_running_loop()
        # All connections read into one buffer: a read is turned into bytes before the next.
        self.read_buffer = memoryview(bytearray(READ_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.write_paused: set[Connection] = set()  # whose peers do not read
        self.blocked: set[Connection] = set()  # publishers that wait for the alarm to end
        self.alarm: str | None = None
        self.aborted_count = 0  # connections, since the log last said so
        self.failure: asyncio.Future[str] = self.loop.create_future()
        broker.coalescer.is_enabled = True
        self.committer: Committer | None = None  # of a broker that keeps something
        self._read_used_memory = used_memory
        self._memory_limit = int(memory.total_bytes() * self.limits.memory_watermark)
        self._file_budget = open_files.current_budget()
        self.authenticator = Authenticator(self)
        self._listeners: list[asyncio.Server] = []
        self._all_closed: asyncio.Future[None] | None = None  # somebody waits for all to leave
        self._stopping = False
        self._to_flush: dict[Connection, None] = {}
        self._in_turn = False
        self._flush_scheduled = False
        self._flush_postponed = False
        # What asyncio's loop has still to call in this turn; other loops do not tell.
        self._ready_callbacks: Collection[object] | None = getattr(self.loop, "_ready", None)
        # asyncio's loop reads once from each socket and turn.
        self.reads_repeatedly_per_turn = self._ready_callbacks is None
        self._timer_deadline: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deferred_write_timer: asyncio.TimerHandle | None = None
        self._maintenance_timer = self.loop.call_later(MAINTENANCE_INTERVAL_S, self._maintain)

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────

    async def listen(self, host: str, port: int, tls: "ssl.SSLContext | None" = None) -> int:
        """Accept connections; gives the port, which is a free one where 0 was asked for."""
        patience = self.limits.handshake_timeout if tls is not None else None
        listener = await self.loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=patience,
            backlog=self._file_budget.backlog,
        )
        self._listeners.append(listener)
        number: int = listener.sockets[0].getsockname()[1]
        return number

    async def stop(self) -> None:
        """Close every client properly, but wait for none of them too long."""
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

    def fail(self, reason: str) -> None:
        """Nothing can be promised any more: leave everybody without a word, and tell who runs us."""
        log.critical("%s", reason)
        for listener in self._listeners:
            listener.close()
        for connection in list(self.connections):
            connection.transport.abort()
        if not self.failure.done():
            self.failure.set_result(reason)

    def remove_connection(self, connection: Connection) -> None:
        """A connection is gone."""
        for group in (self.connections, self.write_paused, self.blocked):
            group.discard(connection)
        if self._all_closed is not None and not self.connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def is_overloaded(self) -> bool:
        """Whether so many connect that not even a refusal can be spent on each.

        Or it is too late: what was accepted just before a stop is made after it, and nobody would end it.
        """
        count, files = len(self.connections), self._file_budget.connections
        most = self.limits.max_connections
        beyond = most is not None and count > most + REFUSED_CONNECTIONS_MAX
        beyond_files = files is not None and count > files + self._file_budget.refusals
        return beyond or beyond_files or self._stopping

    def refusal_reason(self) -> str | None:
        """Why there is no place for the connection that came last, which is counted already."""
        most, files = self.limits.max_connections, self._file_budget.connections
        if most is not None and len(self.connections) > most:
            log.warning("a connection is refused: there are %d already", most)
            return f"the server is full: it takes {most} connections"
        if files is not None and len(self.connections) > files:
            reason = (
                f"the server is full: its open file limit of {self._file_budget.limit} allows {files} "
                "connections; raise it with ulimit -n"
            )
            log.warning("connection refused: %s", reason)
            return reason
        return None

    # ── output and time ───────────────────────────────────────────────────────────────────────────────

    def request_flush(self, connection: Connection) -> None:
        """After all that this turn of the loop reads: then many messages to one peer are one write."""
        self._to_flush[connection] = None
        if not self._in_turn:
            self._schedule_flush()

    def begin_turn(self) -> None:
        self._in_turn = True
        if self._ready_callbacks is not None:  # who comes last in a turn has nobody to wait for
            self.broker.coalescer.is_enabled = bool(self._ready_callbacks)

    def run_in_turn(self, action: Callable[P, None], *args: P.args, **named: P.kwargs) -> None:
        """Do something as if it had been read. What waits is let in before, for it may be a sync that is told
        of: who published has been promised to be told of the next."""
        if self.broker.coalescer.pending_run is not None:
            self._flush_coalescer()
        self.begin_turn()
        try:
            action(*args, **named)
        finally:
            self.end_turn()

    def end_turn(self) -> None:
        """Flush if nothing else is read in this turn, else leave it to the next.

        Not to wait for the next turn when there is nobody to wait for took a round trip from 245 to 152 µs;
        never to wait doubled the cost of fifty publishers that await each confirm.
        """
        self._in_turn = False
        if self._flush_scheduled:
            return
        if self._to_flush or self.broker.has_pending_work:
            if self._ready_callbacks is not None and not self._ready_callbacks:
                self._flush()
            else:
                self._schedule_flush()
        else:
            self._set_timers()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._run_scheduled_flush)

    def _run_scheduled_flush(self) -> None:
        """Now; or after what has been sent meanwhile, once, if it can share a sync: fifty publishers that wait
        for each confirm come in one half behind the other, and so they need half the syncs (+12 %)."""
        self._flush_scheduled = False
        if self._ready_callbacks and not self._flush_postponed and self._has_work_to_sync():
            self._flush_postponed = True
            self._schedule_flush()
        else:
            self._flush_postponed = False
            self._flush()

    def _has_work_to_sync(self) -> bool:
        return self.broker.store.has_pending_writes or self.broker.coalescer.will_be_stored

    def _flush(self) -> None:
        if self.broker.coalescer.pending_run is not None:
            self._flush_coalescer()
        if self.committer is not None:
            # Who has nothing to do with the journal need not wait for it: a live subscriber of a feed gets a
            # message beside a durable queue in 1.0 ms instead of 1.3 (340,000 a second).
            self._for_each(
                Connection.write_output,
                [each for each in self._to_flush if not each.session.awaits_journal],
            )
            self._commit(self.committer)
        # All are written to before anybody goes on: what that makes others be sent is not in the journal yet.
        connections, self._to_flush = list(self._to_flush), {}
        self._for_each(Connection.write_output, connections)
        self._for_each(Connection.resume_input, connections)
        self._set_timers()  # a stream may have had more to show than one turn allows

    def _for_each(self, do: Callable[[Connection], None], connections: list[Connection]) -> None:
        for connection in connections:
            try:
                do(connection)
            except Exception:  # a fault with one must not silence the others
                log.exception("writing to %s", connection.peer)
                connection.transport.abort()

    def _flush_coalescer(self) -> None:
        """What it makes others be sent is flushed with all else."""
        self._in_turn = True
        try:
            self.broker.coalescer.flush(now_ms())
        except Exception:  # a fault with one queue must not keep the others from being told
            log.exception("while messages were let in")
        finally:
            self._in_turn = False

    def _commit(self, committer: "Committer") -> None:
        """Who is told at once that something is safe need not wait for another flush."""
        self._in_turn = True
        try:
            committer.commit()
        finally:
            self._in_turn = False

    def schedule_pending(self) -> None:
        """Be back when the broker has something to do; who reads will see to that at the end."""
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
        except Exception:  # a fault with one queue must not stop the clock of the others
            log.exception("while messages expired")
        self.schedule_pending()

    def run_on_broker(self, action: Callable[[Broker, int], T]) -> T:
        """Let somebody who is no client do something to the broker, in the loop's thread."""
        now = now_ms()
        self.broker.coalescer.flush(now)
        result = action(self.broker, now)
        self.schedule_pending()
        return result

    async def wait_until_durable(self) -> None:
        """All that was kept up to now is on disk, or we have failed."""
        if self.broker.store.has_disk:
            safe = DurabilityWaiter(self.loop)
            self.broker.store.notify_when_durable(safe)
            self.schedule_pending()
            await asyncio.wait((safe.durable, self.failure), return_when=asyncio.FIRST_COMPLETED)

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────

    def _maintain(self) -> None:
        self._maintenance_timer = self.loop.call_later(MAINTENANCE_INTERVAL_S, self._maintain)
        if self.committer is not None:
            self.run_in_turn(self.committer.maintain)
        self.check_resources()
        self._check_unread()
        if self.aborted_count:
            log.warning("%d connections were turned away: there are too many", self.aborted_count)
            self.aborted_count = 0

    def check_resources(self) -> None:
        """Publishers wait while there is no room for what they send, in memory or on disk."""
        used, keeper = self._read_used_memory(), self.broker.store
        was_scarce = keeper.memory_pressure
        keeper.set_memory_pressure(active=used > self._memory_limit * MEMORY_PRESSURE_RATIO)
        if was_scarce and not keeper.memory_pressure:
            for connection in list(self.connections):
                connection.session.resume(now_ms())
        alarm = "low on memory" if used > self._memory_limit else keeper.disk_shortage()
        if alarm is not None and self.alarm is None:
            how = f" ({used} bytes used)" if used > self._memory_limit else ""
            log.warning("%s%s: publishers are blocked", alarm, how)
        elif alarm is None and self.alarm is not None:
            log.warning("no longer %s: publishers go on", self.alarm)
            for connection in self.blocked:
                connection.unblock_publisher()
            self.blocked.clear()
        self.alarm = alarm

    def _check_unread(self) -> None:
        """Peers that leave too much unread, or take nothing at all, are closed: their memory is everybody's."""
        now = self.loop.time()
        limits = self.limits
        for connection in list(self.write_paused):
            connection.update_write_progress(now)
            if now - connection.last_write_progress > limits.write_timeout:
                connection.abort("it takes nothing of what it is sent")
            elif connection.unread_bytes() <= limits.unread_limit_bytes:
                connection.unread_since = None
            elif connection.unread_since is None:
                connection.unread_since = now
            elif now - connection.unread_since > limits.unread_timeout:
                connection.abort("it does not read what it is sent")
        for connection in self.blocked:
            connection.session.send_heartbeat()  # one that has left answers with a reset; we do not read its end
