"""The node's counters, on the feed `recado.metrics`: a message each second, if `metrics.publish` says so.

Nothing is counted for it: what the parts of the node know anyway is looked at once a second, and written as one
JSON object. A node that does not publish loads none of this.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.feeds.connection import FeedConnection
from recado.feeds.errors import FeedError
from recado.node.login import build_local_url
from recado.node.settings import Settings
from recado.server import memory

if TYPE_CHECKING:
    from recado.feeds.feed import Feed
    from recado.node.data_folder import DataFolder
    from recado.server.server import Server

log = logging.getLogger("recado.node")

METRICS_FEED: Final = "recado.metrics"


class MetricsStartError(OSError):
    """The feed of the counters does not start; the text says why."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is and has done. Totals are since `started`, which tells one life of a node from the next."""

    node: str
    """Where it listens."""
    at: int
    """µs since 1970, as is `started`."""
    started: int
    late_seconds: float
    """By how much this was taken later than planned, because the loop was busy."""
    connections: int
    """Those of the node's own archives, and of these counters, among them."""
    channels: int
    exchanges: int
    queues: int
    consumers: int
    messages_ready: int
    messages_unacknowledged: int
    published: int
    confirmed: int
    delivered: int
    acknowledged: int
    blocked: int
    """Publishers that wait for an alarm to end."""
    alarm: str | None
    memory_used: int
    memory_limit: int
    """Bytes; above it publishers are blocked."""
    processor_seconds: float
    disk_free: int | None = None
    """Bytes; this and what follows only with a data folder."""
    journal_bytes: int | None = None
    syncs: int | None = None
    sync_seconds: float | None = None


class CounterReader:
    """Looks at a node that runs."""

    def __init__(
        self, server: Server, storage: DataFolder | None, node: str, memory_watermark: float
    ) -> None:
        self._server = server
        self._data_folder = storage
        self._node = node
        self._memory_limit = int(memory.total_bytes() * memory_watermark)
        self._started = now_us()

    def read(self, late: float = 0.0) -> Counters:
        """In the loop's thread; the work is in proportion to the number of queues and channels."""
        server, broker = self._server, self._server.broker
        channels = [
            channel
            for connection in server.connections
            for channel in connection.session.channels.values()
        ]
        tally = broker.counters.total_with(channels)
        vhosts = broker.vhosts.values()
        queues = [
            queue
            for vhost in vhosts
            for queue in vhost.queues.values()
            if not queue.is_reply_address
        ]
        return Counters(
            node=self._node,
            at=now_us(),
            started=self._started,
            late_seconds=round(late, 6),
            connections=len(server.connections),
            channels=len(channels),
            exchanges=sum(len(vhost.exchanges) for vhost in vhosts),
            queues=len(queues),
            consumers=sum(len(queue.consumers) + len(queue.wire_taps) for queue in queues),
            messages_ready=sum(queue.ready for queue in queues),
            messages_unacknowledged=sum(queue.unacked for queue in queues),
            published=tally.published,
            confirmed=tally.confirmed,
            delivered=tally.delivered,
            acknowledged=tally.acknowledged,
            blocked=len(server.blocked),
            alarm=server.alarm,
            memory_used=memory.resident_bytes(),
            memory_limit=self._memory_limit,
            processor_seconds=round(time.process_time(), 6),
            **self._read_disk(),
        )

    def _read_disk(self) -> dict[str, Any]:
        storage, committer = self._data_folder, self._server.committer
        if storage is None or committer is None:
            return {}
        return {
            "disk_free": storage.free_bytes(),
            "journal_bytes": storage.journal_bytes(),
            "syncs": committer.sync_count,
            "sync_seconds": round(committer.sync_seconds, 6),
        }


def now_us() -> int:
    return time.time_ns() // 1_000


class MetricsPublisher:
    """The counters on their feed, by a connection of their own."""

    def __init__(self, gauge: CounterReader, seconds: float) -> None:
        self._reader = gauge
        self._interval = seconds
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, settings: Settings, address: str, server: Server, storage: DataFolder | None
    ) -> MetricsPublisher:
        chosen = settings.metrics
        gauge = CounterReader(server, storage, address, settings.broker.memory_watermark)
        metrics = cls(gauge, chosen.interval)
        try:
            url = build_local_url(settings, address, chosen.vhost)
            link = await metrics._stack.enter_async_context(
                FeedConnection(url, reconnect_timeout=None)
            )
            feed = link.feed(METRICS_FEED)
        except FeedError as error:
            await metrics.stop()
            raise MetricsStartError(f"metrics.publish: {error}") from error
        metrics._task = asyncio.create_task(metrics._publish(feed, address))
        return metrics

    async def _publish(self, feed: Feed, address: str) -> None:
        """While publishers are blocked this waits with them; the seconds in between are left out."""
        clock = asyncio.get_running_loop().time
        due = clock()
        try:
            while True:
                late = clock() - due
                body = msgspec.json.encode(self._reader.read(late))
                await feed.publish(body, key=address)
                due = max(due + self._interval, clock())
                await asyncio.sleep(due - clock())
        except FeedError as error:  # the broker goes on without
            log.error("the counters are published no more: %s", error)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()
