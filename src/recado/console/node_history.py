"""The totals of the node once a second for an hour, and once a minute for a day.

Each resolution is a ring of columns: arrays of 64-bit integers that are allocated once, so memory does not grow.
With 15 columns both rings have 0.7 MB. A sample reads the counters of the broker and adds up the lengths of all
queues, in bounded steps. If that takes longer than 1 % of a second, samples are taken less often, so that they take
at most 1 % of the loop's time.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final

import msgspec

from recado.server import memory
from recado.server.connection import now_ms

from .history import SAMPLED_PORTION_COUNT
from .query import Steps
from .resources.statistics import count_unacked

if TYPE_CHECKING:
    from .console import Console

SECONDS_COUNT: Final = 3_600
MINUTES_COUNT: Final = 1_440
INTERVAL_S: Final = 1.0
SHARE_MAX_RATIO: Final = 0.01  # of the loop's time
MINUTE_MS: Final = 60_000
SECOND_US: Final = 1_000_000

COUNTERS: Final = ("publish", "confirm", "deliver_get", "ack", "unroutable")
FSYNC_FIELDS: Final = ("fsync_count", "fsync_us")
"""Counters as well: the number of syncs, and the time that they have taken."""
GAUGES: Final = (
    "messages_ready",
    "messages_unacknowledged",
    "queues",
    "connections",
    "channels",
    "mem_used",
    "disk_free",
)
PEAK: Final = "loop_lag_us"
"""The longest delay of a timer of the event loop since the sample before."""
FIELDS: Final = (*COUNTERS, *FSYNC_FIELDS, *GAUGES, PEAK)

Lengths = tuple[int, int, int]
"""Ready messages, unacknowledged messages, queues."""


class SampleRing:
    """The newest samples of several columns, with the time of each sample in milliseconds."""

    def __init__(self, fields: Sequence[str], capacity: int) -> None:
        self.fields = tuple(fields)
        self._capacity = capacity
        self._columns = [array("q", bytes(8 * capacity)) for _ in range(1 + len(fields))]
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    @property
    def newest_at_ms(self) -> int:
        """The time of the newest sample, 0 if there is none."""
        return self._columns[0][(self._count - 1) % self._capacity] if self._count else 0

    def append(self, at_ms: int, values: Sequence[int]) -> None:
        """Add a sample, in place of the oldest one if the ring is full."""
        position = self._count % self._capacity
        for column, value in zip(self._columns, (at_ms, *values), strict=True):
            column[position] = value
        self._count += 1

    def read(self, since_ms: int) -> Iterator[tuple[str, list[int]]]:
        """Return the columns `at` and `fields` of the samples after a time, the oldest sample first."""
        times = self._read_column(self._columns[0], len(self))
        wanted = sum(at_ms > since_ms for at_ms in times)
        for name, column in zip(("at", *self.fields), self._columns, strict=True):
            yield name, self._read_column(column, wanted)

    def _read_column(self, column: array[int], wanted: int) -> list[int]:
        end = self._count % self._capacity
        first = end - wanted
        if first >= 0:
            return column[first:end].tolist()
        return (column[first:] + column[:end]).tolist()


class NodeHistory:
    """Takes the samples; `seconds` and `minutes` have them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._task: asyncio.Task[None] | None = None
        self.seconds = SampleRing(FIELDS, SECONDS_COUNT)
        self.minutes = SampleRing(FIELDS, MINUTES_COUNT)
        self._peak_us = 0  # of the minute

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        due = clock()
        while True:
            started_at = clock()
            cost_s = await self.sample(now_ms())
            # If the process was stopped for a while, at most one missed sample is taken at once.
            due = max(due + INTERVAL_S, clock() - INTERVAL_S, started_at + pause_after(cost_s))
            await asyncio.sleep(max(0.0, due - clock()))

    async def sample(self, at_ms: int) -> float:
        """Take a sample; return how many seconds of the loop's time that took."""
        steps, cost_s = self._sum_lengths(), 0.0
        lengths: Lengths | None = None
        while lengths is None:
            started = perf_counter()
            try:
                next(steps)
            except StopIteration as done:
                lengths = done.value
            cost_s += perf_counter() - started
            await asyncio.sleep(0)
        started = perf_counter()
        self._record(at_ms, self._read(lengths))
        return cost_s + perf_counter() - started

    def _record(self, at_ms: int, values: list[int]) -> None:
        newest = self.seconds.newest_at_ms
        if newest and at_ms // MINUTE_MS != newest // MINUTE_MS:
            self.minutes.append(at_ms, [*values[:-1], max(self._peak_us, values[-1])])
            self._peak_us = 0
        self._peak_us = max(self._peak_us, values[-1])
        self.seconds.append(at_ms, values)

    def _sum_lengths(self) -> Steps[Lengths]:
        """Return ready and unacknowledged messages of all queues, and the number of queues."""
        ready = unacked = count = 0
        for vhost in list(self._console.broker.vhosts.values()):
            for number, queue in enumerate(list(vhost.queues.values()), 1):
                if not queue.is_reply_address:
                    ready += queue.ready
                    unacked += count_unacked(queue)
                    count += 1
                if number % SAMPLED_PORTION_COUNT == 0:
                    yield
        return ready, unacked, count

    def _read(self, lengths: Lengths) -> list[int]:
        console, server = self._console, self._console.server
        channels = [
            channel
            for connection in server.connections
            for channel in connection.session.channels.values()
        ]
        counters = console.broker.counters.total_with(channels)
        committer = server.committer
        syncs = committer.sync_durations if committer is not None else None
        ready, unacked, queue_count = lengths
        return [
            counters.published,
            counters.confirmed,
            counters.delivered,
            counters.acknowledged,
            counters.dropped + counters.returned,
            syncs.count if syncs is not None else 0,
            int(syncs.total * SECOND_US) if syncs is not None else 0,
            ready,
            unacked,
            queue_count,
            len(server.connections),
            len(channels),
            memory.resident_bytes(),
            console.data_folder.free_bytes() if console.data_folder is not None else 0,
            int(console.loop_lag.take_peak_s() * SECOND_US),
        ]


def pause_after(cost_s: float) -> float:
    """Return the minimum time from the start of a sample that took so much of the loop's time to the next one."""
    return cost_s / SHARE_MAX_RATIO


def render_ring(ring: SampleRing, since_ms: int) -> Iterator[bytes]:
    """Return the columns of a ring as a JSON object, a column at a time."""
    separator = b"{"
    for name, values in ring.read(since_ms):
        yield separator + msgspec.json.encode(name) + b":" + msgspec.json.encode(values)
        separator = b","
    yield b"}"
