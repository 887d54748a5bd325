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
from .connection import Connection, clock
from .logins import Logins
from .offer import Offer

if TYPE_CHECKING:
    import ssl

    from .committer import Committer

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("recado.server")

READ_SIZE = 256 * 1024
WATCH_SECONDS = 1.0
# An ack that nobody else needs to be written waits so long for something that does: to write those of fifty
# consumers' messages alone took a tenth of all.
REST_SECONDS = 0.005
STOP_SECONDS = 0.5  # for clients to answer; the reason has reached their sockets by then
SPARE_CONNECTIONS = 100  # beyond the limit, to be told so
SCARCE = 0.5  # of the memory that there is to use: from here on long queues go to disk earlier


class ServerLimits(msgspec.Struct, frozen=True):
    handshake_seconds: float = 10.0
    max_connections: int | None = None
    memory_share: float = 0.6
    backlog_bytes: int = 16 << 20
    backlog_seconds: float = 10.0
    stall_seconds: float = 60.0


class Safe:
    """Waits in the loop for the keeper."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.told = loop.create_future()

    def kept(self) -> None:
        self.told.set_result(None)


class Server:
    def __init__(
        self,
        broker: Broker,
        offer: Offer | None = None,
        limits: ServerLimits | None = None,
        used_memory: Callable[[], int] = memory.used,
    ) -> None:
        self.broker = broker
        self.offer = offer or Offer()
        self.limits = limits or ServerLimits()
        self.loop = asyncio.get_running_loop()
        # All connections read into one buffer: a read is turned into bytes before the next.
        self.buffer = memoryview(bytearray(READ_SIZE))
        self.connections: set[Connection] = set()
        self.overfull: set[Connection] = set()  # whose peers do not read
        self.blocked: set[Connection] = set()  # publishers that wait for the alarm to end
        self.alarm: str | None = None
        self.turned_away = 0  # connections, since the log last said so
        self.failure: asyncio.Future[str] = self.loop.create_future()
        broker.gathering.is_open = True
        self.committer: Committer | None = None  # of a broker that keeps something
        self._used_memory = used_memory
        self._memory_limit = int(memory.available() * self.limits.memory_share)
        self._files = open_files.current()
        self.logins = Logins(self)
        self._listeners: list[asyncio.Server] = []
        self._last_left: asyncio.Future[None] | None = None  # somebody waits for all to leave
        self._stopping = False
        self._to_flush: dict[Connection, None] = {}
        self._reading = False
        self._flush_scheduled = False
        self._looked_again = False
        # What asyncio's loop has still to call in this turn; other loops do not tell.
        self._ready_callbacks: Collection[object] | None = getattr(self.loop, "_ready", None)
        # asyncio's loop reads once from each socket and turn.
        self.reads_repeatedly = self._ready_callbacks is None
        self._armed: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        self._watch_timer = self.loop.call_later(WATCH_SECONDS, self._watch)

    # ── start and stop ────────────────────────────────────────────────────────────────────────────────

    async def listen(self, host: str, port: int, tls: "ssl.SSLContext | None" = None) -> int:
        """Accept connections; gives the port, which is a free one where 0 was asked for."""
        patience = self.limits.handshake_seconds if tls is not None else None
        listener = await self.loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=patience,
            backlog=self._files.backlog,
        )
        self._listeners.append(listener)
        number: int = listener.sockets[0].getsockname()[1]
        return number

    async def stop(self) -> None:
        """Close every client properly, but wait for none of them too long."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        self._watch_timer.cancel()
        for connection in list(self.connections):
            connection.shut_down()
        if self.connections:
            self._last_left = self.loop.create_future()
            await asyncio.wait([self._last_left], timeout=STOP_SECONDS)
        for connection in list(self.connections):
            connection.leave()
        for listener in self._listeners:
            await listener.wait_closed()
        for timer in (self._timer, self._rest_timer):
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

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        for group in (self.connections, self.overfull, self.blocked):
            group.discard(connection)
        if self._last_left is not None and not self.connections and not self._last_left.done():
            self._last_left.set_result(None)

    def is_overrun(self) -> bool:
        """Whether so many connect that not even a refusal can be spent on each.

        Or it is too late: what was accepted just before a stop is made after it, and nobody would end it.
        """
        count, files = len(self.connections), self._files.connections
        most = self.limits.max_connections
        beyond = most is not None and count > most + SPARE_CONNECTIONS
        beyond_files = files is not None and count > files + self._files.refusals
        return beyond or beyond_files or self._stopping

    def full_reason(self) -> str | None:
        """Why there is no place for the connection that came last, which is counted already."""
        most, files = self.limits.max_connections, self._files.connections
        if most is not None and len(self.connections) > most:
            log.warning("a connection is refused: there are %d already", most)
            return f"the server is full: it takes {most} connections"
        if files is not None and len(self.connections) > files:
            reason = (
                f"the server is full: its open file limit of {self._files.limit} allows {files} "
                "connections; raise it with ulimit -n"
            )
            log.warning("connection refused: %s", reason)
            return reason
        return None

    # ── output and time ───────────────────────────────────────────────────────────────────────────────

    def flush_soon(self, connection: Connection) -> None:
        """After all that this turn of the loop reads: then many messages to one peer are one write."""
        self._to_flush[connection] = None
        if not self._reading:
            self._schedule_flush()

    def begin_read(self) -> None:
        self._reading = True
        if self._ready_callbacks is not None:  # who comes last in a turn has nobody to wait for
            self.broker.gathering.is_open = bool(self._ready_callbacks)

    def turn(self, action: Callable[P, None], *args: P.args, **named: P.kwargs) -> None:
        """Do something as if it had been read. What waits is let in before, for it may be a sync that is told
        of: who published has been promised to be told of the next."""
        if self.broker.gathering.run is not None:
            self._let_in()
        self.begin_read()
        try:
            action(*args, **named)
        finally:
            self.end_read()

    def end_read(self) -> None:
        """Flush if nothing else is read in this turn, else leave it to the next.

        Not to wait for the next turn when there is nobody to wait for took a round trip from 245 to 152 µs;
        never to wait doubled the cost of fifty publishers that await each confirm.
        """
        self._reading = False
        if self._flush_scheduled:
            return
        if self._to_flush or self.broker.has_more:
            if self._ready_callbacks is not None and not self._ready_callbacks:
                self._flush()
            else:
                self._schedule_flush()
        else:
            self._set_timers()

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        """Now; or after what has been sent meanwhile, once, if it can share a sync: fifty publishers that wait
        for each confirm come in one half behind the other, and so they need half the syncs (+12 %)."""
        self._flush_scheduled = False
        if self._ready_callbacks and not self._looked_again and self._is_to_sync():
            self._looked_again = True
            self._schedule_flush()
        else:
            self._looked_again = False
            self._flush()

    def _is_to_sync(self) -> bool:
        return self.broker.keeper.has_more or self.broker.gathering.kept

    def _flush(self) -> None:
        if self.broker.gathering.run is not None:
            self._let_in()
        if self.committer is not None:
            # Who has nothing to do with the journal need not wait for it: a live subscriber of a feed gets a
            # message beside a durable queue in 1.0 ms instead of 1.3 (340,000 a second).
            self._each(
                Connection.write, [each for each in self._to_flush if not each.session.noted]
            )
            self._commit(self.committer)
        # All are written to before anybody goes on: what that makes others be sent is not in the journal yet.
        connections, self._to_flush = list(self._to_flush), {}
        self._each(Connection.write, connections)
        self._each(Connection.proceed, connections)
        self._set_timers()  # a stream may have had more to show than one turn allows

    def _each(self, do: Callable[[Connection], None], connections: list[Connection]) -> None:
        for connection in connections:
            try:
                do(connection)
            except Exception:  # a fault with one must not silence the others
                log.exception("writing to %s", connection.peer)
                connection.transport.abort()

    def _let_in(self) -> None:
        """What it makes others be sent is flushed with all else."""
        self._reading = True
        try:
            self.broker.gathering.let_in(clock())
        except Exception:  # a fault with one queue must not keep the others from being told
            log.exception("while messages were let in")
        finally:
            self._reading = False

    def _commit(self, committer: "Committer") -> None:
        """Who is told at once that something is safe need not wait for another flush."""
        self._reading = True
        try:
            committer.request()
        finally:
            self._reading = False

    def arm(self) -> None:
        """Be back when the broker has something to do; who reads will see to that at the end."""
        if not self._reading:
            if self.broker.has_more:
                self._schedule_flush()
            self._set_timers()

    def _set_timers(self) -> None:
        if self.broker.keeper.has_rest and self._rest_timer is None:
            self._rest_timer = self.loop.call_later(REST_SECONDS, self._write_rest)
        deadline = self.broker.deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            if self._timer is not None:
                self._timer.cancel()
            self._armed = deadline
            self._timer = self.loop.call_later(max(deadline - clock(), 0) / 1000, self._tick)

    def _write_rest(self) -> None:
        self._rest_timer = None
        if self.committer is not None:
            self.turn(self.committer.write_rest)

    def _tick(self) -> None:
        self._armed = self._timer = None
        try:
            self.broker.tick(clock())
        except Exception:  # a fault with one queue must not stop the clock of the others
            log.exception("while messages expired")
        self.arm()

    def administer(self, action: Callable[[Broker, int], T]) -> T:
        """Let somebody who is no client do something to the broker, in the loop's thread."""
        now = clock()
        self.broker.gathering.let_in(now)
        result = action(self.broker, now)
        self.arm()
        return result

    async def until_safe(self) -> None:
        """All that was kept up to now is on disk, or we have failed."""
        if self.broker.keeper.keeps:
            safe = Safe(self.loop)
            self.broker.keeper.tell(safe)
            self.arm()
            await asyncio.wait((safe.told, self.failure), return_when=asyncio.FIRST_COMPLETED)

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        self._watch_timer = self.loop.call_later(WATCH_SECONDS, self._watch)
        if self.committer is not None:
            self.turn(self.committer.watch)
        self.watch_resources()
        self._watch_backlogs()
        if self.turned_away:
            log.warning("%d connections were turned away: there are too many", self.turned_away)
            self.turned_away = 0

    def watch_resources(self) -> None:
        """Publishers wait while there is no room for what they send, in memory or on disk."""
        used, keeper = self._used_memory(), self.broker.keeper
        was_scarce = keeper.scarce
        keeper.spare_memory(scarce=used > self._memory_limit * SCARCE)
        if was_scarce and not keeper.scarce:
            for connection in list(self.connections):
                connection.session.resume(clock())
        alarm = "low on memory" if used > self._memory_limit else keeper.shortage()
        if alarm is not None and self.alarm is None:
            how = f" ({used} bytes used)" if used > self._memory_limit else ""
            log.warning("%s%s: publishers are blocked", alarm, how)
        elif alarm is None and self.alarm is not None:
            log.warning("no longer %s: publishers go on", self.alarm)
            for connection in self.blocked:
                connection.resume_publisher()
            self.blocked.clear()
        self.alarm = alarm

    def _watch_backlogs(self) -> None:
        """Peers that leave too much unread, or take nothing at all, are closed: their memory is everybody's."""
        now = self.loop.time()
        limits = self.limits
        for connection in list(self.overfull):
            connection.note_progress(now)
            if now - connection.full_since > limits.stall_seconds:
                connection.drop("it takes nothing of what it is sent")
            elif connection.unread() <= limits.backlog_bytes:
                connection.overfull_since = None
            elif connection.overfull_since is None:
                connection.overfull_since = now
            elif now - connection.overfull_since > limits.backlog_seconds:
                connection.drop("it does not read what it is sent")
        for connection in self.blocked:
            connection.session.beat()  # one that has left answers with a reset; we do not read its end
