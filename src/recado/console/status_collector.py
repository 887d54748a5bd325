"""Collects status records from the exchange `recado.status` of each vhost, for `management.status`.

The collector has a queue in each vhost, bound to the exchange, and empties it every second, without a connection.
A queue holds a limited number of records and drops the oldest ones, and emptying all queues takes at most a tenth of
the time, in slices of a millisecond: records that are published too fast are lost, and hardly delay messages.

The queues are exclusive to the collector, as those of a connection: clients can neither consume from them nor
delete them. The exchange is declared in each vhost, so that publishers only need the permission to write to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

from recado.amqp.errors import AmqpError
from recado.broker.access import Permission, User
from recado.broker.arguments import QueueSettings
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess
from recado.status.record import RECORD_MAX_BYTES, STATUS_EXCHANGE

from .local_channel import LocalChannel
from .slices import SLICE_S
from .status_table import StatusRecords

if TYPE_CHECKING:
    from recado.broker.broker import Broker
    from recado.broker.vhost import Vhost
    from recado.server.server import Server

log = logging.getLogger("recado.console")

COLLECT_INTERVAL_S: Final = 1.0
COLLECT_TIME_MAX_S: Final = 0.1
"""Of the loop, for the records of one interval."""
QUEUE_MAX_COUNT: Final = 1_000  # as many sources as a table of records has
QUEUE_MAX_BYTES: Final = 16 * RECORD_MAX_BYTES
READ_PERMISSION: Final = Permission(configure="", write="", read=".*")


class StatusCollector:
    """Empties the queues of all vhosts into `records`."""

    # As `ExclusiveOwner` of the queues.
    has_ended = False

    def __init__(self, server: Server, interval: float = COLLECT_INTERVAL_S) -> None:
        self.records = StatusRecords()
        self.exclusive_queues: dict[Queue, None] = {}
        self._server = server
        self._interval = interval
        self._queues: dict[str, Queue] = {}
        self._unchecked: deque[str] = deque()
        """Vhosts in which the exchange and the queue are still to be checked."""
        self._waiting: deque[str] = deque()
        """Vhosts whose queues are still to be emptied, in turn."""
        self._refused: set[str] = set()
        """Vhosts in which the exchange cannot be used."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Declare the exchange and a queue in each vhost, and collect from now on."""
        self._unchecked.extend(self._server.broker.vhosts)
        self._server.run_on_broker(partial(self._declare, inf))
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.collect()
            except Exception:  # the next interval tries again
                log.exception("error while collecting status records")

    async def collect(self) -> None:
        """Store the waiting records, a millisecond at a time, and drop those that are a day old."""
        vhosts = self._server.broker.vhosts
        self._unchecked.extend({**dict.fromkeys(vhosts), **dict.fromkeys(self._queues)})
        await self._run_in_slices(self._declare, self._unchecked, inf)
        if not self._waiting:
            self._waiting.extend(self._queues)
        await self._run_in_slices(self._take, self._waiting, COLLECT_TIME_MAX_S)
        self._server.run_on_broker(
            lambda broker, now: self.records.expire(now, broker.vhosts.keys())
        )

    async def _run_in_slices(
        self, work: Callable[[float, Broker, int], None], left: Collection[str], budget: float
    ) -> None:
        """Call `work` with the end of a slice until nothing is left or the time of all slices is used up."""
        while left and budget > 0:
            started = perf_counter()
            self._server.run_on_broker(partial(work, started + SLICE_S))
            budget -= perf_counter() - started
            await asyncio.sleep(0)

    def _declare(self, slice_end: float, broker: Broker, now: int) -> None:
        """Declare what is missing in the next vhosts: in new ones, and where a client has deleted the exchange."""
        while self._unchecked and perf_counter() < slice_end:
            name = self._unchecked.popleft()
            queue, vhost = self._queues.get(name), broker.vhosts.get(name)
            if vhost is None:
                self._queues.pop(name, None)
                self._refused.discard(name)
                continue
            if queue is not None and (queue.deleted or queue.vhost is not vhost):
                queue = None
            if queue is not None and vhost.bindings_to(queue):
                continue
            try:
                self._queues[name] = self._bind(broker, vhost, queue, now)
                self._refused.discard(name)
            except AmqpError as error:  # the exchange exists with another type, or is being deleted
                if name not in self._refused:
                    self._refused.add(name)
                    log.warning("status records not collected: %s (vhost=%r)", error, name)

    def _bind(self, broker: Broker, vhost: Vhost[Queue], queue: Queue | None, now: int) -> Queue:
        """Return the collector's queue of a vhost, bound to the exchange. Raises `AmqpError`."""
        if not vhost.must_wait_to_declare("exchange", STATUS_EXCHANGE):
            vhost.declare_exchange(STATUS_EXCHANGE, "topic", durable=True)
        exchange = vhost.require_exchange(STATUS_EXCHANGE)
        if queue is None:
            settings = QueueSettings(
                exclusive=True, max_length=QUEUE_MAX_COUNT, max_length_bytes=QUEUE_MAX_BYTES
            )
            name = f"amq.gen-{broker.new_name()}"
            queue = broker.create_queue(vhost, name, settings, self, now)
        if exchange.find_binding(queue, "#", {}) is None:
            vhost.add_binding(exchange, queue, "#", {})
        return queue

    def _take(self, slice_end: float, broker: Broker, now: int) -> None:
        """Take records from the queues, in turn, until the end of a slice or of the records."""
        while self._waiting and perf_counter() < slice_end:
            name = self._waiting[0]
            queue = self._queues.get(name)
            if queue is None or queue.deleted or not queue.ready:
                self._waiting.popleft()
                continue
            reader = User("recado.status", permissions={name: READ_PERMISSION})
            access = VhostAccess(reader, queue.vhost, broker.consumer_timeouts, broker.coalescer)
            channel = LocalChannel(broker, access, RECORD_MAX_BYTES, now)
            try:
                while queue.ready and perf_counter() < slice_end:
                    self._take_record(channel, queue, now)
            finally:
                channel.close()
            self._waiting.rotate(-1)

    def _take_record(self, channel: LocalChannel, queue: Queue, now: int) -> None:
        vhost = queue.vhost.name
        try:
            message = channel.get(queue, no_ack=True)
        except AmqpError as error:  # its properties are malformed
            self.records.reject(vhost, error)
            return
        if message is not None:
            self.records.receive(vhost, message.method.routing_key, message.body, now)
