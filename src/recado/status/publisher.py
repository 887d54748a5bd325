"""Publishes status records at intervals, on a connection of its own.

Reporting must not disturb the program: without a broker, without permission, or while publishers are blocked,
records are dropped. The first failure after a success is logged; the next interval tries again.

PS1  No error of the broker or of the network is raised to the program; only a wrong URL or name is.
PS2  At most one record is being sent at a time; none is queued while the broker cannot be reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec

from recado.amqp.errors import NotFoundError
from recado.client import (
    Channel,
    ChannelClosedByBrokerError,
    ClientError,
    Connection,
    Properties,
    encode_properties,
    parse_url,
)
from recado.client.loop_thread import LoopThread

from .record import (
    INTERVAL_DEFAULT_S,
    STATUS_EXCHANGE,
    StatusRecord,
    check_source_name,
    encode_record,
    routing_key,
)

log = logging.getLogger("recado.status")

ATTEMPT_TIMEOUT_S: Final = 10.0
"""For connecting, and for one record to be sent."""
FINAL_TIMEOUT_S: Final = 2.0
"""For the last record, when the program ends, and for closing a connection."""

_PROPERTIES: Final = encode_properties(
    Properties(content_type="application/json", type="recado.status", delivery_mode=1)
)

ReadStatus = Callable[[], Awaitable[StatusRecord]]


class StatusPublisher:
    """Publishes the record that `read` returns, every `interval` seconds.

    `start` and `close` are called in one event loop. Raises `ValueError` for a wrong URL or name.
    """

    def __init__(
        self, url: str, name: str, read: ReadStatus, interval: float = INTERVAL_DEFAULT_S
    ) -> None:
        self._source = check_source_name(name)
        self._parameters = msgspec.structs.replace(parse_url(url), name=f"recado status of {name}")
        self._read = read
        self._interval = interval
        self._connection: Connection | None = None
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._has_warned = False
        self.published_count = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Publish one more record, if that takes at most `FINAL_TIMEOUT_S`, and close the connection."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        await self._attempt(FINAL_TIMEOUT_S)
        await self._disconnect()

    async def _run(self) -> None:
        while True:
            await self._attempt(ATTEMPT_TIMEOUT_S)
            await asyncio.sleep(self._interval)

    async def _attempt(self, limit_s: float) -> None:
        """Publish one record; log an error instead of raising it (PS1)."""
        try:
            async with asyncio.timeout(limit_s):
                await self._publish(await self._read())
        except (ClientError, OSError, TimeoutError) as error:
            await self._disconnect()
            if not self._has_warned:
                self._has_warned = True
                reason = str(error) or type(error).__name__
                log.warning(
                    "status not published: %s (source=%s); retrying every %g s",
                    reason,
                    self._source,
                    self._interval,
                )
        except Exception:
            log.exception("error while publishing a status (source=%s)", self._source)
            await self._disconnect()

    async def _publish(self, record: StatusRecord) -> None:
        connection, channel = self._connection, self._channel
        if connection is None or channel is None or not channel.is_open:
            await self._disconnect()
            connection = self._connection = await Connection.open(self._parameters)
            channel = self._channel = await self._open_channel(connection)
        if connection.blocked_reason is not None:
            return
        number = channel.publish(
            STATUS_EXCHANGE, routing_key(record), encode_record(record), _PROPERTIES
        )
        await channel.wait_for_confirm(number)
        self._has_warned = False
        self.published_count += 1

    async def _open_channel(self, connection: Connection) -> Channel:
        """Return a channel with confirms; declare the exchange if it does not exist.

        The passive declaration comes first because a user may lack the permission to declare the exchange.
        """
        channel = await connection.channel(confirms=True)
        try:
            await channel.declare_exchange(STATUS_EXCHANGE, "topic", passive=True)
        except ChannelClosedByBrokerError as error:
            if error.reply_code != NotFoundError.code:
                raise
            channel = await connection.channel(confirms=True)
            await channel.declare_exchange(STATUS_EXCHANGE, "topic", durable=True)
        return channel

    async def _disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(ClientError, OSError, TimeoutError):
                async with asyncio.timeout(FINAL_TIMEOUT_S):
                    await connection.close()


class ThreadedStatusPublisher:
    """A publisher for programs without an event loop.

    It runs in a thread, and publishes the record that was set last.
    """

    def __init__(self, url: str, record: StatusRecord) -> None:
        """Start to publish. Raises `ValueError` for a wrong URL or name."""
        self._record = record
        self._publisher = StatusPublisher(url, record.name, self._read, record.interval)
        self._thread = LoopThread(
            "recado status", lambda: RuntimeError("the status publisher is closed")
        )
        self._thread.start()
        self._thread.run(self._start())

    def set(self, record: StatusRecord) -> None:
        """Replace the record, from any thread."""
        self._record = record

    def close(self) -> None:
        """Publish the record once more, if that takes at most `FINAL_TIMEOUT_S`, and end the thread."""
        try:
            self._thread.run(self._publisher.close())
        finally:
            self._thread.stop()

    async def _start(self) -> None:
        self._publisher.start()

    async def _read(self) -> StatusRecord:
        return self._record
