"""Publish rows to an exchange: `format("amqp")` as a sink. All messages are confirmed before a task ends.

Each task has its own connection in its own thread, so that heartbeats continue while Spark computes. Tasks do
not wait for single confirms; a window of messages is in flight. Spark retries failed tasks and batches, and
retried rows have the same ids (see `message_ids`).
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

from ..errors import PipelineError
from .options import QueueWriteOptions, parse_broker_url
from .row_encoder import RowEncoder

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("recado.pipeline")

_DRAIN_MESSAGE_COUNT: Final = 256  # messages between two checks of the confirm window


class PublishFailedError(PipelineError):
    """Not all messages of a task were published."""


@dataclass
class PublishedCount(WriterCommitMessage):
    """The result of a task."""

    messages: int


class _PublishingWriter:
    """The common part of both writers: checked options, and the work of a task."""

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
    """Publishes the rows of one task; runs in the loop's thread."""

    def __init__(self, options: QueueWriteOptions, encoder: RowEncoder) -> None:
        self.count = 0
        self._options = options
        self._encoder = encoder
        self._connection: RobustConnection | None = None
        self._channel: RobustChannel
        self._first_returned: list[ReturnedMessage] = []
        self._returned_count = 0

    async def open(self) -> None:
        timeout = self._options.confirm_timeout
        connection = await connect(
            self._options.url, on_event=_log_event, reconnect_timeout=timeout, wait_for_broker=True
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
        """Wait until all messages are confirmed."""
        await self._wait_with_timeout(self._channel.wait_for_confirms)
        self._check_returned()

    async def _wait_with_timeout(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait, as long as the broker confirms something within each `confirm_timeout`."""
        while True:
            before = self._channel.unconfirmed_count
            try:
                async with asyncio.timeout(self._options.confirm_timeout):
                    return await wait()
            except TimeoutError:
                if self._channel.unconfirmed_count >= before:
                    raise PublishFailedError(
                        f"the broker confirmed nothing for {self._options.confirm_timeout:g} s, while "
                        f"{before} messages were unconfirmed. It may be short of memory or disk space; "
                        "see also the option confirmTimeout"
                    ) from None

    def _on_return(self, message: ReturnedMessage) -> None:
        self._returned_count += 1
        if len(self._first_returned) < 1:
            self._first_returned.append(message)

    def _check_returned(self) -> None:
        for first in self._first_returned:
            raise PublishFailedError(
                f"{self._returned_count} messages were unroutable, the first with the routing key "
                f"'{first.routing_key}' at the exchange '{first.exchange}': {first.reply_text}. Bind a "
                "queue, or drop unroutable messages: .option('mandatory', 'false')"
            )


def _log_event(event: ConnectionEvent) -> None:
    if isinstance(event, ConnectionLost):
        log.warning("connection to broker lost, reconnecting (sink task): %s", event.error)


def _closed_error() -> Exception:
    return PublishFailedError("the task has ended")


class QueueBatchWriter(_PublishingWriter, DataSourceArrowWriter):
    """A batch write; when all tasks are done, nothing is left to commit."""


class QueueStreamWriter(_PublishingWriter, DataSourceStreamArrowWriter):
    """A streaming write; when the tasks of a batch are done, nothing is left to commit."""
