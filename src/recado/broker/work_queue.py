"""Classic and quorum queues: each message is delivered to one consumer, until it is settled.

WQ1  A message is in exactly one state: ready, delivered, or settled.
WQ2  Messages leave in order of position; a requeued message returns to its position.
WQ3  A consumer never holds more than its prefetch.
WQ4  No message is ready while a consumer has credit, except for a few turns if many messages are
     dispatched.
WQ5  Each consumer gets the same messages whether they are published one by one or in runs.
WQ6  No expired message is delivered.
WQ7  Paged-out messages are dropped in portions of 1 MiB, one per turn, and none while dead letters of the last
     portion are pending: a mass expiry needs little memory and does not block other clients. From memory
     4,096 runs are dropped per turn. While messages wait to be dropped, the queue may exceed its limits,
     and basic.get may find it empty.

For WQ5 a run is split among consumers in round-robin order. Where a client could observe in which order the
messages of a run are handled, they are handled one by one (`is_per_message`): if consumers share a channel
and so its delivery tags (`shared_channel_consumers`), if the queue dead-letters to other queues
(`has_dead_letter_exchange`), rejects publishes beyond its limits, or deduplicates.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Protocol

from recado.amqp.frames import read_body_size
from recado.amqp.traits import MessageTraits

from .arguments import QueueSettings
from .consumer import DELIVERY_OVERHEAD_BYTES, DISPATCH_BYTES, UNLIMITED_COUNT
from .priority_bucket import PriorityBucket, ReadLimits
from .queue import ExclusiveOwner, Queue, QueueContext
from .run import Run, first_position, merge_adjacent
from .steps import STEP_UNITS_MAX, Steps, StepTask

DISPATCHED_RUNS_MAX = 512  # per call of `dispatch`, if they may be paged in one by one: about 15 ms
MEMORY_PRESSURE_MESSAGES_MAX = 1000
"""Unsettled messages per consumer of a long queue under memory pressure, because they are in memory."""
DROPPED_BYTES_MAX = 1 << 20
"""Bytes dropped per turn from a bucket that is partly paged out: about 10 ms."""
DROPPED_RUNS_MAX = 4096
"""Runs dropped per turn from a bucket in memory: 0.7 µs each, twice that with a journal."""
DROPPED_RUNS_MIN = 2  # per published message, so that a queue at its limit stays there
_CHANGES_PER_UNIT = 2  # messages dropped or delivered
_FOUND_RUNS_PER_UNIT = 64  # to find runs by their positions
_LATE_RUNS_PER_STEP = 64
_UNITS_PER_LATE_RUN = 3  # to store a run late
_BYTES_PER_UNIT = 8192  # to encode a run and write it to the journal
# Paging out a run of messages costs as much as passing so many runs that stay in memory.
_RUNS_PER_PAGED_OUT = 4
_RUNS_PER_STEP = STEP_UNITS_MAX  # of a purge, mostly the cost of the journal


class ByteSurvey(Protocol):
    """Measures the ready messages of a queue in steps, between which the queue is used."""

    def measured_bytes(self, run: Run, priority: int) -> int:
        """Return the size of those messages of a run that are measured: found by the survey, or newer than it."""


class DropBudget:
    """How much a queue may still drop in the current turn (WQ7)."""

    __slots__ = ("_bytes_left", "_now", "_runs_left")

    def __init__(self) -> None:
        self._now = -1
        self._bytes_left = 0
        self._runs_left = 0

    def renew(self, now: int, runs_min: int = 0) -> None:
        """Reset the budget in a new turn; at least `runs_min` runs in memory may always be dropped."""
        if self._now != now:
            self._now = now
            self._bytes_left, self._runs_left = DROPPED_BYTES_MAX, DROPPED_RUNS_MAX
        elif self._runs_left < runs_min:
            self._runs_left = runs_min

    def allows(self, *, from_disk: bool) -> bool:
        """Whether another run may be dropped, from memory or from a bucket that is partly paged out."""
        return (self._bytes_left if from_disk else self._runs_left) > 0

    def charge(self, run: Run, *, from_disk: bool) -> None:
        self._runs_left -= 1
        if from_disk:
            self._bytes_left -= run.memory_bytes()


class WorkQueue(Queue):
    """A classic or quorum queue."""

    __slots__ = (
        "_buckets",
        "_drop_budget",
        "_drop_retry_at",
        "_has_limits",
        "_has_ttl",
        "_is_simple",
        "_measures_bytes",
        "_new_buckets",
        "_ready_bytes",
        "_rebucketing",
        "_rejects_publishes",
        "_stores_all",
        "_stores_late",
        "_survey",
        "has_dead_letter_exchange",
        "is_frozen",
    )

    def __init__(
        self,
        context: QueueContext,
        name: str,
        settings: QueueSettings,
        owner: ExclusiveOwner | None,
        now: int,
    ) -> None:
        # While the size of the ready messages is being measured.
        self._survey: ByteSurvey | None = None
        super().__init__(context, name, settings, owner, now)
        self._ready_bytes = 0  # maintained only if there is a limit in bytes, or soon will be
        self._has_ttl = False  # some messages have a time to live
        self._drop_budget = DropBudget()
        self._drop_retry_at = 0  # when to continue dropping
        self._buckets: list[PriorityBucket] = []  # by priority
        self._add_bucket()
        # While the queue gets other priorities: no message leaves, and they enter these buckets one after the other.
        self.is_frozen = False
        self._new_buckets: list[PriorityBucket] = []
        self._rebucketing: StepTask[None] | None = None
        # Quorum queues store transient messages too.
        self._stores_all = self._stores_persistent and settings.queue_type == "quorum"
        # Which messages must be stored that were not when they entered, while the queue is altered.
        self._stores_late: Callable[[MessageTraits], bool] | None = None

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────

    def _apply_settings(self, settings: QueueSettings) -> None:
        """Set the effective settings, and the flags derived from them."""
        super()._apply_settings(settings)
        self._measures_bytes = settings.max_length_bytes is not None or self._survey is not None
        self._has_limits = settings.max_length is not None or settings.max_length_bytes is not None
        self._rejects_publishes = self._has_limits and settings.overflow != "drop-head"
        self.has_dead_letter_exchange = settings.dead_letter_exchange is not None
        # Whether a message only has to be enqueued and dispatched, unless it has a time to live.
        self._is_simple = (
            settings.message_ttl_ms is None
            and not settings.is_at_least_once
            and not self._has_limits
            and self.deduplication_window is None
        )

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        """Apply changed policies. Messages in the queue keep their time to live."""
        self._complete_rebucketing()
        was_measured = self._measures_bytes
        if settings.max_length_bytes is not None and self._survey is not None:
            self._survey, was_measured = None, False  # the limit applies before the survey is done
        self._apply_settings(settings)
        if settings.max_length_bytes is not None and not was_measured:
            self._measure_ready_bytes()
        self.touch(now)
        self._drop_excess(now)

    def can_coalesce(self, traits: MessageTraits) -> bool:
        return self._is_simple and traits.ttl_ms is None and not self.wire_taps

    def should_store(self, traits: MessageTraits) -> bool:
        return self._stores_all or super().should_store(traits)

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────

    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Accept messages; return the indexes of those that were rejected."""
        if (
            self._is_simple
            and not (self.ready or self.delivery_pauses or self.wire_taps or self.observers)
            and run.traits.ttl_ms is None
        ):
            # A fast path with the same result as below, at a third of the cost for a run of one.
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
        if self.deduplication_window is not None and not run.is_forwarded:
            return self.deduplication_window.publish_new(run, now, self._accept)
        return self._accept(run, now)

    def _accept(self, run: Run, now: int) -> Sequence[int]:
        if self._must_split(run):
            return self._publish_individually(run, now)
        self._enqueue(run, now)
        self._drop_excess(now)
        return ()

    def _must_split(self, run: Run) -> bool:
        """Whether the order of effects within a run would be observable (WQ5)."""
        expires_at_once = run.traits.ttl_ms == 0 or self.settings.message_ttl_ms == 0
        return (
            self._rejects_publishes
            or (self._has_limits and (self.has_dead_letter_exchange or expires_at_once))
            or (self.has_dead_letter_exchange and expires_at_once)
            or (self.shared_channel_consumers > 0 and bool(self.wire_taps))
        )

    @property
    def is_per_message(self) -> bool:
        """Whether the messages of a run may have to be handled one by one."""
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
                self._notify_refused(message)
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
        ttl = self.settings.message_ttl_ms
        if run.traits.ttl_ms is not None:
            ttl = run.traits.ttl_ms if ttl is None else min(ttl, run.traits.ttl_ms)
        if ttl is not None:
            run.expires_at = now + ttl
            self._has_ttl = True
        for tap in self.wire_taps:
            tap.deliver_copy(run)
        for observer in self.observers:
            observer.entered(self, run)
        self._count_ready(run)
        self._append(run)
        self.dispatch(now)
        if ttl is not None:
            if ttl == 0:
                self._drop_budget.renew(now, DROPPED_RUNS_MIN)
                self.on_timer(now)
            self._set_ttl_timer()

    def _append(self, run: Run) -> None:
        """Append messages to their bucket, in memory or paged out.

        They are paged out if memory is full or older messages are paged out.
        """
        priority = self._bucket_index(run)
        bucket = self._buckets[priority]
        should_store = self.should_store(run.traits)
        if bucket.paged_out_count or bucket.memory_bytes >= self._store.page_out_bytes:
            self._store.page_out(self, run, priority, durable=should_store)
            bucket.count_paged_out(run)
            return
        if should_store:
            self._store.append_run(self, run)
        bucket.append(run)

    def requeue(self, runs: list[Run], now: int) -> None:
        """Return delivered messages to their positions."""
        if self.deleted:
            return
        if self.settings.queue_type == "quorum":
            runs = self._count_deliveries(runs, now)
        for run in runs:
            run.redelivered = True
        # Otherwise messages that were requeued singly would also be delivered singly.
        for run in merge_adjacent(runs):
            self.store_late(run)
            self._count_ready(run)
            self._buckets[self._bucket_index(run)].requeue(run)
        self._drop_excess(now)
        self.dispatch(now)
        self._set_ttl_timer()

    def _count_deliveries(self, runs: list[Run], now: int) -> list[Run]:
        """Count a redelivery; dead-letter the messages beyond the limit and return the others."""
        for run in runs:
            run.delivery_count += 1
        for run in filter(self._exceeds_delivery_limit, runs):
            self._dead_letter(self, run, "delivery_limit", now)
        return [run for run in runs if not self._exceeds_delivery_limit(run)]

    # ── delivering ────────────────────────────────────────────────────────────────────────────────────

    def get(self, now: int) -> Run | None:
        """Remove and return one message for basic.get, or None."""
        self.touch(now)
        if not self._drop_expired_front(now):
            return None
        run = self._take_front(1)
        self._set_ttl_timer()
        return run

    def dispatch(self, now: int) -> None:
        """Deliver ready messages to the consumers that have credit (WQ4)."""
        runs_left = DISPATCHED_RUNS_MAX if self._store.has_disk else UNLIMITED_COUNT
        while (
            self.ready
            and (group := self._ring.front_group) is not None
            and not self.delivery_pauses
        ):
            if not runs_left:
                self._set_timer(now + 1)  # in the next turn
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
            # Not the whole group receives: one message each, so that the rotation goes on from there.
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
        """Return how many messages like the first one fill a write."""
        front = self._front_bucket().front
        size = len(front.payloads[front.taken_count]) if front is not None else 0
        return DISPATCH_BYTES // (size + DELIVERY_OVERHEAD_BYTES) + 1

    # ── dropping ──────────────────────────────────────────────────────────────────────────────────────

    def would_reject(self, message: Run) -> bool:
        """Whether a publish exceeds the limits; waiting dead letters of this queue count too."""
        length_max, bytes_max = self.settings.max_length, self.settings.max_length_bytes
        bytes_now = self._ready_bytes + self.held_dead_letter_bytes
        return self._rejects_publishes and (
            (length_max is not None and self.ready + self.held_dead_letters + 1 > length_max)
            or (bytes_max is not None and bytes_now + message.body_sizes()[0] > bytes_max)
        )

    def count_fitting(self, body_sizes: Sequence[int]) -> int:
        count = len(body_sizes)
        length_max, bytes_max = self.settings.max_length, self.settings.max_length_bytes
        if length_max is not None:
            count = max(min(count, length_max - self.ready - self.held_dead_letters), 0)
        if bytes_max is not None:
            bytes_now = self._ready_bytes + self.held_dead_letter_bytes
            totals = list(accumulate(body_sizes[:count], initial=bytes_now))
            count = max(bisect_right(totals, bytes_max) - 1, 0)
        return count

    def _drop_excess(self, now: int) -> None:
        """Drop excess messages from the front.

        In a priority queue these are the most urgent, as in RabbitMQ.
        """
        if self._rejects_publishes or not self._has_limits or self.is_frozen:
            return
        length_max, bytes_max = self.settings.max_length, self.settings.max_length_bytes
        self._drop_budget.renew(now, DROPPED_RUNS_MIN)
        may_drop = True
        while may_drop and length_max is not None and self.ready > length_max:
            may_drop = self._drop(self._front_bucket(), self.ready - length_max, "maxlen", now)
        while may_drop and bytes_max is not None and self._ready_bytes > bytes_max:
            bucket = self._front_bucket()
            front = bucket.front
            size = read_body_size(front.prefix) if front is not None and front.prefix else 0
            count = -(-(self._ready_bytes - bytes_max) // size) if size else 1
            may_drop = self._drop(bucket, count, "maxlen", now)
        self._set_ttl_timer()

    def on_timer(self, now: int) -> int:
        """Drop expired messages at the front of each bucket, and continue postponed work."""
        self._timer_due = None
        if self.is_frozen:
            self._set_timer(now + 1)
            return 1
        before = self.ready
        for bucket in reversed(self._buckets):
            while (
                not self.stalled
                and (front := bucket.front) is not None
                and front.expires_at is not None
                and front.expires_at <= now
                and self._drop(bucket, len(front), "expired", now)
            ):
                pass
        self.dispatch(now)
        self._drop_excess(now)
        self._set_ttl_timer()
        self._set_expiry_timer()
        return 1 + abs(before - self.ready) // _CHANGES_PER_UNIT

    def _set_ttl_timer(self) -> None:
        # If no message can expire, do not use `front`, which pages in messages.
        if self.stalled or not self._has_ttl or self.is_frozen:
            return
        for bucket in self._buckets:
            front = bucket.front
            if front is not None and front.expires_at is not None:
                self._set_timer(max(front.expires_at, self._drop_retry_at))

    def _drop_expired_front(self, now: int) -> bool:
        """Drop expired messages at the front; return whether one is ready.

        Messages beyond the delivery limit are dropped too. A new message with a TTL of 0 may still go to a
        waiting consumer, a requeued one may not.
        """
        while self.ready and not (self.stalled or self.is_frozen):
            bucket = self._front_bucket()
            front = bucket.front
            assert front is not None
            # Possible after a restart, or with a changed policy.
            if front.delivery_count and self._exceeds_delivery_limit(front):
                reason = "delivery_limit"
            elif (
                front.expires_at is None
                or front.expires_at > now
                or (front.expires_at == now and not front.redelivered)
            ):
                return True
            else:
                reason = "expired"
            if not self._drop(bucket, len(front), reason, now):
                return False
        return False

    def _drop(self, bucket: PriorityBucket, count: int, reason: str, now: int) -> bool:
        """Drop up to `count` messages from the front of a bucket.

        Returns False and postpones that if the budget is used up (WQ7).
        """
        self._drop_budget.renew(now)
        from_disk = bucket.paged_out_count > 0
        is_postponed = from_disk and self.dead_lettering_runs > 0
        if is_postponed or not self._drop_budget.allows(from_disk=from_disk):
            self._drop_retry_at = now + 1
            self._set_timer(now + 1)
            return False
        run = bucket.take(count)
        self._drop_budget.charge(run, from_disk=from_disk)
        self._uncount_ready(run)
        self._dead_letter(self, run, reason, now)
        return True

    def _exceeds_delivery_limit(self, run: Run) -> bool:
        """Whether the messages were redelivered too often."""
        limit = self.settings.delivery_limit
        return limit is not None and run.delivery_count > limit

    def purge(self) -> int:
        """Drop all ready messages. Messages that must be settled one by one are settled in steps."""
        self._complete_rebucketing()
        self._notify_purged()
        count, self.ready, self._ready_bytes = self.ready, 0, 0
        is_paged_out = any(bucket.paged_out_count for bucket in self._buckets)
        unsettled: list[deque[Run] | list[tuple[int, Run]]] = []
        # There are new buckets only if the queue was deleted during `rebucket`.
        for bucket in (*self._buckets, *self._new_buckets):
            (first_position, position_count), has_gaps = bucket.fresh_positions, bucket.has_gaps
            fresh, requeued = bucket.clear()
            if self.deleted or not self._stores_persistent:
                self._free_later(fresh)
                self._free_later(requeued)
            elif len(self._buckets) > 1 or has_gaps:  # positions in between are elsewhere
                unsettled += (fresh, requeued)
            else:
                if position_count:
                    self._store.settle(self, first_position, position_count, 1)
                self._free_later(fresh)
                unsettled.append(requeued)
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
        """Dead-letter messages that a consumer rejected."""
        if not self.deleted:
            for run in runs:
                self._dead_letter(self, run, "rejected", now)

    # ── ready messages ────────────────────────────────────────────────────────────────────────────────

    @property
    def buckets(self) -> Sequence[PriorityBucket]:
        """The ready messages by priority."""
        return self._buckets

    def read_paged_out(self, priority: int, limits: ReadLimits) -> Iterator[tuple[list[Run], int]]:
        """Read the paged-out messages of a priority; see `MessageStore`."""
        return self._store.read_paged_out(self, priority, limits)

    def remove_ready(self, runs: Sequence[Run], priority: int, *, paged_out: bool) -> None:
        """Remove messages of a priority that were just read, all in memory or all paged out.

        The caller settles them.
        """
        bucket = self._buckets[priority]
        if not paged_out:
            bucket.remove(runs)
        for run in runs:
            self._uncount_ready(run)
            if paged_out:
                bucket.uncount_paged_out(run)
                self._store.take_paged_out(self, run, priority)

    def _bucket_index(self, run: Run) -> int:
        highest = self.settings.max_priority
        if highest is None:
            return 0
        priority = min(run.traits.priority, highest)
        while len(self._buckets) <= priority:
            self._add_bucket()
        return priority

    def _add_bucket(self) -> None:
        self._buckets.append(self._new_bucket(len(self._buckets)))

    def _new_bucket(self, priority: int) -> PriorityBucket:
        if self._store.has_disk:
            return PriorityBucket(partial(self._store.page_in, self, priority))
        return PriorityBucket()

    def _count_ready(self, run: Run) -> None:
        self.ready += len(run)
        if self._measures_bytes:
            self._ready_bytes += self._measured_bytes(run)

    def _measured_bytes(self, run: Run) -> int:
        """Return the size of those messages that `_ready_bytes` includes, if they are ready."""
        if self._survey is None:
            return sum(run.body_sizes())
        return self._survey.measured_bytes(run, self._bucket_index(run))

    def _front_bucket(self) -> PriorityBucket:
        """Return the non-empty bucket of the highest priority."""
        buckets = self._buckets
        if len(buckets) == 1:
            return buckets[0]
        return next(bucket for bucket in reversed(buckets) if bucket.front is not None)

    def _take_front(self, count: int) -> Run:
        run = self._front_bucket().take(count)
        self._uncount_ready(run)
        return run

    def _uncount_ready(self, run: Run) -> None:
        self.ready -= len(run)
        if self._measures_bytes:
            self._ready_bytes = self._ready_bytes - self._measured_bytes(run) if self.ready else 0

    def _measure_ready_bytes(self) -> None:
        """Compute the size of all ready messages, including paged-out ones, for a limit in bytes."""
        in_memory = sum(sum(run.body_sizes()) for bucket in self._buckets for run in bucket.runs())
        self._ready_bytes = in_memory + self._store.paged_out_bytes(self)

    @property
    def paged_out_count(self) -> int:
        return sum(bucket.paged_out_count for bucket in self._buckets)

    @property
    def paged_out_bytes(self) -> int:
        return sum(bucket.paged_out_bytes for bucket in self._buckets)

    # ── alterations ───────────────────────────────────────────────────────────────────────────────────

    def _set_storage(self, settings: QueueSettings) -> None:
        super()._set_storage(settings)
        self._stores_all = self._stores_persistent and settings.queue_type == "quorum"
        self._stores_late = None

    def begin_survey(self, survey: ByteSurvey) -> None:
        """Count bytes from zero: `survey` adds the messages present now, in steps; new ones are added as they come."""
        self._survey, self._ready_bytes, self._measures_bytes = survey, 0, True

    def is_surveyed_by(self, survey: ByteSurvey) -> bool:
        """Whether the survey is still needed."""
        return self._survey is survey

    def add_surveyed(self, size: int) -> None:
        self._ready_bytes += size

    def end_survey(self, *, keep: bool) -> None:
        """End it. With `keep`, the size goes on being counted until the settings change."""
        self._survey = None
        self._measures_bytes = keep or self.settings.max_length_bytes is not None

    def store_late_messages(self, settings: QueueSettings) -> Steps[bool]:
        """Store what these settings require: new messages from now on, and in steps the ready ones.

        Returns whether there can be messages that were not stored, because the queue is not durable or they
        are transient. Those that return to the queue from now on are stored, too.
        """
        stored_persistent, stored_all = self._stores_persistent, self._stores_all
        stores_persistent = settings.durable and self._store.has_disk
        stores_all = stores_persistent and settings.queue_type == "quorum"
        is_late_persistent = stores_persistent and not stored_persistent
        is_late_transient = stores_all and not stored_all
        if not (is_late_persistent or is_late_transient):
            return False
        end = self._next_position
        recording = self._store.begin_storing(self, end)
        self._stores_persistent, self._stores_all = True, stores_all or stored_all
        yield from recording
        if self.deleted:
            return True

        def stores_late(traits: MessageTraits) -> bool:
            return is_late_persistent if traits.persistent else is_late_transient

        self._stores_late = stores_late
        # In the order in which messages go on: from disk to memory, and from there to a consumer.
        yield from self._store.store_paged_out_late(self, stores_late, end)
        if not self.deleted:
            yield from self._store_ready_late(end)
        return True

    def abandon_alteration(self) -> None:
        super().abandon_alteration()
        self._store.end_rebucketing(self)
        if self._survey is not None:
            self.end_survey(keep=False)

    def must_store_late(self, run: Run) -> bool:
        return self._stores_late is not None and self._stores_late(run.traits)

    def store_late(self, run: Run, *, is_unacked: bool = False) -> bool:
        """Store messages if `store_late_messages` made that necessary; return whether it did."""
        if not self.must_store_late(run):
            return False
        deliveries = max(run.delivery_count, int(run.redelivered)) + is_unacked
        self._store.store_late(self, run, deliveries)
        return True

    def _store_ready_late(self, end: int) -> Steps[None]:
        position = 0
        for bucket in self._buckets:
            # Messages that are requeued from now on are stored when they return.
            while bucket.merge_requeued(_RUNS_PER_STEP):
                yield STEP_UNITS_MAX
        while not self.deleted:
            # In order of position over all priorities, so that the store has few fragments.
            runs = [
                run
                for bucket in self._buckets
                for run in bucket.find(position, _LATE_RUNS_PER_STEP)
            ]
            runs.sort(key=first_position)
            cost = 1 + len(runs) // _FOUND_RUNS_PER_UNIT
            for run in runs[:_LATE_RUNS_PER_STEP]:
                if cost >= STEP_UNITS_MAX or run.first_position >= end:
                    break
                position = run.end_position
                if self.store_late(run):
                    cost += _UNITS_PER_LATE_RUN + run.memory_bytes() // _BYTES_PER_UNIT
            if not runs or runs[0].first_position >= end:
                break
            yield cost

    def begin_rebucketing(self, max_priority: int | None) -> Steps[None]:
        """Prepare `rebucket`; the queue is used meanwhile."""
        return self._store.begin_rebucketing(self, max_priority or 0)

    def start_rebucketing(self, task: StepTask[None]) -> None:
        """Deliver and drop nothing until `task`, which calls `rebucket` and `alter`, is done."""
        self._rebucketing = task
        self.is_frozen = True
        self.pause_delivery()

    def rebucket(self, max_priority: int | None) -> Steps[None]:
        """Distribute messages in memory to buckets by other priorities; the caller calls `alter` in its last step."""
        highest = max_priority or 0
        new = self._new_buckets = [self._new_bucket(0)]
        runs_left = _RUNS_PER_STEP
        while not self.deleted:
            run = next((run for bucket in self._buckets if (run := bucket.pop()) is not None), None)
            if run is None:
                return
            priority = min(run.traits.priority, highest)
            while len(new) <= priority:
                new.append(self._new_bucket(len(new)))
            kept = self._store.page_out_late(self, run)
            if kept:
                new[priority].insert(run.take(kept))
            runs_left -= 1 if kept == len(run) else _RUNS_PER_PAGED_OUT
            if runs_left <= 0:
                yield STEP_UNITS_MAX
                runs_left = _RUNS_PER_STEP

    def _complete_rebucketing(self) -> None:
        """Complete `rebucket` in one call, because the caller needs all ready messages in one place."""
        if self._rebucketing is not None and not self._rebucketing.is_done:
            self._rebucketing.advance(UNLIMITED_COUNT)

    def _install_buckets(self) -> None:
        """Replace the buckets by those that `rebucket` has filled."""
        count = max(self.paged_out_count, 1)
        message_bytes = self.paged_out_bytes / count
        for priority, paged_out in self._store.finish_rebucketing(self).items():
            while len(self._new_buckets) <= priority:
                self._new_buckets.append(self._new_bucket(len(self._new_buckets)))
            self._new_buckets[priority].paged_out_count = paged_out
        self._buckets, self._new_buckets = self._new_buckets, []
        self.estimate_paged_out(message_bytes)
        self._rebucketing, self.is_frozen = None, False
        self.resume_delivery()

    def alter(self, settings: QueueSettings, now: int) -> None:
        if self.is_frozen:
            self._install_buckets()
        super().alter(settings, now)

    # ── after a restart ───────────────────────────────────────────────────────────────────────────────

    def restore(
        self, next_position: int, paged_out: Mapping[int, int], now: int, *, has_ttl: bool
    ) -> None:
        """Restore the state after a restart: the number of paged-out messages by priority.

        `has_ttl` tells whether some of them may expire.
        """
        self._next_position = self._started_at_position = next_position
        self._has_ttl = has_ttl
        for priority, count in paged_out.items():
            while len(self._buckets) <= priority:
                self._add_bucket()
            self._buckets[priority].paged_out_count = count
            self.ready += count

    def estimate_paged_out(self, message_bytes: float) -> None:
        """Set the approximate size of the paged-out messages after a restart, from the size of each."""
        for bucket in self._buckets:
            bucket.paged_out_bytes = round(bucket.paged_out_count * message_bytes)

    def finish_restore(self, now: int) -> None:
        """All queues are restored; start dropping expired and excess messages."""
        if self.settings.max_length_bytes is not None:
            self._measure_ready_bytes()
        self._drop_excess(now)
        self._set_ttl_timer()
