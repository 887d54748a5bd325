"""The base of all queues: name, settings, consumers, timers, and notifications to the store.

The subclasses are `WorkQueue` (each message to one consumer), `Stream`, and the internal `DelayedQueue` and
`ReplyQueue`. They define how messages enter and leave.
"""

# ruff: noqa: B027 - a hook that a kind of queue does not override does nothing

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from recado.amqp.traits import MessageTraits

from .arguments import DeduplicationSettings, QueueSettings
from .consumer import Consumer
from .consumer_ring import ConsumerRing
from .deduplication import RecordId, create_window, find_recorder
from .memory_reclaimer import MemoryReclaimer
from .message_observer import Observers
from .run import Run
from .store import MessageStore

if TYPE_CHECKING:
    from .vhost import Vhost

DeadLetterHandler = Callable[["Queue", Run, str, int], None]
SetTimer = Callable[["Queue", int], None]


class ExclusiveOwner(Protocol):
    """The owner of exclusive queues: a connection, or the broker for the addresses of direct replies."""

    has_ended: bool
    """The owner is a connection that has closed, and its queues are about to be deleted."""

    exclusive_queues: "dict[Queue, None]"


class QueueContext(msgspec.Struct, frozen=True):
    """The objects that the queues of a vhost share."""

    vhost: "Vhost[Queue]"
    dead_letter: DeadLetterHandler
    set_timer: SetTimer
    store: MessageStore
    reclaimer: MemoryReclaimer


class Queue(ABC):
    # Slots, because instances with more than thirty attributes are slow without them.
    __slots__ = (
        "_active_consumer",
        "_dead_letter",
        "_free_later",
        "_last_used",
        "_next_position",
        "_ring",
        "_set_queue_timer",
        "_started_at_position",
        "_store",
        "_stores_persistent",
        "_timer_due",
        "acknowledged_count",
        "consumers",
        "dead_lettering_runs",
        "declared_settings",
        "deduplication_window",
        "deleted",
        "delivered_count",
        "delivered_no_ack_count",
        "delivery_pauses",
        "get_count",
        "get_empty_count",
        "get_no_ack_count",
        "has_stored_bindings",
        "held_dead_letter_bytes",
        "held_dead_letters",
        "is_altering",
        "name",
        "observers",
        "owner",
        "ready",
        "redelivered_count",
        "settings",
        "shared_channel_consumers",
        "stalled",
        "stores_bindings",
        "survives_restart",
        "unacked",
        "vhost",
        "wire_taps",
    )

    is_reply_address = False  # passes messages to its consumer and stores none
    consumer_type = Consumer

    def __init__(
        self,
        context: QueueContext,
        name: str,
        settings: QueueSettings,
        owner: ExclusiveOwner | None,
        now: int,
    ) -> None:
        vhost, store = context.vhost, context.store
        self.vhost = vhost
        self.name = name
        self.declared_settings = settings
        self.owner = owner  # the connection of an exclusive queue
        self.consumers: dict[Consumer, None] = {}  # in order of subscription
        self.wire_taps: dict[Consumer, None] = {}
        self.observers: Observers = vhost.message_observers
        self.shared_channel_consumers = 0  # consumers that share a channel with other consumers
        self.ready = 0
        self.unacked = 0
        self.delivery_pauses = 0  # the number of channels that are requeueing messages in steps
        self.deleted = False
        self.dead_lettering_runs = 0  # runs waiting to be dead-lettered
        self.held_dead_letters = 0  # dead letters waiting for their targets, see `at_least_once`
        self.held_dead_letter_bytes = 0
        self.stalled = False  # too many dead letters are waiting: deliver and drop nothing
        self.survives_restart = settings.durable and not settings.exclusive
        # Of bindings to durable exchanges: whether new ones are stored, and whether existing ones may be. They
        # differ from `survives_restart` while the queue becomes durable or transient.
        self.stores_bindings = self.has_stored_bindings = self.survives_restart
        self.is_altering = False  # see `alteration`
        self.deduplication_window = create_window(
            settings.deduplication, store, vhost.name, self, persist=self.survives_restart
        )
        self._store = store
        self._stores_persistent = self.survives_restart and store.has_disk
        self._next_position = self._started_at_position = 0
        # Totals since the start of the process, for statistics.
        self.delivered_count = self.delivered_no_ack_count = self.redelivered_count = 0
        self.get_count = self.get_no_ack_count = self.get_empty_count = 0
        self.acknowledged_count = 0
        self._ring = ConsumerRing()
        self._active_consumer: Consumer | None = None  # if the queue has a single active consumer
        self._dead_letter = context.dead_letter
        self._set_queue_timer = context.set_timer
        self._free_later = context.reclaimer.add
        self._timer_due: int | None = None  # due time of the timer, if it is set
        self._last_used = now
        if not self.is_reply_address:
            settings = vhost.policies.effective_queue_settings(name, settings)
        self._apply_settings(settings)
        self.touch(now)

    def _apply_settings(self, settings: QueueSettings) -> None:
        """Set the effective settings: the declared ones combined with policies."""
        self.settings = settings

    @property
    def next_position(self) -> int:
        """The position of the next message."""
        return self._next_position

    @property
    def published_count(self) -> int:
        """The messages that have entered since the start of the process: each took the next position."""
        return self._next_position - self._started_at_position

    @property
    def paged_out_count(self) -> int:
        """The number of ready messages that are only on disk."""
        return 0

    @property
    def paged_out_bytes(self) -> int:
        """The approximate memory that the paged-out messages would take."""
        return 0

    @property
    def last_used_ms(self) -> int:
        """When a client last declared, consumed or got, in milliseconds since 1970."""
        return self._last_used

    @property
    def active_consumer_tag(self) -> str | None:
        """The tag of the single active consumer, if the queue has one."""
        return self._active_consumer.tag if self._active_consumer is not None else None

    def is_active(self, consumer: Consumer) -> bool:
        """Whether a consumer receives messages; in a queue with a single active consumer only one does."""
        return self._active_consumer in (None, consumer)

    # ── defined by the subclasses ─────────────────────────────────────────────────────────────────────

    def can_coalesce(self, traits: MessageTraits) -> bool:
        """Whether messages with these traits only have to be enqueued, so that several can be coalesced."""
        return False

    def should_store(self, traits: MessageTraits) -> bool:
        """Whether messages with these traits survive a restart here."""
        return self._stores_persistent and traits.persistent

    @property
    def is_per_message(self) -> bool:
        """Whether the messages of a run may have to be handled one by one."""
        return False

    @abstractmethod
    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Accept messages; return the indexes of those that were rejected."""

    def dispatch(self, now: int) -> None:
        """Deliver ready messages to the consumers that have credit."""

    def on_timer(self, now: int) -> int:
        """The queue's timer is due: drop expired messages. Return the cost (see `steps`)."""
        return 0

    @abstractmethod
    def purge(self) -> int:
        """Drop all ready messages; return their number."""

    def get(self, now: int) -> Run | None:
        """Remove and return one message for basic.get, or None."""
        return None

    def requeue(self, runs: list[Run], now: int) -> None:
        """Take delivered messages back."""

    def reject(self, runs: list[Run], now: int) -> None:
        """Dead-letter messages that a consumer rejected."""

    def would_reject(self, message: Run) -> bool:
        """Whether a publish of this message would exceed a limit."""
        return False

    def count_fitting(self, body_sizes: Sequence[int]) -> int:
        """Return how many messages of these sizes fit in, so that none is rejected and none is dropped."""
        return len(body_sizes)

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        """Apply changed policies."""

    def alter(self, settings: QueueSettings, now: int) -> None:
        """Replace the declared settings. Everything that `alteration` prepares must have been done."""
        had_single_active_consumer = self.settings.single_active_consumer
        self.declared_settings = settings
        self._set_storage(settings)
        self._alter_window(settings.deduplication)
        self._store.queue_altered(self)
        self.vhost.epoch += 1  # routes depend on the settings of their queues
        self.reconfigure(self.vhost.policies.effective_queue_settings(self.name, settings), now)
        if self.settings.single_active_consumer != had_single_active_consumer:
            self._rebuild_ring()
        self.dispatch(now)

    def abandon_alteration(self) -> None:
        """Be as before what was done for an alteration that does not take place."""
        self._set_storage(self.declared_settings)
        if self.deduplication_window is not None:
            self._alter_window(self.declared_settings.deduplication)
        self._store.end_storing(self)

    def _set_storage(self, settings: QueueSettings) -> None:
        """Set what survives a restart."""
        self.survives_restart = settings.durable and not settings.exclusive
        self._stores_persistent = self.survives_restart and self._store.has_disk
        self.stores_bindings = self.survives_restart
        self.has_stored_bindings |= self.survives_restart

    def _alter_window(self, settings: DeduplicationSettings | None) -> None:
        window, persist = self.deduplication_window, self.survives_restart
        if window is None or settings is None:
            self.deduplication_window = create_window(
                settings, self._store, self.vhost.name, self, persist=persist
            )
        else:
            window.configure(settings)
            window.set_recorder(find_recorder(self._store, self.vhost.name, self, persist=persist))

    def record_message_ids(self) -> RecordId:
        """Store the ids of new messages from now on, as of a durable queue; return the function that stores one."""
        record = find_recorder(self._store, self.vhost.name, self, persist=True)
        assert record is not None, "there is a disk"
        assert self.deduplication_window is not None
        self.deduplication_window.set_recorder(record)
        return record

    def _rebuild_ring(self) -> None:
        """Choose anew which consumers receive messages."""
        self._ring = ConsumerRing()
        self._active_consumer = None
        for consumer in self.consumers:
            consumer.is_awake = False
            if not self.settings.single_active_consumer:
                self._ring.wake(consumer)
        if self.settings.single_active_consumer:
            self._elect_active_consumer()

    def restore(
        self, next_position: int, paged_out: Mapping[int, int], now: int, *, has_ttl: bool
    ) -> None:
        """Restore the state after a restart: the number of paged-out messages by priority.

        `has_ttl` tells whether some of them may expire.
        """

    def finish_restore(self, now: int) -> None:
        """All queues are restored; start dropping expired and excess messages."""

    # ── timers ────────────────────────────────────────────────────────────────────────────────────────

    def _set_timer(self, due: int) -> None:
        if not self.deleted and (self._timer_due is None or due < self._timer_due):
            self._timer_due = due
            self._set_queue_timer(self, due)

    def touch(self, now: int) -> None:
        """Restart the queue's own expiry time, because a client used it."""
        self._last_used = now
        self._set_expiry_timer()

    def _set_expiry_timer(self) -> None:
        if self.settings.expires_ms is not None and not self.consumers:
            self._set_timer(self._last_used + self.settings.expires_ms)

    def is_expired(self, now: int) -> bool:
        """Whether the queue itself has expired."""
        expires = self.settings.expires_ms
        return expires is not None and not self.consumers and self._last_used + expires <= now

    # ── state changes by the broker, channels and dead-lettering ──────────────────────────────────────

    def mark_deleted(self) -> None:
        """Mark the queue as deleted, and remove it from the connection that owns it."""
        self.deleted = True
        if self.owner is not None:
            del self.owner.exclusive_queues[self]
            self.owner = None

    def pause_delivery(self) -> None:
        """Deliver nothing until `resume_delivery` was called as often."""
        self.delivery_pauses += 1

    def resume_delivery(self) -> None:
        """Undo one `pause_delivery`; call `dispatch` after that."""
        self.delivery_pauses -= 1

    def count_shared_channel(self, change: int) -> None:
        """Change the number of consumers that share a channel with other consumers."""
        self.shared_channel_consumers += change

    def start_dead_lettering(self) -> None:
        """A run of this queue is waiting to be dead-lettered."""
        self.dead_lettering_runs += 1

    def finish_dead_lettering(self) -> None:
        """A run of this queue was dead-lettered."""
        self.dead_lettering_runs -= 1

    def hold_dead_letters(self, run: Run) -> None:
        """Count dead letters that wait for their targets."""
        self.held_dead_letters += len(run)
        self.held_dead_letter_bytes += sum(run.body_sizes())

    def release_dead_letters(self, run: Run) -> None:
        """Discount dead letters that their targets have accepted."""
        self.held_dead_letters -= len(run)
        self.held_dead_letter_bytes -= sum(run.body_sizes())

    def stall(self) -> None:
        """Let no more messages die: neither deliver nor drop any."""
        self.stalled = True

    def end_stall(self, now: int) -> None:
        self.stalled = False
        self.on_timer(now)
        self.dispatch(now)

    # ── observers of messages ─────────────────────────────────────────────────────────────────────────

    def _notify_refused(self, run: Run) -> None:
        for observer in self.observers:
            observer.refused(self, run)

    def _notify_purged(self) -> None:
        for observer in self.observers:
            observer.purged(self)

    # ── durability ───────────────────────────────────────────────────────────────────────────────────────

    def settle(self, run: Run, low: int = 0, high: int | None = None) -> None:
        """Remove messages low..high-1 of a run for good."""
        if run.stored and not self.deleted:
            count = (len(run) if high is None else high) - low
            self._store.settle(self, run.first_position + low * run.stride, count, run.stride)

    def acknowledge(self, run: Run, low: int, high: int) -> None:
        """Settle messages that a consumer acknowledged."""
        if not self.deleted:
            self._store.acknowledge(
                self, run.first_position + low * run.stride, high - low, run.stride
            )

    def settle_forwarded(self, run: Run, targets: "Iterable[Queue]") -> None:
        """Settle messages that were republished to `targets`."""
        if run.stored and not self.deleted:
            self._store.settle_forwarded(self, run.first_position, len(run), run.stride, targets)

    def record_delivery(self, run: Run) -> None:
        """Record that the messages were delivered, so that they are marked as redelivered after a restart."""
        self._store.record_delivery(self, run.first_position, len(run), run.stride)

    # ── consumers ─────────────────────────────────────────────────────────────────────────────────────

    def add_consumer(self, consumer: Consumer, now: int) -> None:
        if consumer.settings.wire_tap:
            self.wire_taps[consumer] = None
            return
        self.consumers[consumer] = None
        self._last_used = now
        if self.settings.single_active_consumer:
            self._elect_active_consumer()
        else:
            self._ring.wake(consumer)

    def remove_consumer(self, consumer: Consumer, now: int) -> None:
        if consumer.settings.wire_tap:
            self.wire_taps.pop(consumer, None)
            return
        self.consumers.pop(consumer, None)
        self._ring.sleep(consumer)
        if self._active_consumer is consumer:
            self._active_consumer = None
            self._elect_active_consumer()
            self.dispatch(now)
        self.touch(now)

    @property
    def removal_cost(self) -> int:
        """The cost of removing a consumer: it is searched for in the consumer ring, 5 ns per consumer."""
        return 2 + len(self.consumers) // 1024

    def _elect_active_consumer(self) -> None:
        if self._active_consumer is None and self.consumers:
            self._active_consumer = max(
                self.consumers, key=lambda consumer: consumer.settings.priority
            )
            self._ring.wake(self._active_consumer)

    def wake(self, consumer: Consumer) -> None:
        """Put a consumer that may have credit again into the ring; call `dispatch` after that."""
        if consumer in self.consumers and self._active_consumer in (None, consumer):
            self._ring.wake(consumer)

    def check_consumer(self, *, no_ack: bool, prefetch: int) -> None:
        """Raise an error if this kind of queue cannot serve the consumer."""

    def excludes_consumer(self, exclusive: bool) -> bool:
        """Whether a new consumer must be refused.

        That is if an existing consumer is exclusive, or if the new one is exclusive and the queue has
        consumers or a single active consumer.
        """
        if exclusive:
            return bool(self.consumers) or self.settings.single_active_consumer
        return any(consumer.exclusive for consumer in islice(self.consumers, 1))
