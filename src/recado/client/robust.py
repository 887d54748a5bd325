"""A connection that comes back: a bare one while it lasts, supervised, and the memory to make the next alike.

    async with connect("amqp://localhost") as connection:
        channel = await connection.channel()

`connect` fails at once if the first connection cannot be made, since that is mostly a mistake in the URL; from
then on it is restored for as long as `give_up` says, and `on_event` is told of what happens.
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
    retry_policy: RetryPolicy | None = None,
) -> "RobustConnection":
    """To be awaited, or used by `async with`.

    With `patient` a broker that is not there yet is waited for as well, until `give_up` seconds have passed
    (None: for ever); one that refuses us, as for a wrong password, is not.
    """
    parameters = parse_url(url) if isinstance(url, str) else url
    if name is not None:
        parameters = msgspec.structs.replace(parameters, name=name)
    chosen = msgspec.structs.replace(
        retry_policy or RetryPolicy(), reconnect_timeout=reconnect_timeout
    )
    return RobustConnection(parameters, tls, on_event, chosen, wait_for_broker=wait_for_broker)


class RobustConnection:
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
        self.topology = Topology()
        self.wait_counter = WaitCounter()
        self.error: Exception | None = None
        self.on_event = on_event
        self._tls = tls
        self._retry_policy = retry_policy
        self._wait_for_broker = wait_for_broker
        self._retry = ReconnectSchedule(retry_policy)
        self._current: Connection | None = None  # while all is restored
        self._channels: dict[RobustChannel, None] = {}
        self._notifier = Notifier()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._current is not None

    @property
    def blocked_reason(self) -> str | None:
        """Why the broker takes no messages now; None while it does."""
        return self._current.blocked_reason if self._current is not None else None

    def current_queue_name(self, queue: str) -> str:
        """The present name of a queue that the broker had named; any other name as it is."""
        return self.topology.current_name(queue)

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    def __await__(self) -> Generator[None, None, Self]:
        return self._open().__await__()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self) -> Self:
        if self._supervisor is None:
            try:
                ended = await self._connect_first()
            except CannotConnectError as error:
                if not self._wait_for_broker or isinstance(error, ConnectionRejectedError):
                    raise
                self._retry.record_loss(asyncio.get_running_loop().time())
                self._emit(ConnectionLost(error))
                ended = await self._reconnect(error)
            self._supervisor = asyncio.create_task(self._supervise(ended))
        return self

    async def _connect_first(self) -> "asyncio.Future[Exception]":
        bare, ended = await self._connect()
        self._set_current(bare)
        return ended

    async def _connect(self) -> "tuple[Connection, asyncio.Future[Exception]]":
        ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        connection = await Connection.open(
            self.parameters, tls=self._tls, wait_counter=self.wait_counter
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
        """Part in order. What is not confirmed by now is not sent again: `flush` before, where it matters."""
        if self.error is None:
            bare = self._current
            self._terminate(ConnectionClosedByClientError())
            if bare is not None:
                await bare.close()
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor

    def _terminate(self, error: Exception) -> None:
        """For good."""
        self.error = error
        self._current = None
        for channel in list(self._channels):
            channel.terminate(error)
        self._notifier.notify_all()

    # ── supervision ───────────────────────────────────────────────────────────────────────────────────────

    async def _supervise(self, ended: "asyncio.Future[Exception]") -> None:
        loop = asyncio.get_running_loop()
        while True:
            lost = await ended
            if self.error is not None:
                return
            self._current = None
            self._retry.record_loss(loop.time())
            self._emit(ConnectionLost(lost))
            try:
                ended = await self._reconnect(lost)
            except ReconnectTimeoutError as error:
                gave_up = error
            except Exception as fault:
                # One of ours. Without its supervisor nothing would come back, nor anybody be told.
                log.exception("a connection to %s cannot be restored", self.parameters)
                patience = self._retry
                gave_up = ReconnectTimeoutError(
                    patience.seconds_since_loss(loop.time()), patience.attempt_count, fault
                )
            else:
                continue
            self._terminate(gave_up)
            self._emit(ReconnectAbandoned(gave_up))
            return

    async def _reconnect(self, error: Exception) -> "asyncio.Future[Exception]":
        """Try until it succeeds; `GaveUp` when it has taken too long."""
        loop, retry = asyncio.get_running_loop(), self._retry
        while True:
            delay = retry.next_delay(loop.time(), random.random())
            if delay is None:
                raise ReconnectTimeoutError(
                    retry.seconds_since_loss(loop.time()), retry.attempt_count - 1, error
                ) from error
            self._emit(ReconnectScheduled(retry.attempt_count, delay, error))
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
        loop, retry = asyncio.get_running_loop(), self._retry
        connection, ended = await self._connect()
        try:
            recovery = ConnectionRecovery(connection, self.topology, self._emit)
            await recovery.recover_topology()
            await recovery.recover_channels(list(self._channels))
        except BaseException as failure:
            # As if it had broken: to those who are on it already, a close would be the end for good.
            connection.abort(ConnectionLostError(f"not all could be restored: {failure}"))
            await connection.close()
            raise
        retry.record_recovery(loop.time())
        self._set_current(connection)
        seconds = retry.seconds_since_loss(loop.time())
        self._emit(
            ConnectionRecovered(
                retry.attempt_count, seconds, recovery.renamed_queues, recovery.republished_count
            )
        )
        return ended

    def _handle_blocked(self, reason: str | None) -> None:
        self._emit(PublishingUnblocked() if reason is None else PublishingBlocked(reason))

    def _emit(self, event: ConnectionEvent) -> None:
        """A hook that fails is no reason to stop."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                log.exception("on_event failed for %s", event)

    # ── channels ──────────────────────────────────────────────────────────────────────────────────────────

    async def channel(
        self, *, confirms: bool = True, unconfirmed_max_bytes: int = UNCONFIRMED_MAX_BYTES
    ) -> RobustChannel:
        """A new channel; at most `window` bytes, about, wait for confirms before `drain` waits."""
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
            channel.attach(plain_channel)
            channel.resume(plain_channel)
            self._channels[channel] = None
            return channel

    def remove_channel(self, channel: RobustChannel) -> None:
        """It has ended."""
        self._channels.pop(channel, None)

    def handle_consumer_removed(self, queue: str) -> None:
        name = self.current_queue_name(queue)
        others = (each for channel in self._channels for each in channel.consumers.values())
        if all(self.current_queue_name(each.queue) != name for each in others):
            self.topology.record_last_consumer_removed(name)

    async def _wait_connected(self) -> Connection:
        while True:
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self._supervisor is None:
                raise ValueError("await the connection first: connection = await connect(url)")
            if self._current is not None and self._current.error is None:
                return self._current
            await self._notifier.wait()


def _resolve(ended: "asyncio.Future[Exception]", error: Exception) -> None:
    if not ended.done():  # nobody waits for it once the supervisor is gone
        ended.set_result(error)
