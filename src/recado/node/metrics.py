"""The counters of a node, published on the feed `recado.metrics` if `metrics.publish` is set.

Every `metrics.interval` (1 s by default), `CounterReader` reads counters that the broker and the committer
maintain in any case, and `MetricsPublisher` publishes them as one JSON object. A node that does not publish
does not import this module.
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
from recado.node.address import build_local_url
from recado.node.settings import Settings
from recado.server import memory

if TYPE_CHECKING:
    from recado.feeds.feed import Feed
    from recado.node.data_folder import DataFolder
    from recado.server.server import Server

log = logging.getLogger("recado.node")

METRICS_FEED: Final = "recado.metrics"


class MetricsStartError(OSError):
    """The feed of the counters does not start; the text has the reason."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The published counters. Totals are since `started`, which identifies the incarnation of the node.

    The field names are the keys of the JSON object.
    """

    node: str
    """The address where it listens."""
    at: int
    """Microseconds since 1970, like `started`."""
    started: int
    late_seconds: float
    """Delay of this sample, because the loop was busy."""
    connections: int
    """Including those of the node's own archives and of these metrics."""
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
    """Publishers that are blocked by an alarm."""
    alarm: str | None
    memory_used: int
    memory_limit: int
    """Bytes above which publishers are blocked."""
    processor_seconds: float
    disk_free: int | None = None
    """Bytes; this and the following fields only with a data folder."""
    journal_bytes: int | None = None
    syncs: int | None = None
    sync_seconds: float | None = None


class CounterReader:
    """Reads the counters of a running node."""

    def __init__(
        self, server: Server, data_folder: DataFolder | None, node: str, memory_watermark: float
    ) -> None:
        self._server = server
        self._data_folder = data_folder
        self._node = node
        self._memory_limit = int(memory.total_bytes() * memory_watermark)
        self._started = now_us()

    def read(self, late: float = 0.0) -> Counters:
        """Read all counters, in the thread of the loop; the cost grows with the queues and channels."""
        server, broker = self._server, self._server.broker
        channels = [
            channel
            for connection in server.connections
            for channel in connection.session.channels.values()
        ]
        counters = broker.counters.total_with(channels)
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
            published=counters.published,
            confirmed=counters.confirmed,
            delivered=counters.delivered,
            acknowledged=counters.acknowledged,
            blocked=len(server.blocked),
            alarm=server.alarm,
            memory_used=memory.resident_bytes(),
            memory_limit=self._memory_limit,
            processor_seconds=round(time.process_time(), 6),
            **self._read_disk(),
        )

    def _read_disk(self) -> dict[str, Any]:
        data_folder, committer = self._data_folder, self._server.committer
        if data_folder is None or committer is None:
            return {}
        return {
            "disk_free": data_folder.free_bytes(),
            "journal_bytes": data_folder.journal_bytes(),
            "syncs": committer.sync_count,
            "sync_seconds": round(committer.sync_seconds, 6),
        }


def now_us() -> int:
    return time.time_ns() // 1_000


class MetricsPublisher:
    """Publishes the counters on their feed, with a connection of its own."""

    def __init__(self, reader: CounterReader, interval: float) -> None:
        self._reader = reader
        self._interval = interval
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, settings: Settings, address: str, server: Server, data_folder: DataFolder | None
    ) -> MetricsPublisher:
        chosen = settings.metrics
        reader = CounterReader(server, data_folder, address, settings.broker.memory_watermark)
        metrics = cls(reader, chosen.interval)
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
        """Publish in intervals. While publishers are blocked this waits too, and skips the missed intervals."""
        clock = asyncio.get_running_loop().time
        due = clock()
        try:
            while True:
                late = clock() - due
                body = msgspec.json.encode(self._reader.read(late))
                await feed.publish(body, key=address)
                due = max(due + self._interval, clock())
                await asyncio.sleep(due - clock())
        except FeedError as error:  # the broker continues without metrics
            log.error("metrics stopped: %s (feed=%s)", error, METRICS_FEED)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stack.aclose()
