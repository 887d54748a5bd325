"""The hidden queue in which a delayed exchange holds messages until they are due.

DQ1  A message never leaves before it is due; messages due at the same time leave in the order of their
     arrival.
DQ2  A message is routed when it leaves, by the bindings at that time, and enters its queues before it is
     settled (MS2).

It is a queue so that its messages are stored like others: with positions, and with the due time in place of
the expiry time. It is invisible to clients: it is not among the queues of its vhost and has no consumers.
All its messages are in memory.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from recado.amqp.frames import extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT

from .arguments import QueueSettings
from .dead_letter import read_routing_keys, rewrite_properties
from .delay import mark_delayed, read_delay_ms
from .exchange import Exchange
from .message_observer import DELAYED
from .queue import Queue, QueueContext
from .queue_timers import QueueTimers
from .route_search import find_queues
from .routing import publish_in_steps
from .run import Run
from .steps import TURN_UNITS_MAX, Steps, StepTask

# Followed by the exchange's name; reserved, so clients cannot use it.
DELAYED_QUEUE_PREFIX = "amq.delayed."
_RELEASED_MESSAGES_MAX = 128  # released together
_RELEASE_UNITS_MAX = TURN_UNITS_MAX
_UNITS_PER_MESSAGE = 15  # in addition to the search for its queues
_HEADER_GROWTH_BYTES = 64  # more than a header can grow by the changed number


class DelayedQueue(Queue):
    def __init__(self, exchange: Exchange[Queue], context: QueueContext) -> None:
        settings = QueueSettings(durable=exchange.settings.durable)
        super().__init__(context, DELAYED_QUEUE_PREFIX + exchange.name, settings, None, 0)
        self._exchange = exchange
        self._heap: list[tuple[int, int, Run]] = []  # (due time, position, run)
        self._now = 0
        self._releasing: StepTask[None] | None = None  # the task that routes due messages
        # The last run that was added and is still here; the next one may extend it.
        self._last_run: Run | None = None

    def _apply_settings(self, settings: QueueSettings) -> None:
        """Ignore policies, which apply only to queues that clients can see."""
        super()._apply_settings(self.declared_settings)

    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Hold messages with equal headers until they are due."""
        properties = extract_properties(run.prefix + run.payloads[0])
        headers = decode_properties(properties, max_entries=STORED_MAX_ENTRY_COUNT).headers or {}
        run.drop_taken()  # which copies the list, so that the following runs can extend it
        run.first_position = self._next_position
        self._next_position += len(run)
        for observer in self.observers:
            observer.entered(self, run)
        run.expires_at = now + read_delay_ms(headers)
        if self.should_store(run.traits):
            self._store.append_run(self, run)
        self._add(run)
        self._set_timer(self._heap[0][0])
        return ()

    def restore(
        self, next_position: int, paged_out: Mapping[int, int], now: int, *, has_ttl: bool
    ) -> None:
        """Load all messages that the store has after a restart."""
        self._next_position = next_position
        count = sum(paged_out.values())
        while self.ready < count:
            for run in self._store.page_in(self, 0):
                self._add(run)

    def finish_restore(self, now: int) -> None:
        if self._heap:
            self._set_timer(self._heap[0][0])

    def _add(self, run: Run) -> None:
        self.ready += len(run)
        if self._last_run is not None and run.can_follow(self._last_run):
            self._last_run.extend(run)
        else:
            heappush(self._heap, (run.expires_at or 0, run.first_position, run))
            self._last_run = run

    def on_timer(self, now: int) -> int:
        """Route due messages within a budget, and set the timer for the rest."""
        self._timer_due, self._now = None, now
        heap, units_left = self._heap, _RELEASE_UNITS_MAX
        while units_left > 0:
            if self._releasing is None:
                if not heap or heap[0][0] > now:
                    break
                self._releasing = StepTask(self._release(self._take_due()))
            units_left -= max(self._releasing.advance(units_left), 1)
            if self._releasing.is_done:
                self._releasing = None
        if self._releasing is not None:
            self._set_timer(now + 1)
        elif heap:
            self._set_timer(max(heap[0][0], now + 1))
        return _RELEASE_UNITS_MAX - units_left

    def _take_due(self) -> Run:
        due, _, run = heappop(self._heap)
        part = run.take(_RELEASED_MESSAGES_MAX)
        if part is not run:
            heappush(self._heap, (due, run.first_position, run))
        elif run is self._last_run:
            self._last_run = None
        self.ready -= len(part)
        return part

    def _release(self, run: Run) -> Steps[None]:
        """Publish messages to the queues that they are routed to, and settle them after that (DQ2)."""
        targets: dict[Queue, None] = {}
        for properties, messages in _mark_all_delayed(run):
            headers = properties.headers or {}
            messages.is_forwarded = "x-death" in headers  # the flag itself is lost in a restart
            keys = read_routing_keys(headers, "CC")
            yield _UNITS_PER_MESSAGE * len(messages)
            queues = yield from find_queues(
                self.vhost, self._exchange, run.origin.routing_key, headers, keys
            )
            for observer in self.observers:
                observer.forwarded(self, messages, DELAYED, self._exchange.name)
            yield from publish_in_steps(messages, queues, self._now)
            targets.update(dict.fromkeys(queues))
        self.settle_forwarded(run, targets)

    def purge(self) -> int:
        """Drop all messages, because the exchange was deleted."""
        count, self.ready = self.ready, 0
        self._free_later(self._heap)
        self._heap = []
        self._last_run = self._releasing = None
        return count


def _mark_all_delayed(run: Run) -> list[tuple[Properties, Run]]:
    """Return the messages as they are delivered.

    None may be lost because its header grows beyond a frame.
    """
    changed = list(rewrite_properties(run, _mark_properties, run.origin, run.traits))
    if sum(len(messages) for _, messages in changed) < len(run):
        run = msgspec.structs.replace(run, frame_max=run.frame_max + _HEADER_GROWTH_BYTES)
        changed = list(rewrite_properties(run, _mark_properties, run.origin, run.traits))
    return changed


def _mark_properties(properties: Properties) -> Properties:
    return msgspec.structs.replace(properties, headers=mark_delayed(properties.headers or {}))


class DelayedQueues:
    """Creates and deletes the delayed queues of one vhost (`DelayedQueueFactory`)."""

    def __init__(self, context: QueueContext, timers: QueueTimers) -> None:
        self._context = context
        self._timers = timers

    def create(self, exchange: Exchange[Queue]) -> DelayedQueue:
        queue = DelayedQueue(exchange, self._context)
        if queue.survives_restart:
            self._context.store.queue_declared(queue)
        return queue

    def delete(self, queue: Queue) -> None:
        """Delete the queue with all its messages."""
        assert isinstance(queue, DelayedQueue)
        queue.mark_deleted()
        queue.purge()
        self._context.store.queue_deleted(queue)
        self._timers.cancel(queue)
