"""The robust connection, which reconnects by itself.

    async with connect("amqp://localhost") as connection:
        channel = await connection.channel()

It supervises one plain `Connection` after another and restores topology, channels, consumers and unconfirmed
messages on each. The first connection is not retried by default, because a mistake in the URL is its most
common error. Later, reconnecting continues for `reconnect_timeout` seconds, and `on_event` is called with each
event.

`robust.py`, `robust_channel.py` and `recovery.py` are one unit: they use each other's private attributes.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Self

import msgspec

from recado.amqp.values import FieldTable

from .connection import Connection
from .errors import (
    CannotConnectError,
    ChannelClosedByBrokerError,
    ConnectionClosedByClientError,
    ConnectionClosedError,
    ConnectionLostError,
    ConnectionRejectedError,
    ReconnectTimeoutError,
)
from .events import (
    ConnectionEvent,
    ConnectionLost,
    ConnectionRecovered,
    PublishingBlocked,
    PublishingUnblocked,
    ReconnectAbandoned,
    ReconnectScheduled,
)
from .parameters import ConnectionParameters, parse_url
from .recovery import ConnectionRecovery
from .retry import ReconnectSchedule, RetryPolicy
from .robust_channel import UNCONFIRMED_MAX_BYTES, RobustChannel, raise_unless_retryable
from .topology import Topology
from .waiters import Notifier, WaitCounter

log = logging.getLogger("recado.client")


def connect(
    url: str | ConnectionParameters,
    *,
    tls: ssl.SSLContext | None = None,
    name: str | None = None,
    on_event: Callable[[ConnectionEvent], object] | None = None,
    reconnect_timeout: float | None = 300.0,
    wait_for_broker: bool = False,
    retry_initial: float = 0.1,
    retry_max: float = 5.0,
    retry_factor: float = 2.0,
) -> "RobustConnection":
    """Return a robust connection; `async with` (or `await`) opens it.

    Args:
        url: `amqp://user:password@host:port/vhost?option=value`, or `amqps://` for TLS.
        tls: a TLS context instead of the one made from the options of the URL.
        name: the name of the connection in the broker's list of connections.
        on_event: called with each `ConnectionEvent`.
        reconnect_timeout: seconds to keep reconnecting before every call raises `ReconnectTimeoutError`;
            None retries forever.
        wait_for_broker: retry the first connection too, for `reconnect_timeout` seconds. If the first attempt
            is rejected by the broker (`ConnectionRejectedError`), the error is raised at once.
        retry_initial: maximum delay before the first attempt, in seconds; each delay is random between 0
            and its maximum.
        retry_max: upper bound of the maximum delay, in seconds.
        retry_factor: growth of the maximum delay with each attempt.

    Opening raises `CannotConnectError` or a subclass of it, or with `wait_for_broker` `ReconnectTimeoutError`.
    A wrong URL raises `ValueError` at once.
    """
    parameters = parse_url(url) if isinstance(url, str) else url
    if name is not None:
        parameters = msgspec.structs.replace(parameters, name=name)
    policy = RetryPolicy(
        retry_initial, retry_max, reconnect_timeout=reconnect_timeout, retry_factor=retry_factor
    )
    return RobustConnection(parameters, tls, on_event, policy, wait_for_broker=wait_for_broker)


class RobustConnection:
    """A connection that reconnects by itself; made by `connect`."""

    def __init__(
        self,
        parameters: ConnectionParameters,
        tls: ssl.SSLContext | None,
        on_event: Callable[[ConnectionEvent], object] | None,
        retry_policy: RetryPolicy,
        *,
        wait_for_broker: bool,
    ) -> None:
        """Use `connect`."""
        self.parameters = parameters
        self._topology = Topology()
        self._wait_counter = WaitCounter()
        self.error: Exception | None = None
        self.on_event = on_event
        self._tls = tls
        self._wait_for_broker = wait_for_broker
        self._schedule = ReconnectSchedule(retry_policy)
        self._current: Connection | None = None  # None while disconnected or recovering
        self._channels: dict[RobustChannel, None] = {}
        self._notifier = Notifier()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now and its recovery is complete."""
        return self._current is not None

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker accepts no messages now (connection.blocked); None if it does, or while disconnected."""
        return self._current.blocked_reason if self._current is not None else None

    @property
    def server_properties(self) -> FieldTable:
        """What the broker says about itself, such as its `product`; empty while disconnected."""
        return self._current.server_properties if self._current is not None else {}

    def current_queue_name(self, queue: str) -> str:
        """Return the current name of a queue named by the broker, which changes with reconnections."""
        return self._topology.current_name(queue)

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────

    def __await__(self) -> Generator[None, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> Self:
        """Connect and log in, unless it is open; raises the errors of `connect`."""
        if self._supervisor is None:
            try:
                ended = await self._connect_first()
            except CannotConnectError as error:
                if not self._wait_for_broker or isinstance(error, ConnectionRejectedError):
                    raise
                self._schedule.record_loss(asyncio.get_running_loop().time())
                self._emit(ConnectionLost(error))
                ended = await self._reconnect(error)
            self._supervisor = asyncio.create_task(self._supervise(ended))
        return self

    async def _connect_first(self) -> "asyncio.Future[Exception]":
        connection, ended = await self._connect()
        self._set_current(connection)
        return ended

    async def _connect(self) -> "tuple[Connection, asyncio.Future[Exception]]":
        """Open a plain connection; return it and a future that gets the error when it ends."""
        ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        connection = await Connection.open(
            self.parameters, tls=self._tls, wait_counter=self._wait_counter
        )
        connection.on_blocked = self._handle_blocked
        connection.on_end = partial(_resolve, ended)
        if connection.error is not None:
            raise connection.error
        return connection, ended

    def _set_current(self, connection: Connection) -> None:
        self._current = connection
        self._notifier.notify_all()

    async def close(self) -> None:
        """Close the connection. Unconfirmed messages are not sent again: call `wait_for_confirms` before."""
        if self.error is None:
            connection = self._current
            self._terminate(ConnectionClosedByClientError())
            if connection is not None:
                await connection.close()
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor

    def _terminate(self, error: Exception) -> None:
        """End the connection for good."""
        self.error = error
        self._current = None
        for channel in list(self._channels):
            channel._terminate(error)
        self._notifier.notify_all()

    # ── supervision ───────────────────────────────────────────────────────────────────────────────────────

    async def _supervise(self, ended: "asyncio.Future[Exception]") -> None:
        """Reconnect whenever the current connection ends, until the connection ends for good."""
        loop = asyncio.get_running_loop()
        while True:
            loss = await ended
            if self.error is not None:
                return
            self._current = None
            self._schedule.record_loss(loop.time())
            self._emit(ConnectionLost(loss))
            try:
                ended = await self._reconnect(loss)
            except ReconnectTimeoutError as error:
                timeout = error
            except Exception as error:
                # A bug in this package. Without the supervisor, calls would wait for ever.
                log.exception(
                    "reconnecting stopped by an internal error (broker=%s)", self.parameters
                )
                elapsed = self._schedule.seconds_since_loss(loop.time())
                timeout = ReconnectTimeoutError(elapsed, self._schedule.attempt_count, error)
            else:
                continue
            self._terminate(timeout)
            self._emit(ReconnectAbandoned(timeout))
            return

    async def _reconnect(self, error: Exception) -> "asyncio.Future[Exception]":
        """Attempt to reconnect until it succeeds; raises `ReconnectTimeoutError` after `reconnect_timeout`."""
        loop, schedule = asyncio.get_running_loop(), self._schedule
        while True:
            delay = schedule.next_delay(loop.time(), random.random())
            if delay is None:  # `next_delay` has counted an attempt that is not made
                raise ReconnectTimeoutError(
                    schedule.seconds_since_loss(loop.time()), schedule.attempt_count - 1, error
                ) from error
            self._emit(ReconnectScheduled(schedule.attempt_count, delay, error))
            await asyncio.sleep(delay)
            try:
                return await self._attempt_recovery()
            except (
                CannotConnectError,
                ConnectionClosedError,
                ChannelClosedByBrokerError,
            ) as failure:
                error = failure

    async def _attempt_recovery(self) -> "asyncio.Future[Exception]":
        """Open a connection and restore everything on it; return the future of its end."""
        loop, schedule = asyncio.get_running_loop(), self._schedule
        connection, ended = await self._connect()
        try:
            recovery = ConnectionRecovery(connection, self._topology, self._emit)
            await recovery.recover_topology()
            await recovery.recover_channels(list(self._channels))
        except BaseException as failure:
            # Abort instead of closing: for channels attached already, a close would be final.
            connection.abort(ConnectionLostError(f"recovery failed: {failure}"))
            await connection.close()
            raise
        schedule.record_recovery(loop.time())
        self._set_current(connection)
        seconds = schedule.seconds_since_loss(loop.time())
        self._emit(
            ConnectionRecovered(
                schedule.attempt_count, seconds, recovery.renamed_queues, recovery.republished_count
            )
        )
        return ended

    def _handle_blocked(self, reason: str | None) -> None:
        self._emit(PublishingUnblocked() if reason is None else PublishingBlocked(reason))

    def _emit(self, event: ConnectionEvent) -> None:
        """Call `on_event`; an exception in it is logged and does not stop recovery."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                log.exception("exception in on_event callback (event=%s)", event)

    # ── channels ──────────────────────────────────────────────────────────────────────────────────────────

    async def channel(
        self, *, confirms: bool = True, unconfirmed_max_bytes: int = UNCONFIRMED_MAX_BYTES
    ) -> RobustChannel:
        """Open a channel.

        With `confirms`, messages are stored until the broker confirms them and are published again after a
        reconnection; `drain` waits while they exceed about `unconfirmed_max_bytes`.
        """
        while True:
            connection = await self._wait_connected()
            channel = RobustChannel(
                self, confirms=confirms, unconfirmed_max_bytes=unconfirmed_max_bytes
            )
            try:
                plain_channel = await connection.channel(confirms=confirms)
            except ConnectionClosedError as error:
                raise_unless_retryable(error)
                continue
            channel._attach(plain_channel)
            channel._resume(plain_channel)
            self._channels[channel] = None
            return channel

    def _remove_channel(self, channel: RobustChannel) -> None:
        """A channel has ended for good; called by the channel."""
        self._channels.pop(channel, None)

    def _handle_consumer_removed(self, queue: str) -> None:
        """A consumer has ended; an auto-delete queue without consumers is deleted by the broker."""
        name = self.current_queue_name(queue)
        remaining = (each for channel in self._channels for each in channel._consumers.values())
        if all(self.current_queue_name(each.queue) != name for each in remaining):
            self._topology.record_last_consumer_removed(name)

    async def _wait_connected(self) -> Connection:
        while True:
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self._supervisor is None:
                raise ValueError("the connection is not open: use `async with connect(url)`")
            if self._current is not None and self._current.error is None:
                return self._current
            await self._notifier.wait()


def _resolve(ended: "asyncio.Future[Exception]", error: Exception) -> None:
    if not ended.done():  # it is cancelled together with the supervisor, which awaits it
        ended.set_result(error)
