"""The publishers and consumers of a bench, each on its own connection.

A body begins with the time at which it was sent, which the consumers, in the same process, subtract from the time
at which they receive it. Publishers wait while a queue has too many messages that a consumer has still to receive, so
that at most `BACKLOG_MAX_BYTES` of bodies wait in it (a stream also keeps those that were received).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from time import perf_counter_ns
from typing import Final

from recado.client import Channel, Consumer

from .histogram import LatencyHistogram

STAMP_BYTES: Final = 8
BATCH_MAX_COUNT: Final = 100  # published in one call, with one time stamp
BATCH_MAX_BYTES: Final = 1 << 20
BACKLOG_MAX_COUNT: Final = 1_000_000
BACKLOG_MAX_BYTES: Final = 256 << 20
NS_PER_S: Final = 1_000_000_000


class Backlog:
    """The messages of a queue that were published and that a consumer has still to receive.

    Each consumer of a stream receives every message, so the slowest one counts.
    """

    def __init__(self, queue: str, size_bytes: int, *, is_stream: bool) -> None:
        self.queue = queue
        self._max_count = max(1, min(BACKLOG_MAX_COUNT, BACKLOG_MAX_BYTES // size_bytes))
        self._is_stream = is_stream
        self._published = 0
        self._received: Counter[int] = Counter()
        self._changed = asyncio.Event()

    def add_consumer(self) -> int:
        """Return the number of a new consumer."""
        number = len(self._received)
        self._received[number] = 0
        return number

    @property
    def has_consumers(self) -> bool:
        return bool(self._received)

    @property
    def room(self) -> int:
        """How many messages may be published now."""
        counts = self._received.values()
        received = min(counts, default=0) if self._is_stream else sum(counts)
        return self._max_count - self._published + received

    def add_published(self, count: int) -> None:
        self._published += count

    def add_received(self, consumer: int, count: int) -> None:
        self._received[consumer] += count
        self._changed.set()

    async def wait_for_room(self) -> None:
        while self.room <= 0:
            self._changed.clear()
            await self._changed.wait()


class BenchPublisher:
    """Publishes until it is cancelled, or until a queue without consumers is as long as it may be."""

    def __init__(
        self,
        channel: Channel,
        backlog: Backlog,
        *,
        size_bytes: int,
        properties: bytes,
        window: int,
        rate: float | None,
    ) -> None:
        self._channel = channel
        self._backlog = backlog
        self._padding = bytes(size_bytes - STAMP_BYTES)
        self._properties = properties
        self._window = window
        self._batch_max = max(1, min(BATCH_MAX_COUNT, BATCH_MAX_BYTES // size_bytes))
        self._rate = rate
        self._sent_at: dict[int, int] = {}
        self._confirmed = asyncio.Event()
        self.published_count = 0
        """Messages that were confirmed; without confirms, messages that were sent."""
        self.nacked_count = 0
        self.latencies = LatencyHistogram()
        """Of confirms."""
        if window:
            channel.on_confirm = self._handle_confirms

    async def run(self) -> None:
        started_ns = perf_counter_ns()
        sent = 0
        while True:
            room = self._backlog.room
            if room <= 0:
                if not self._backlog.has_consumers:
                    await self._wait_for_confirms()
                    return
                await self._backlog.wait_for_room()
                continue
            count = min(room, self._batch_max)
            if self._window:
                count = min(count, self._window - self._channel.unconfirmed_count)
                if count <= 0:
                    self._confirmed.clear()
                    await self._confirmed.wait()
                    continue
            if self._rate is not None:
                elapsed_s = (perf_counter_ns() - started_ns) / NS_PER_S
                count = min(count, int(elapsed_s * self._rate) + 1 - sent)
                if count <= 0:
                    await asyncio.sleep(max((sent / self._rate) - elapsed_s, 0))
                    continue
            self._send(count)
            sent += count
            await self._channel.drain()
            await asyncio.sleep(0)  # `drain` returns without a pause while there is room

    def _send(self, count: int) -> None:
        now_ns = perf_counter_ns()
        body = now_ns.to_bytes(STAMP_BYTES, "big") + self._padding
        numbers = self._channel.publish_many(
            "", self._backlog.queue, [body] * count, self._properties
        )
        self._backlog.add_published(count)
        if self._window:
            self._sent_at.update(dict.fromkeys(numbers, now_ns))
        else:
            self.published_count += count

    def _handle_confirms(self, numbers: range, acked: bool) -> None:
        stamps = Counter(map(self._sent_at.pop, numbers))
        if acked:
            self.published_count += len(numbers)
            self.latencies.add_all(stamps, perf_counter_ns())
        else:
            self.nacked_count += len(numbers)
        self._confirmed.set()

    async def _wait_for_confirms(self) -> None:
        while self._sent_at:
            self._confirmed.clear()
            await self._confirmed.wait()


class BenchConsumer:
    """Receives and acknowledges messages until it is cancelled."""

    def __init__(self, consumer: Consumer, backlog: Backlog) -> None:
        self._consumer = consumer
        self._backlog = backlog
        self._number = backlog.add_consumer()
        self.received_count = 0
        self.latencies = LatencyHistogram()
        """From publishing to reception."""

    async def run(self) -> None:
        async for batch in self._consumer.batches():
            now_ns = perf_counter_ns()
            stamps = Counter(delivery.body[:STAMP_BYTES] for delivery in batch)
            self.latencies.add_all(
                {int.from_bytes(stamp, "big"): count for stamp, count in stamps.items()}, now_ns
            )
            self.received_count += len(batch)
            self._backlog.add_received(self._number, len(batch))
            if not self._consumer.no_ack:
                batch[-1].ack(multiple=True)
            await asyncio.sleep(0)  # `batches` yields without a pause while messages are buffered
