"""The queues that share out work: each message is for one consumer, until somebody has acknowledged it.

Q1  A message is in exactly one place: ready, out with a consumer, or settled.
Q2  Messages leave in order of place; one that returns goes back to its own place.
Q3  A consumer never holds more than its prefetch.
Q4  No message is ready while a consumer has room, or not for long: much is given out in several turns.
Q5  Whether messages come one by one or in runs, each consumer gets the same.

For Q5 consumers are dealt a run like cards. Two things make the order among several receivers visible to one of
them, and are then done message by message: consumers that share a channel, because they share its delivery
tags (`crowded`), and queues that pass on what they drop to another queue (`has_dead_letter_exchange`).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from recado.amqp.traits import MessageTraits

from .arguments import QueueSettings
from .consumer import DISPATCH_BYTES, UNLIMITED_COUNT
from .limited_queue import DROPPED_RUNS_MIN, LimitedQueue
from .queue import ExclusiveOwner, QueueContext
from .run import Run, merge_adjacent
from .steps import STEP_UNITS_MAX, Steps

DISPATCHED_RUNS_MAX = 512  # runs that are given out in one turn, where they may come from the shelf one by one: some 15 ms
_RUNS_PER_STEP = (
    STEP_UNITS_MAX  # of a queue that is purged; what the journal makes of it is most of the cost
)
MEMORY_PRESSURE_MESSAGES_MAX = 1000
"""Messages that a consumer of a long queue may hold while memory is scarce: what is out is in memory."""


class WorkQueue(LimitedQueue):
    __slots__ = ("_is_simple", "_stores_all", "has_dead_letter_exchange")

    def __init__(
        self,
        context: QueueContext,
        name: str,
        settings: QueueSettings,
        owner: ExclusiveOwner | None,
        now: int,
    ) -> None:
        super().__init__(context, name, settings, owner, now)
        # Quorum queues know nothing that is not persistent.
        self._stores_all = self._stores_persistent and settings.queue_type == "quorum"

    def _apply_settings(self, settings: QueueSettings) -> None:
        super()._apply_settings(settings)
        self.has_dead_letter_exchange = settings.dead_letter_exchange is not None
        is_permanent = settings.message_ttl is None and not settings.is_at_least_once
        self._is_simple = (
            is_permanent and not self._has_limits and self.deduplication_window is None
        )

    def can_coalesce(self, traits: MessageTraits) -> bool:
        return self._is_simple and traits.ttl_ms is None and not self.wire_taps

    def should_store(self, traits: MessageTraits) -> bool:
        return self._stores_all or super().should_store(traits)

    # ── entering ──────────────────────────────────────────────────────────────────────────────────────

    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Take in messages; gives the indexes of those that were refused."""
        if (
            self._is_simple
            and not (self.ready or self.delivery_pauses or self.wire_taps)
            and run.traits.ttl_ms is None
        ):
            # What follows would come to the same, at three times the cost for a run of one.
            group, count = self._ring.front_group, len(run.payloads)
            if group is not None and (count == 1 or len(group) == 1) and group[0].credit() >= count:
                run.first_position = self._next_position
                self._next_position += count
                if self._stores_persistent and self.should_store(run.traits):
                    self._store.append_run(self, run)
                group[0].deliver(run)
                if len(group) > 1:
                    group.rotate(-1)
                return ()
        if self.deduplication_window is not None and not run.is_dead_letter:
            return self.deduplication_window.publish_new(run, now, self._accept)
        return self._accept(run, now)

    def _accept(self, run: Run, now: int) -> Sequence[int]:
        if self._must_split(run):
            return self._publish_individually(run, now)
        self._enqueue(run, now)
        self._drop_excess(now)
        return ()

    def _must_split(self, run: Run) -> bool:
        """Whether the order of things within a run would show (Q5)."""
        expires_at_once = run.traits.ttl_ms == 0 or self.settings.message_ttl == 0
        return (
            self._rejects_publishes
            or (self._has_limits and (self.has_dead_letter_exchange or expires_at_once))
            or (self.has_dead_letter_exchange and expires_at_once)
            or (self.shared_channel_consumers > 0 and bool(self.wire_taps))
        )

    @property
    def is_per_message(self) -> bool:
        """Whether messages may have to be taken in one by one."""
        return (
            self._rejects_publishes
            or self.has_dead_letter_exchange
            or self.shared_channel_consumers > 0
            or self.deduplication_window is not None
        )

    def _publish_individually(self, run: Run, now: int) -> Sequence[int]:
        rejected = []
        for i in range(len(run)):
            message = run.slice(i, i + 1)
            if self.would_reject(message):
                rejected.append(i)
                if self.settings.overflow == "reject-publish-dlx":
                    self._dead_letter(self, message, "maxlen", now)
            else:
                self._enqueue(message, now)
                self._drop_excess(now)
        return rejected

    def _enqueue(self, run: Run, now: int) -> None:
        count = len(run.payloads)
        run.first_position = self._next_position
        self._next_position += count
        ttl = self.settings.message_ttl
        if run.traits.ttl_ms is not None:
            ttl = run.traits.ttl_ms if ttl is None else min(ttl, run.traits.ttl_ms)
        if ttl is not None:
            run.expires_at = now + ttl
            self._has_ttl = True
        for tap in self.wire_taps:
            tap.deliver_copy(run)
        self._count_ready(run)
        self._append(run)
        self.dispatch(now)
        if ttl is not None:
            if ttl == 0:
                self._renew_drop_budget(now, DROPPED_RUNS_MIN)
                self.on_timer(now)
            self._set_ttl_timer()

    def _append(self, run: Run) -> None:
        """Behind all others of its lane: in memory, or on the shelf if there is no room or others are there."""
        number = self._bucket_index(run)
        bucket = self._buckets[number]
        should_store = self.should_store(run.traits)
        if bucket.paged_out_count or bucket.memory_bytes >= self._store.page_out_bytes:
            self._store.page_out(self, run, number, durable=should_store)
            bucket.paged_out_count += len(run)
            return
        if should_store:
            self._store.append_run(self, run)
        bucket.append(run)

    def requeue(self, runs: list[Run], now: int) -> None:
        """Return messages that were out for delivery to their places."""
        if self.deleted:
            return
        if self.settings.queue_type == "quorum":
            runs = self._count_deliveries(runs, now)
        for run in runs:
            run.redelivered = True
        for run in merge_adjacent(runs):  # or what came back one by one would also go out so
            self._count_ready(run)
            self._buckets[self._bucket_index(run)].requeue(run)
        self._drop_excess(now)
        self.dispatch(now)
        self._set_ttl_timer()

    def _count_deliveries(self, runs: list[Run], now: int) -> list[Run]:
        """Gives those that may return once more."""
        for run in runs:
            run.delivery_count += 1
        for run in filter(self._exceeds_delivery_limit, runs):
            self._dead_letter(self, run, "delivery_limit", now)
        return [run for run in runs if not self._exceeds_delivery_limit(run)]

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────

    def get(self, now: int) -> Run | None:
        """One message for a client that asks for it."""
        self.touch(now)
        if not self._drop_expired_front(now):
            return None
        run = self._take_front(1)
        self._set_ttl_timer()
        return run

    def dispatch(self, now: int) -> None:
        """Give out what is ready to those who have room (Q4)."""
        runs_left = DISPATCHED_RUNS_MAX if self._store.has_disk else UNLIMITED_COUNT
        while (
            self.ready
            and (group := self._ring.front_group) is not None
            and not self.delivery_pauses
        ):
            if not runs_left:
                self._set_timer(now + 1)  # not in the same turn
                break
            runs_left -= 1
            if not self._drop_expired_front(now):
                break
            consumer_count = 1 if self.shared_channel_consumers else min(len(group), self.ready)
            receivers, credit_min = [], UNLIMITED_COUNT
            for consumer in list(islice(group, consumer_count)):
                credit = consumer.credit()
                if (
                    self._store.memory_pressure
                    and not consumer.no_ack
                    and self._front_bucket().paged_out_count
                ):
                    credit = min(credit, MEMORY_PRESSURE_MESSAGES_MAX - consumer.in_flight)
                if credit > 0:
                    receivers.append(consumer)
                    credit_min = min(credit_min, credit)
                else:
                    self._ring.sleep(consumer)
            if not receivers:
                continue
            if len(receivers) < len(group):
                credit_min = 1
            run = self._take_front(min(credit_min, self._write_batch_size()) * len(receivers))
            count = len(run)
            if len(receivers) == 1 or count == 1:
                receivers[0].deliver(run)
            else:
                for consumer, part in zip(
                    receivers, run.split_round_robin(min(len(receivers), count)), strict=False
                ):
                    consumer.deliver(part)
            if len(group) > 1:
                group.rotate(-(count % len(group)))
        if self.ready:
            self._set_ttl_timer()

    def _write_batch_size(self) -> int:
        """How many messages like the first make up a good write."""
        head = self._front_bucket().front
        size = len(head.payloads[head.taken_count]) if head is not None else 0
        return DISPATCH_BYTES // (size + 64) + 1

    def purge(self) -> int:
        """Empty all lanes. What has to be settled message by message is settled in steps."""
        count, self.ready, self._ready_bytes = self.ready, 0, 0
        is_paged_out = any(bucket.paged_out_count for bucket in self._buckets)
        unsettled: list[deque[Run] | list[tuple[int, Run]]] = []
        for bucket in self._buckets:
            first, position_count = bucket.fresh_positions
            fresh, returned = bucket.clear()
            if self.deleted or not self._stores_persistent:
                self._free_later(fresh)
                self._free_later(returned)
            elif len(self._buckets) > 1:  # others have messages in between
                unsettled += (fresh, returned)
            else:
                if position_count:
                    self._store.settle(self, first, position_count, 1)
                self._free_later(fresh)
                unsettled.append(returned)
            if self.deleted:
                bucket.detach()
        if count and not self.deleted:
            paged_out = self._store.drop_paged_out(self) if is_paged_out else None
            self.vhost.background.start(self._settle_purged(unsettled, paged_out))
        return count

    def _settle_purged(
        self, unsettled: Iterable[deque[Run] | list[tuple[int, Run]]], paged_out: Steps[None] | None
    ) -> Steps[None]:
        runs_left = _RUNS_PER_STEP
        for runs in unsettled:
            while runs:
                last = runs.pop()
                self.settle(last[1] if isinstance(last, tuple) else last)
                runs_left -= 1
                if not runs_left:
                    yield STEP_UNITS_MAX
                    runs_left = _RUNS_PER_STEP
        if paged_out is not None:
            yield from paged_out
        if self._stores_persistent and not self.deleted:
            self._store.queue_purged(self)

    def reject(self, runs: list[Run], now: int) -> None:
        """Messages that a consumer refused for good."""
        if not self.deleted:
            for run in runs:
                self._dead_letter(self, run, "rejected", now)

    # ── after a restart ───────────────────────────────────────────────────────────────────────────────

    def restore(
        self, next_position: int, paged_out: Mapping[int, int], now: int, *, has_ttl: bool
    ) -> None:
        """What the keeper still has after a restart: so many messages in each lane, on the shelf.

        Some of them may expire if they are `mortal`.
        """
        self._next_position = next_position
        self._has_ttl = has_ttl
        for number, count in paged_out.items():
            while len(self._buckets) <= number:
                self._add_bucket()
            self._buckets[number].paged_out_count = count
            self.ready += count

    def finish_restore(self, now: int) -> None:
        """All queues are restored, so whatever is too much or too old may go to others."""
        if self.settings.max_length_bytes is not None:
            self._measure_ready_bytes()
        self._drop_excess(now)
        self._set_ttl_timer()
