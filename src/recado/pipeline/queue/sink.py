"""`format("amqp")` as a sink: what a task writes is published, and confirmed before the task is done.

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
    Lost,
    Notice,
    Returned,
    RobustChannel,
    RobustConnection,
    connect,
)
from recado.client.loop_thread import LoopThread

from .rendering import Rendering
from .settings import SinkOptions, checked_url

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("recado.pipeline")

_TURN: Final = 256  # messages that are handed over before it is asked whether there is room


class NotPublished(Exception):
    """Not all of a task's messages arrived."""


@dataclass
class Published(WriterCommitMessage):
    """What a task did."""

    messages: int


class _Writer:
    """What both writers have in common: what they were told, checked; and a task's work."""

    def __init__(self, options: SinkOptions, columns: Mapping[str, str]) -> None:
        self._options = options
        self._rendering = Rendering(options, columns, checked_url(options.url).username)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        thread = LoopThread("recado sink", _closed)
        thread.start()
        try:
            task = _Task(self._options, self._rendering)
            thread.run(task.open())
            try:
                for batch in iterator:
                    thread.run(task.publish(batch))
                thread.run(task.finish())
            finally:
                thread.run(task.close())
            return Published(task.count)
        finally:
            thread.stop()


class _Task:
    """In the loop's thread."""

    def __init__(self, options: SinkOptions, rendering: Rendering) -> None:
        self.count = 0
        self._options = options
        self._rendering = rendering
        self._connection: RobustConnection | None = None
        self._channel: RobustChannel
        self._returned: list[Returned] = []
        self._unwanted = 0

    async def open(self) -> None:
        patience = self._options.confirm_timeout
        connection = await connect(
            self._options.url, on_event=_heard, give_up=patience, patient=True
        )
        self._connection = connection
        self._channel = await connection.channel()
        self._channel.on_return = self._came_back

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def publish(self, batch: pa.RecordBatch) -> None:
        channel, mandatory = self._channel, self._options.mandatory
        publish = channel.publish
        for number, (exchange, key, body, properties) in enumerate(
            self._rendering.messages(batch), 1
        ):
            publish(exchange, key, body, properties, mandatory=mandatory)
            if not number % _TURN:
                await self._in_time(channel.drain)
        self.count += batch.num_rows
        self._raise_returned()

    async def finish(self) -> None:
        """Wait for the confirms of all."""
        await self._in_time(self._channel.flush)
        self._raise_returned()

    async def _in_time(self, wait: Callable[[], Awaitable[None]]) -> None:
        """As long as the broker confirms something now and then."""
        while True:
            before = self._channel.unconfirmed
            try:
                async with asyncio.timeout(self._options.confirm_timeout):
                    return await wait()
            except TimeoutError:
                if self._channel.unconfirmed >= before:
                    raise NotPublished(
                        f"the broker confirmed nothing for {self._options.confirm_timeout:g} s, and {before} "
                        "messages are not confirmed. It may be short of memory or disk; see also the option "
                        "confirmTimeout"
                    ) from None

    def _came_back(self, message: Returned) -> None:
        self._unwanted += 1
        if len(self._returned) < 1:
            self._returned.append(message)

    def _raise_returned(self) -> None:
        for first in self._returned:
            raise NotPublished(
                f"no queue wants {self._unwanted} messages, the first of them with the routing key "
                f"'{first.routing_key}' at the exchange '{first.exchange}': {first.text}. Bind a queue, or let "
                "them be dropped: .option('mandatory', 'false')"
            )


def _heard(notice: Notice) -> None:
    if isinstance(notice, Lost):
        log.warning("a task of the sink: waiting for the broker: %s", notice.error)


def _closed() -> Exception:
    return NotPublished("the task has ended")


class QueueWriter(_Writer, DataSourceArrowWriter):
    """There is nothing left to commit when all tasks are done."""


class QueueStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Likewise, of each batch."""
