"""`format("amqp_transport")` as a sink: what a task writes is published, and confirmed before the task is done.

Each task has a connection of its own, in a thread of its own, so that heartbeats go on while Spark computes.
Nothing waits for a single confirm: a window of messages is under way. Spark repeats tasks and batches that
failed; then the same rows have the same ids (see `ids`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from recado.client import (
    ConnectionEvent,
    ConnectionLost,
    ReturnedMessage,
    RobustChannel,
    RobustConnection,
    connect,
)
from recado.client.loop_thread import LoopThread

from .options import QueueWriteOptions, parse_broker_url
from .row_encoder import RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("recado.pipeline")

_DRAIN_MESSAGE_COUNT: Final = (
    256  # messages that are handed over before it is asked whether there is room
)


class PublishFailedError(Exception):
    """Not all of a task's messages arrived."""


@dataclass
class PublishedCount(WriterCommitMessage):
    """What a task did."""

    messages: int


class _PublishingWriter:
    """What both writers have in common: what they were told, checked; and a task's work."""

    def __init__(self, options: QueueWriteOptions, columns: Mapping[str, str]) -> None:
        self._options = options
        self._encoder = RowEncoder(options, columns, parse_broker_url(options.url).username)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PublishedCount:
        thread = LoopThread("recado sink", _closed_error)
        thread.start()
        try:
            task = _PublishTask(self._options, self._encoder)
            thread.run(task.open())
            try:
                for batch in iterator:
                    thread.run(task.publish(batch))
                thread.run(task.finish())
            finally:
                thread.run(task.close())
            return PublishedCount(task.count)
        finally:
            thread.stop()


class _PublishTask:
    """In the loop's thread."""

    def __init__(self, options: QueueWriteOptions, rendering: RowEncoder) -> None:
        self.count = 0
        self._options = options
        self._encoder = rendering
        self._connection: RobustConnection | None = None
        self._channel: RobustChannel
        self._first_returned: list[ReturnedMessage] = []
        self._returned_count = 0

    async def open(self) -> None:
        patience = self._options.confirm_timeout
        connection = await connect(
            self._options.url, on_event=_log_event, reconnect_timeout=patience, wait_for_broker=True
        )
        self._connection = connection
        self._channel = await connection.channel()
        self._channel.on_return = self._on_return

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def publish(self, batch: pa.RecordBatch) -> None:
        channel, mandatory = self._channel, self._options.mandatory
        publish = channel.publish
        for number, (exchange, key, body, properties) in enumerate(self._encoder.encode(batch), 1):
            publish(exchange, key, body, properties, mandatory=mandatory)
            if not number % _DRAIN_MESSAGE_COUNT:
                await self._wait_with_timeout(channel.drain)
        self.count += batch.num_rows
        self._check_returned()

    async def finish(self) -> None:
        """Wait for the confirms of all."""
        await self._wait_with_timeout(self._channel.wait_for_confirms)
        self._check_returned()

    async def _wait_with_timeout(self, wait: Callable[[], Awaitable[None]]) -> None:
        """As long as the broker confirms something now and then."""
        while True:
            before = self._channel.unconfirmed_count
            try:
                async with asyncio.timeout(self._options.confirm_timeout):
                    return await wait()
            except TimeoutError:
                if self._channel.unconfirmed_count >= before:
                    raise PublishFailedError(
                        f"the broker confirmed nothing for {self._options.confirm_timeout:g} s, and {before} "
                        "messages are not confirmed. It may be short of memory or disk; see also the option "
                        "confirmTimeout"
                    ) from None

    def _on_return(self, message: ReturnedMessage) -> None:
        self._returned_count += 1
        if len(self._first_returned) < 1:
            self._first_returned.append(message)

    def _check_returned(self) -> None:
        for first in self._first_returned:
            raise PublishFailedError(
                f"no queue wants {self._returned_count} messages, the first of them with the routing key "
                f"'{first.routing_key}' at the exchange '{first.exchange}': {first.reply_text}. Bind a queue, or let "
                "them be dropped: .option('mandatory', 'false')"
            )


def _log_event(notice: ConnectionEvent) -> None:
    if isinstance(notice, ConnectionLost):
        log.warning("a task of the sink: waiting for the broker: %s", notice.error)


def _closed_error() -> Exception:
    return PublishFailedError("the task has ended")


class QueueBatchWriter(_PublishingWriter, DataSourceArrowWriter):
    """There is nothing left to commit when all tasks are done."""


class QueueStreamWriter(_PublishingWriter, DataSourceStreamArrowWriter):
    """Likewise, of each batch."""
