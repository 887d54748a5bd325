"""Consume a queue into a spool, in a thread of its own: receive, write, fsync, acknowledge.

A message is acknowledged only when its row, or the row of the message that it duplicates, is durable.
Messages that arrive during one fsync form the next group, so groups grow with the load. After a small group
there is a pause, so that there are at most fifty small groups a second.

    Spark's thread                              the loop's thread                    a worker thread
    start, durable_end, slice_rows, commit      connection, spool (all but sync)     Spool.sync

The consumer waits for a broker that is unavailable. Errors that a retry cannot fix end it: a missing queue, a
refused login, a disk failure. The error is stored and raised by the next call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import uuid4

from recado.client import (
    ConnectionEvent,
    ConnectionLost,
    ConnectionRecovered,
    Delivery,
    ReconnectScheduled,
    RobustChannel,
    RobustConsumer,
    connect,
)
from recado.client.loop_thread import LoopThread
from recado.journal.disk import FolderDisk, FolderInUseError

from ..errors import PipelineError
from .options import QueueReadOptions
from .spool import Spool
from .spool_record import SpoolSlice

log = logging.getLogger("recado.pipeline")

TASK_BYTES: Final = 8 << 20  # approximate size of a task
SYNC_INTERVAL_MIN_S: Final = 0.02
"""Minimum time from one small group to the next: each costs half a millisecond, however many rows it has."""
_LARGE_BATCH_ROW_COUNT: Final = 100_000  # enough for an efficient batch
_LOCK_TIMEOUT_S: Final = 30.0  # for another process to release the spool
_POLL_INTERVAL_S: Final = 0.1
_IDLE_POLL_COUNT_MAX: Final = 300  # half a minute without a delivery
_CLOSE_TIMEOUT_S: Final = 5.0  # for the broker to close the connection


class NoDeliveriesError(PipelineError):
    """The queue has messages, but the broker delivers none of them."""

    def __init__(self, queue: str, messages: int) -> None:
        super().__init__(
            f"the queue '{queue}' has {messages} messages, but the broker delivers none of them. Either it is "
            "a stream, which this source cannot read, or another consumer gets all messages, as the single "
            "active consumer or by its priority. Stop that consumer, or use another trigger than availableNow"
        )


class SourceStoppedError(PipelineError):
    """The source was used after it was stopped."""

    def __init__(self) -> None:
        super().__init__("the source was stopped")


class SpoolingConsumer:
    """Consumes one queue into one spool. The public methods are called in Spark's thread."""

    def __init__(self, options: QueueReadOptions) -> None:
        """Opens nothing; see `open` and `start`."""
        self._options = options
        self._disk: FolderDisk | None = None
        self._spool: Spool
        self._thread = LoopThread("recado queue source", SourceStoppedError)
        self._error: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        # Set when rows became durable, or nothing more will arrive.
        self._progressed = asyncio.Event()
        self._space_freed = asyncio.Event()
        self._sync_lock = asyncio.Lock()
        self._remaining: int | None = None  # messages still to take; None: no limit
        self._outage = ""

    # -- Spark's thread ----------------------------------------------------------------------------

    def open(self) -> None:
        """Open the spool, waiting for a process that still has it locked and is about to end."""
        disk = self._disk = FolderDisk(self._options.spool)
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                disk.lock()
                break
            except FolderInUseError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_INTERVAL_S)  # there is no lock call with a timeout
        self._spool = Spool(disk, window_size=self._options.dedup_window)
        self._spool.recover(self._options.queue, lambda: uuid4().bytes)
        self._thread.start()

    def start(self, *, available_now: bool = False) -> None:
        """Start consuming. With `available_now`, take at most the messages that are in the queue now."""
        self._thread.run(self._start(available_now))

    @property
    def id(self) -> str:
        """The id of the spool."""
        return self._spool.id.hex()

    @property
    def committed(self) -> int:
        """The first row that was not committed."""
        return self._spool.committed

    @property
    def outage(self) -> str:
        """Why the broker is unavailable; empty if it is available."""
        return self._outage

    @property
    def duplicates(self) -> int:
        """The number of messages that were dropped as duplicates."""
        return self._spool.duplicates

    def durable_end(self) -> int:
        """Return the offset after the last row that can be read."""
        self._raise_error()
        return self._spool.durable

    def mark_planned(self, offset: int) -> None:
        """Exclude rows before this offset, which are in batches, from the size limit of the spool.

        Spark commits a batch only when it plans the next one. If planned rows counted, a full spool would
        never get rows for the next batch.
        """
        self._thread.run(self._mark_planned(offset))

    def wait_for_rows(self, offset: int) -> int:
        """Wait for a large batch after `offset`, a full spool, or the end of the queue; return the end."""
        self.wait_until(
            lambda: self._spool.durable >= offset + (1 if self._is_full else _LARGE_BATCH_ROW_COUNT)
        )
        return self.durable_end()

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached` returns true, or no more messages will arrive.

        `reached` is called in the loop's thread after each change.
        """
        self._thread.run(self._wait_until(reached))
        self._raise_error()

    def slice_rows(self, start: int, end: int) -> list[SpoolSlice]:
        """Return where the rows [start, end) are in the spool, divided into slices for tasks."""
        return self._thread.run(self._slice_rows(start, end))

    def commit(self, offset: int) -> None:
        """Remove the rows before this offset, which Spark has committed."""
        self._raise_error()
        self._thread.run(self._commit(offset))

    def stop(self) -> None:
        """Stop consuming. Messages that are not durable stay unacknowledged; the broker delivers them again."""
        if self._thread.is_running:
            self._thread.run(self._stop())
            self._thread.stop()  # waits for a running sync, which needs the files
            self._spool.close()
        if self._disk is not None:
            self._disk.close()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # -- the loop's thread -------------------------------------------------------------------------

    async def _start(self, available_now: bool) -> None:
        counted = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._consume(available_now, counted))
        self._task.add_done_callback(self._on_task_done)
        if available_now:
            await asyncio.wait([counted, self._task], return_when=asyncio.FIRST_COMPLETED)
            self._raise_error()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._error = error
        self._progressed.set()

    async def _stop(self) -> None:
        if self._task is not None:
            # All messages are taken: let the connection close in order.
            if self._remaining == 0:
                await asyncio.wait([self._task], timeout=_CLOSE_TIMEOUT_S)
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    async def _wait_until(self, reached: Callable[[], bool]) -> None:
        assert self._task is not None
        while not reached() and not self._task.done() and self._remaining != 0:
            self._progressed.clear()
            await self._progressed.wait()

    async def _slice_rows(self, start: int, end: int) -> list[SpoolSlice]:
        return self._spool.slice_rows(start, end, TASK_BYTES)

    async def _mark_planned(self, offset: int) -> None:
        self._spool.mark_planned(offset)
        self._space_freed.set()

    async def _commit(self, offset: int) -> None:
        self._spool.commit(offset)
        self._space_freed.set()
        await self._flush()

    async def _flush(self) -> None:
        """Write and fsync appended rows, then remove committed rows, whose commit is durable now."""
        async with self._sync_lock:
            self._spool.write()
            await asyncio.to_thread(self._spool.sync)
            self._spool.remove_committed()
        self._progressed.set()

    async def _consume(self, available_now: bool, counted: asyncio.Future[None]) -> None:
        options = self._options
        # With a new spool, a failure to connect is most likely a wrong URL: report it at once.
        async with connect(
            options.url,
            on_event=self._on_event,
            reconnect_timeout=None,
            wait_for_broker=not self._spool.is_new,
        ) as connection:
            channel = await connection.channel(confirms=False)
            if options.declare:
                await channel.declare_queue(options.queue, durable=True)
            queue = await channel.declare_queue(options.queue, passive=True)
            if available_now:
                self._remaining = queue.message_count
            if not counted.done():
                counted.set_result(None)
            if self._remaining == 0:
                return
            await channel.qos(options.prefetch)
            consumer = await channel.consume(options.queue)
            loop = asyncio.get_running_loop()
            while self._remaining is None or self._remaining > 0:
                started_at = loop.time()
                batch = await self._next_batch(channel, consumer)
                if not batch:
                    self._remaining = 0
                    break
                await self._store_batch(batch)
                # No pause after a large batch: the prefetch window would run empty meanwhile.
                if self._remaining != 0 and len(batch) < options.prefetch // 4:
                    await asyncio.sleep(started_at + SYNC_INTERVAL_MIN_S - loop.time())
            self._progressed.set()  # do not wait for the connection to close

    @property
    def _is_full(self) -> bool:
        return self._spool.unplanned_bytes >= self._options.max_spool_bytes

    async def _next_batch(self, channel: RobustChannel, consumer: RobustConsumer) -> list[Delivery]:
        """Return the next deliveries; with available-now, an empty list when the queue has no more messages."""
        while self._is_full:
            self._progressed.set()
            self._space_freed.clear()
            await self._space_freed.wait()
        if self._remaining is None:
            return await consumer.next_batch()
        empty_polls = polls = 0
        while empty_polls < 2:  # one empty poll proves nothing: deliveries may be in flight
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL_S):
                    return (await consumer.next_batch())[: self._remaining]
            # Messages can also expire or go to other consumers: then fewer arrive than were counted.
            state = await channel.declare_queue(self._options.queue, passive=True)
            empty_polls = 0 if state.message_count else empty_polls + 1
            polls += 1  # counted, not timed: `declare_queue` waits during an outage
            if state.message_count and polls >= _IDLE_POLL_COUNT_MAX:
                raise NoDeliveriesError(self._options.queue, state.message_count)
        return []

    async def _store_batch(self, batch: list[Delivery]) -> None:
        self._spool.append(batch, time.time_ns() // 1000)
        await self._flush()
        # Stale deliveries are redelivered. The ack settles all others; earlier messages are settled already.
        if batch[-1].ack(multiple=True) and self._remaining is not None:
            self._remaining -= sum(not each.is_stale for each in batch)

    def _on_event(self, event: ConnectionEvent) -> None:
        match event:
            case ConnectionLost(error):
                self._outage = str(error)
                log.warning(
                    "connection to broker lost, reconnecting (queue=%s): %s",
                    self._options.queue,
                    error,
                )
            case ReconnectScheduled(_, _, error):
                self._outage = str(error)
            case ConnectionRecovered(_, seconds):
                self._outage = ""
                log.warning(
                    "connection to broker restored (queue=%s outage_s=%.1f)",
                    self._options.queue,
                    seconds,
                )
            case _:
                pass
        self._progressed.set()
