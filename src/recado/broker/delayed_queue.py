"""Where a delayed exchange holds messages until they are due.

HO1  A message leaves no sooner than it is due; those due at the same time leave in the order they came in.
HO2  It is routed when it leaves, by the bindings of then, and enters its queues before it is settled (K2).

It is a queue, so that what is held is kept like everything else: with places, and with the time when it is due
as the time when it expires. But it is nobody's to see: not among the queues of its vhost, and without
consumers. All that it holds is in memory.
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
from .queue import Queue, QueueContext
from .queue_timers import QueueTimers
from .route_search import find_queues
from .routing import publish_in_steps
from .run import Run
from .steps import TURN_UNITS_MAX, Steps, StepTask

DELAYED_QUEUE_PREFIX = "amq.delayed."  # before the name of the exchange; a client may not use it
_RELEASED_MESSAGES_MAX = 128  # messages that leave together
_RELEASE_UNITS_MAX = TURN_UNITS_MAX
_UNITS_PER_MESSAGE = 15  # of a message, beside the search for its queues
_HEADER_GROWTH_BYTES = 64  # more than a header grows by another number in it


class DelayedQueue(Queue):
    def __init__(self, exchange: Exchange[Queue], context: QueueContext) -> None:
        settings = QueueSettings(durable=exchange.settings.durable)
        super().__init__(context, DELAYED_QUEUE_PREFIX + exchange.name, settings, None, 0)
        self._exchange = exchange
        self._heap: list[tuple[int, int, Run]] = []  # when it is due, its place
        self._now = 0
        self._releasing: StepTask[None] | None = None  # what was due and is not routed yet
        self._last_run: Run | None = None  # what came last and is still here; the next may join it

    def _apply_settings(self, settings: QueueSettings) -> None:
        """Policies are for queues that people know of."""
        super()._apply_settings(self.declared_settings)

    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Hold messages; they have the same headers."""
        properties = extract_properties(run.prefix + run.payloads[0])
        headers = decode_properties(properties, max_entries=STORED_MAX_ENTRY_COUNT).headers or {}
        run.payloads = list(run.payloads)
        run.owns_payloads = True
        run.first_position = self._next_position
        self._next_position += len(run)
        run.expires_at = now + read_delay_ms(headers)
        if self.should_store(run.traits):
            self._store.append_run(self, run)
        self._add(run)
        self._set_timer(self._heap[0][0])
        return ()

    def restore(
        self, next_position: int, paged_out: Mapping[int, int], now: int, *, has_ttl: bool
    ) -> None:
        """What was held before a restart, all of it."""
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
        if self._last_run is not None and run.can_extend(self._last_run):
            self._last_run.payloads += run.payloads
        else:
            heappush(self._heap, (run.expires_at or 0, run.first_position, run))
            self._last_run = run

    def on_timer(self, now: int) -> int:
        """Route what is due; some of it, if there is much, and the rest after others had their turn."""
        self._timer_due, self._now = None, now
        heap, left = self._heap, _RELEASE_UNITS_MAX
        while left > 0:
            if self._releasing is None:
                if not heap or heap[0][0] > now:
                    break
                self._releasing = StepTask(self._release(self._take_due()))
            left -= max(self._releasing.advance(left), 1)
            if self._releasing.is_done:
                self._releasing = None
        if self._releasing is not None:
            self._set_timer(now + 1)
        elif heap:
            self._set_timer(max(heap[0][0], now + 1))
        return _RELEASE_UNITS_MAX - left

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
        """Messages leave for the queues that they are routed to, and are settled then (HO2)."""
        targets: dict[Queue, None] = {}
        for properties, messages in _mark_all_delayed(run):
            headers = properties.headers or {}
            messages.is_dead_letter = (
                "x-death" in headers
            )  # it came as one, perhaps before a restart
            keys = read_routing_keys(headers, "CC")
            yield _UNITS_PER_MESSAGE * len(messages)
            queues = yield from find_queues(
                self.vhost, self._exchange, run.origin.routing_key, headers, keys
            )
            yield from publish_in_steps(messages, queues, self._now)
            targets.update(dict.fromkeys(queues))
        self.settle_forwarded(run, targets)

    def purge(self) -> int:
        """Let go of all, as the exchange is gone."""
        count, self.ready = self.ready, 0
        self._free_later(self._heap)
        self._heap = []
        self._last_run = self._releasing = None
        return count


def _mark_all_delayed(run: Run) -> list[tuple[Properties, Run]]:
    """The messages as they leave. None may be left out because its header just does not fit any more."""
    changed = list(rewrite_properties(run, _mark_properties, run.origin, run.traits))
    if sum(len(messages) for _, messages in changed) < len(run):
        run = msgspec.structs.replace(run, frame_max=run.frame_max + _HEADER_GROWTH_BYTES)
        changed = list(rewrite_properties(run, _mark_properties, run.origin, run.traits))
    return changed


def _mark_properties(properties: Properties) -> Properties:
    return msgspec.structs.replace(properties, headers=mark_delayed(properties.headers or {}))


class DelayedQueues:
    """Makes and discards those of one vhost: its `Holder`."""

    def __init__(self, context: QueueContext, timers: QueueTimers) -> None:
        self._context = context
        self._timers = timers

    def create(self, exchange: Exchange[Queue]) -> DelayedQueue:
        queue = DelayedQueue(exchange, self._context)
        if queue.survives_restart:
            self._context.store.queue_declared(queue)
        return queue

    def delete(self, queue: Queue) -> None:
        """With all that is held."""
        assert isinstance(queue, DelayedQueue)
        queue.deleted = True
        queue.purge()
        self._context.store.queue_deleted(queue)
        self._timers.cancel(queue)
