"""Figures of every second, for the event stream: totals of vhosts, the node, and watched queues.

They are read in slices, as the samples of `sampler.py` are, but only while a reader wants them, and only the
counters that a chart needs: 0.4 µs for a queue. If the totals took more than a hundredth of a second, they are next
read later than after a second, so that this takes at most `BUSY_MAX_RATIO` of the time. The node and the watched
queues are still read every second.

Rates are changes of counters since the pass before. The counters of a queue or an exchange that was deleted in
between are added to those of its vhost, so that queues with a short life count.

FG1  Rates are never negative.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.server import memory

from ..access import is_monitor, login_vhosts
from ..resources.statistics import count_unacked
from ..slices import SLICE_S
from . import types
from .log import render
from .reader import EventReader, QueueName

if TYPE_CHECKING:
    from recado.broker.access import User
    from recado.broker.histogram import Histogram
    from recado.broker.vhost import Vhost

    from ..console import Console

INTERVAL_S: Final = 1.0
BUSY_MAX_RATIO: Final = 0.01
PORTION_COUNT: Final = 250  # queues between two looks at the time

Counters = list[int]  # publish, deliver_get, ack, redeliver
_COUNTER_COUNT: Final = 4


class VhostFigures:
    """The sums of a vhost, and the counters of its queues and exchanges that were deleted."""

    def __init__(self) -> None:
        self.ready = self.unacked = self.queue_count = self.exchange_count = 0
        self.consumer_count = 0
        self.counters: Counters = [0] * _COUNTER_COUNT
        self.deleted: Counters = [0] * _COUNTER_COUNT
        self.rates = [0.0] * _COUNTER_COUNT


def _read_queue(queue: Queue) -> Counters:
    return [
        queue.published_count,
        queue.delivered_count
        + queue.delivered_no_ack_count
        + queue.get_count
        + queue.get_no_ack_count,
        queue.acknowledged_count,
        queue.redelivered_count,
    ]


def _compute_rates(before: Counters, now: Counters, interval: float) -> list[float]:
    return [round(max(0, new - old) / interval, 3) for old, new in zip(before, now, strict=True)]


class LiveFigures:
    """The newest figures, and the events that have them, rendered once for all readers with the same view."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.clear()

    def clear(self) -> None:
        """Forget everything, because no reader is left."""
        self.generation = 0
        """How often figures were taken; 0 while there are none."""
        self.totals_generation = 0
        """How often totals were taken."""
        self._at_ms = self._totals_at_ms = 0
        self._taken_at = self._totals_taken_at = 0.0
        self._interval = self._totals_interval = INTERVAL_S
        self._vhosts: dict[str, VhostFigures] = {}
        self._watched: dict[QueueName, Counters] = {}
        self._fragments: dict[QueueName, bytes] = {}
        self._lag_counts: list[int] = []
        self._lag_total = 0.0
        self._sync_counts: list[int] = []
        self._sync_total = 0.0
        self._node: bytes | None = None
        # The key is the chosen vhosts, and the id of the user object or 0 for all monitors. The value has the user
        # as well, so that no other object gets its id meanwhile.
        self._overviews: dict[tuple[int, frozenset[str]], tuple[User, bytes]] = {}

    @staticmethod
    def pause_after(busy_s: float) -> float:
        """Return the time from the start of a reading of totals that took `busy_s` to the next one."""
        return max(INTERVAL_S, busy_s / BUSY_MAX_RATIO)

    # ── deleted objects ─────────────────────────────────────────────────────────────────────────────

    def add_deleted_queue(self, queue: Queue) -> None:
        known = self._vhosts.get(queue.vhost.name)
        if known is not None:
            _, *others = _read_queue(queue)
            for index, value in enumerate(others, 1):
                known.deleted[index] += value

    def add_deleted_exchange(self, vhost: str, exchange: Exchange[Any]) -> None:
        known = self._vhosts.get(vhost)
        if known is not None:
            known.deleted[0] += exchange.published_in

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    async def take_totals(self, now_ms: int) -> float:
        """Read the totals of all vhosts, in slices, and return the time that it took."""
        started_at = asyncio.get_running_loop().time()
        if self.totals_generation:
            self._totals_interval = max(started_at - self._totals_taken_at, 0.001)
        self._totals_taken_at = started_at
        busy_s = await _run_slices(self._read_vhosts())
        self._totals_at_ms = now_ms
        self._overviews.clear()
        self.totals_generation += 1
        return busy_s

    async def take(self, watched: Iterable[QueueName], now_ms: int) -> None:
        """Read the queues that any reader watches, in slices; the node is read when it is rendered."""
        started_at = asyncio.get_running_loop().time()
        if self.generation:
            self._interval = max(started_at - self._taken_at, 0.001)
        self._taken_at = started_at
        await _run_slices(self._read_watched(list(watched)))
        self._at_ms = now_ms
        self._node = None
        self.generation += 1

    def _read_vhosts(self) -> Iterator[None]:
        vhosts = self._console.broker.vhosts
        for name in list(vhosts):
            vhost = vhosts.get(name)
            if vhost is not None:
                yield from self._read_vhost(vhost)
        for name in [name for name in self._vhosts if name not in vhosts]:
            del self._vhosts[name]

    def _read_watched(self, watched: list[QueueName]) -> Iterator[None]:
        fragments, counters = {}, {}
        for number, key in enumerate(watched, 1):
            queue = self._find_queue(key)
            if queue is not None:
                counters[key] = _read_queue(queue)
                before = self._watched.get(key)
                rates = None
                if before is not None:
                    rates = _compute_rates(before, counters[key], self._interval)
                fragments[key] = _render_queue(queue, rates)
            if number % PORTION_COUNT == 0:
                yield
        self._watched, self._fragments = counters, fragments

    def _read_vhost(self, vhost: Vhost[Queue]) -> Iterator[None]:
        known = self._vhosts.get(vhost.name)
        if known is None:
            known = self._vhosts[vhost.name] = VhostFigures()
        ready = unacked = delivered = acknowledged = redelivered = queue_count = 0
        # Taken together, so that an object that is deleted between two slices is counted once.
        queues, exchanges = list(vhost.queues.values()), list(vhost.exchanges.values())
        deleted = list(known.deleted)
        for number, queue in enumerate(queues, 1):
            if not queue.is_reply_address:
                queue_count += 1
                ready += queue.ready
                unacked += count_unacked(queue)
                delivered += (
                    queue.delivered_count
                    + queue.delivered_no_ack_count
                    + queue.get_count
                    + queue.get_no_ack_count
                )
                acknowledged += queue.acknowledged_count
                redelivered += queue.redelivered_count
            if number % PORTION_COUNT == 0:
                yield
        published = 0
        for number, exchange in enumerate(exchanges, 1):
            published += exchange.published_in
            if number % PORTION_COUNT == 0:
                yield
        counters = [published, delivered, acknowledged, redelivered]
        counters = [living + gone for living, gone in zip(counters, deleted, strict=True)]
        if self.totals_generation:  # the counters of a vhost that is new began at 0
            known.rates = _compute_rates(known.counters, counters, self._totals_interval)
        known.counters = counters
        known.ready, known.unacked = ready, unacked
        known.queue_count, known.exchange_count = queue_count, len(exchanges)
        known.consumer_count = vhost.consumer_count

    # ── events ──────────────────────────────────────────────────────────────────────────────────────

    def render_for(self, reader: EventReader) -> bytes:
        """Return the events with figures that a reader wants, may see, and has not got yet."""
        parts = []
        accepts = reader.filter.accepts_type
        reader.figures_seen = self.generation
        if accepts(types.OVERVIEW) and reader.totals_seen != self.totals_generation:
            reader.totals_seen = self.totals_generation
            parts.append(self._render_overview(reader.user, reader.filter.vhosts))
        if accepts(types.NODE) and is_monitor(reader.user):
            parts.append(self._render_node())
        if accepts(types.QUEUES) and reader.watched:
            parts.append(self._render_queues(reader))
        head = b"id: " + reader.event_id + b"\n"
        return b"".join(head + part for part in parts)

    def _render_overview(self, user: User, chosen: frozenset[str]) -> bytes:
        key = (0 if is_monitor(user) else id(user), chosen)
        known = self._overviews.get(key)
        if known is None:
            known = self._overviews[key] = (user, self._describe_overview(user, chosen))
        return known[1]

    def _describe_overview(self, user: User, chosen: frozenset[str]) -> bytes:
        console, everything = self._console, is_monitor(user)
        names = list(self._vhosts) if everything else login_vhosts(user, console.broker)
        visible = [
            self._vhosts[name]
            for name in names
            if name in self._vhosts and (not chosen or name in chosen)
        ]
        ready = sum(each.ready for each in visible)
        unacked = sum(each.unacked for each in visible)
        usage = console.broker.usage
        rates = None if self.totals_generation == 1 else _add_rates(each.rates for each in visible)
        data = types.OverviewFigures(
            self._totals_at_ms,
            round(self._totals_interval, 3),
            ready + unacked,
            ready,
            unacked,
            rates,
            sum(each.queue_count for each in visible),
            sum(each.exchange_count for each in visible),
            usage.count_connections(None if everything else user.name),
            usage.count_channels(None if everything else user.name),
            sum(each.consumer_count for each in visible) if everything else None,
        )
        return render(types.OVERVIEW, msgspec.json.encode(data))

    def _render_node(self) -> bytes:
        if self._node is None:
            console, committer = self._console, self._console.server.committer
            lag, self._lag_counts, self._lag_total = _describe_durations(
                console.loop_lag.histogram, self._lag_counts, self._lag_total
            )
            fsync = None
            if committer is not None:
                fsync, self._sync_counts, self._sync_total = _describe_durations(
                    committer.sync_durations, self._sync_counts, self._sync_total
                )
            data = types.NodeFigures(
                self._at_ms,
                round(self._interval, 3),
                round(console.uptime_s, 1),
                memory.resident_bytes(),
                console.server.memory_limit_bytes,
                console.disk_free_bytes,
                console.disk_free_min_bytes,
                lag,
                fsync,
            )
            self._node = render(types.NODE, msgspec.json.encode(data))
        return self._node

    def _render_queues(self, reader: EventReader) -> bytes:
        parts = [
            fragment
            for name in reader.watched
            if reader.sees_queue(name) and (fragment := self._find_fragment(name))
        ]
        at, interval = str(self._at_ms).encode(), msgspec.json.encode(round(self._interval, 3))
        data = b'{"at":%b,"interval":%b,"queues":[%b]}' % (at, interval, b",".join(parts))
        return render(types.QUEUES, data)

    def _find_fragment(self, name: QueueName) -> bytes | None:
        """Return the JSON of a queue; without rates if it is watched only since the newest figures were taken."""
        fragment = self._fragments.get(name)
        if fragment is None and name not in self._watched:
            queue = self._find_queue(name)
            return None if queue is None else _render_queue(queue, None)
        return fragment

    def _find_queue(self, name: QueueName) -> Queue | None:
        vhost = self._console.broker.vhosts.get(name[0])
        queue = None if vhost is None else vhost.queues.get(name[1])
        return None if queue is None or queue.is_reply_address else queue


def _add_rates(summands: Iterable[list[float]]) -> types.MessageRates:
    sums = [0.0] * _COUNTER_COUNT
    for rates in summands:
        for index, rate in enumerate(rates):
            sums[index] += rate
    return types.MessageRates(*(round(each, 3) for each in sums))


def _render_queue(queue: Queue, rates: list[float] | None) -> bytes:
    unacked = count_unacked(queue)
    return msgspec.json.encode(
        types.WatchedQueueFigures(
            queue.vhost.name,
            queue.name,
            queue.ready + unacked,
            queue.ready,
            unacked,
            len(queue.consumers),
            types.MessageRates(*rates) if rates is not None else None,
        )
    )


def _describe_durations(
    histogram: Histogram, counts_before: list[int], total_before: float
) -> tuple[types.Durations, list[int], float]:
    """Return the durations since the last call, and the state for the next one."""
    counts, total = list(histogram.counts), histogram.total
    changes = [new - old for new, old in zip(counts, counts_before or counts, strict=True)]
    count = sum(changes)
    longest: float | None = 0.0
    if count:
        index = max(index for index, change in enumerate(changes) if change)
        longest = histogram.limits[index] if index < len(histogram.limits) else None
    mean = (total - total_before) / count if count else 0.0
    return types.Durations(count, round(mean, 6), longest), counts, total


async def _run_slices(steps: Iterator[None]) -> float:
    """Run bounded steps; other callbacks of the loop run between two slices. Return the time that they took."""
    busy_s = 0.0
    started_at = perf_counter()
    for _ in steps:
        now = perf_counter()
        if now - started_at > SLICE_S:
            busy_s += now - started_at
            await asyncio.sleep(0)
            started_at = perf_counter()
    return busy_s + perf_counter() - started_at
