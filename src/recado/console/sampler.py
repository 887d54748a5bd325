"""Samples all counters of the node every few seconds, in slices, for rates and time series."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from recado.broker.broker import DeletedQueueCounters
from recado.broker.queue import Queue
from recado.server.connection import now_ms

from .delivery_ages import DeliveryAges
from .history import SAMPLE_INTERVAL_S, CounterHistory
from .query import Steps
from .resources.statistics import (
    CHANNEL_FIELDS,
    CONNECTION_FIELDS,
    EXCHANGE_FIELDS,
    QUEUE_COUNTERS,
    QUEUE_FIELDS,
    QUEUE_LENGTHS,
    read_channel,
    read_queue,
)

if TYPE_CHECKING:
    from recado.server.server import Server

    from .slices import SlicePacer

log = logging.getLogger("recado.console")

TOTALS_KEY: Final = "totals"
"""The key of the node's own totals in their history."""

TOTAL_FIELDS: Final = ("confirm", *QUEUE_FIELDS)
VHOST_FIELDS: Final = QUEUE_FIELDS
CHURN_FIELDS: Final = (
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
)


class Sampler:
    """Holds the histories of all kinds of objects."""

    def __init__(
        self, server: Server, slices: SlicePacer, interval: float = SAMPLE_INTERVAL_S
    ) -> None:
        self._server = server
        self._slices = slices
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self.queues = CounterHistory(QUEUE_FIELDS)
        self.exchanges = CounterHistory(EXCHANGE_FIELDS)
        self.channels = CounterHistory(CHANNEL_FIELDS)
        self.connections = CounterHistory(CONNECTION_FIELDS)
        self.vhosts = CounterHistory(VHOST_FIELDS)  # by name
        self.totals = CounterHistory(TOTAL_FIELDS)
        self.churn = CounterHistory(CHURN_FIELDS)
        self.delivery_ages = DeliveryAges()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self.sample()
            except Exception:  # a bug met by one sample must not end all statistics
                log.exception("error while sampling the counters")
            await asyncio.sleep(self._interval)

    async def sample(self) -> None:
        """Take one sample of everything."""
        at_ms, server, run = now_ms(), self._server, self._slices.run
        broker = server.broker
        # The names are taken together with the queues: a vhost may be deleted between two slices.
        queues, names = list(self._queues()), list(broker.vhosts)
        await run(self.queues.sample(((q, read_queue(q)) for q in queues), at_ms))
        vhosts = await run(self.read_vhosts(queues, names))
        await run(
            self.vhosts.sample(
                ((name, tuple(sums.values())) for name, sums in vhosts.items()), at_ms
            )
        )
        totals = tuple(self.read_totals(vhosts.values()).values())
        await run(self.totals.sample([(TOTALS_KEY, totals)], at_ms))
        churn = tuple(self.read_churn().values())
        await run(self.churn.sample([(TOTALS_KEY, churn)], at_ms))
        exchanges = [each for vhost in broker.vhosts.values() for each in vhost.exchanges.values()]
        await run(
            self.exchanges.sample(
                ((each, (each.published_in, each.published_out)) for each in exchanges), at_ms
            )
        )
        connections = list(server.connections)
        await run(
            self.connections.sample(
                ((each, (each.received_bytes, each.sent_bytes)) for each in connections), at_ms
            )
        )
        channels = [
            channel
            for connection in connections
            for channel in connection.session.channels.values()
        ]
        await run(self.channels.sample(((each, read_channel(each)) for each in channels), at_ms))
        await run(self.delivery_ages.sample(broker.consumer_timeouts.channels, at_ms))

    def clear(self) -> None:
        """Forget all time series; rates continue."""
        for history in (
            self.queues,
            self.exchanges,
            self.channels,
            self.connections,
            self.vhosts,
            self.totals,
            self.churn,
        ):
            history.clear()

    def _queues(self) -> Iterator[Queue]:
        for vhost in self._server.broker.vhosts.values():
            for queue in vhost.queues.values():
                if not queue.is_reply_address:
                    yield queue

    def sum_queues(
        self, queues: Iterable[Queue | DeletedQueueCounters]
    ) -> Steps[tuple[dict[str, int], dict[str, int]]]:
        """Return the counters and the lengths of some queues together."""
        sums = [0] * len(QUEUE_FIELDS)
        for queue in queues:
            for index, value in enumerate(read_queue(queue)):
                sums[index] += value
            yield
        values = dict(zip(QUEUE_FIELDS, sums, strict=True))
        return (
            {name: values[name] for name in QUEUE_COUNTERS},
            {name: values[name] for name in QUEUE_LENGTHS},
        )

    def read_vhosts(
        self, queues: Iterable[Queue], names: Iterable[str]
    ) -> Steps[dict[str, dict[str, int]]]:
        """Return the sums of some vhosts: counters and lengths of their queues, and messages published to them.

        `publish` is counted at the exchanges, because each queue that a message enters counts it again. The queues
        must be in vhosts of these names.
        """
        sums = {name: [0] * len(QUEUE_FIELDS) for name in names}
        for queue in queues:
            of_vhost = sums[queue.vhost.name]
            for index, value in enumerate(read_queue(queue)):
                of_vhost[index] += value
            yield
        found = {}
        for name, values in sums.items():
            vhost = self._server.broker.vhosts.get(name)
            exchanges = vhost.exchanges.values() if vhost is not None else ()
            found[name] = dict(zip(VHOST_FIELDS, values, strict=True))
            found[name]["publish"] = sum(each.published_in for each in exchanges)
            yield
        return found

    def read_totals(self, vhosts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        """Return the counters of the node, given those of its vhosts: `TOTAL_FIELDS`.

        The published messages are those that clients sent: those of a deleted exchange are still counted.
        """
        totals = dict.fromkeys(TOTAL_FIELDS, 0)
        for vhost in vhosts:
            for name, value in vhost.items():
                totals[name] += value
        counters = self._server.broker.counters.total_with(
            channel
            for connection in self._server.connections
            for channel in connection.session.channels.values()
        )
        totals["publish"], totals["confirm"] = counters.published, counters.confirmed
        return totals

    def read_churn(self) -> dict[str, int]:
        """Return how many connections, channels and queues were opened and closed since the start."""
        churn = self._server.broker.usage
        return dict(
            zip(
                CHURN_FIELDS,
                (
                    churn.connections_created,
                    churn.connections_closed,
                    churn.channels_created,
                    churn.channels_closed,
                    churn.queues_declared,
                    churn.queues_created,
                    churn.queues_deleted,
                ),
                strict=True,
            )
        )
