"""A queue, whatever becomes of its messages: its name, its settings, its consumers, its own end.

What is common to the queues of `work_queue` (each message to one consumer), to streams, and to those that the
broker needs for itself. What enters and how it leaves is for each of them to say.
"""

# ruff: noqa: B027 - what a kind of queue has no use for does nothing

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from recado.amqp.traits import MessageTraits

from .arguments import QueueSettings
from .consumer import Consumer
from .consumer_ring import ConsumerRing
from .deduplication import create_window
from .memory_reclaimer import MemoryReclaimer
from .run import Run
from .store import MessageStore

if TYPE_CHECKING:
    from .vhost import Vhost

DeadLetterHandler = Callable[["Queue", Run, str, int], None]
SetTimer = Callable[["Queue", int], None]


class ExclusiveOwner(Protocol):
    """Whose an exclusive queue is: a connection."""

    has_ended: bool
    """It has ended, and its queues are about to be deleted."""

    exclusive_queues: "dict[Queue, None]"


class QueueContext(msgspec.Struct, frozen=True):
    """What all queues of a vhost have around them."""

    vhost: "Vhost[Queue]"
    dead_letter: DeadLetterHandler
    set_timer: SetTimer
    store: MessageStore
    reclaimer: MemoryReclaimer


class Queue(ABC):
    # With slots, because objects with more than thirty attributes are slow without.
    __slots__ = (
        "_active_consumer",
        "_dead_letter",
        "_free_later",
        "_last_used",
        "_next_position",
        "_ring",
        "_set_queue_timer",
        "_store",
        "_stores_persistent",
        "_timer_due",
        "consumers",
        "dead_lettering_runs",
        "declared_settings",
        "deduplication_window",
        "deleted",
        "delivery_pauses",
        "held_dead_letter_bytes",
        "held_dead_letters",
        "name",
        "owner",
        "ready",
        "settings",
        "shared_channel_consumers",
        "stalled",
        "survives_restart",
        "unacked",
        "vhost",
        "wire_taps",
    )

    is_reply_address = False  # passes on to one consumer and keeps nothing
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
        self.consumers: dict[Consumer, None] = {}  # in order of arrival
        self.wire_taps: dict[Consumer, None] = {}
        self.shared_channel_consumers = 0  # consumers whose channel has others
        self.ready = 0
        self.unacked = 0
        self.delivery_pauses = (
            0  # channels that requeue messages in steps; none is delivered meanwhile
        )
        self.deleted = False
        self.dead_lettering_runs = 0  # runs that wait to be sent on as letters
        self.held_dead_letters = 0  # dead ones that nobody has taken yet, see `assured`
        self.held_dead_letter_bytes = 0
        self.stalled = False  # by so many of them that no more may die
        self.survives_restart = settings.durable and not settings.exclusive
        self.deduplication_window = create_window(
            settings.deduplication, store, vhost.name, self, persist=self.survives_restart
        )
        self._store = store
        self._stores_persistent = (
            self.survives_restart and store.has_disk
        )  # what is persistent is kept
        self._next_position = 0
        self._ring = ConsumerRing()
        self._active_consumer: Consumer | None = None  # of a single active consumer queue
        self._dead_letter = context.dead_letter
        self._set_queue_timer = context.set_timer
        self._free_later = context.reclaimer.add
        self._timer_due: int | None = None  # when the alarm is set for
        self._last_used = now
        self._apply_settings(
            settings
            if self.is_reply_address
            else vhost.policies.effective_queue_settings(name, settings)
        )
        self.touch(now)

    def _apply_settings(self, settings: QueueSettings) -> None:
        """What was declared and what policies make of it."""
        self.settings = settings

    # ── what each kind does in its own way ────────────────────────────────────────────────────────────

    def can_coalesce(self, traits: MessageTraits) -> bool:
        """Whether nothing is asked of messages of this kind but to enter, so that some may enter together."""
        return False

    def should_store(self, traits: MessageTraits) -> bool:
        """Whether such messages outlast the process here."""
        return self._stores_persistent and traits.persistent

    @property
    def is_per_message(self) -> bool:
        """Whether messages may have to be taken in one by one."""
        return False

    @abstractmethod
    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Take in messages; gives the indexes of those that were refused."""

    def dispatch(self, now: int) -> None:
        """Give out what is ready to those who have room."""

    def on_timer(self, now: int) -> int:
        """The alarm went off: let go of what has outlived its time. Return the cost (see `steps`)."""
        return 0

    @abstractmethod
    def purge(self) -> int:
        """Let go of all that is ready; gives how many."""

    def get(self, now: int) -> Run | None:
        """One message for a client that asks for it."""
        return None

    def requeue(self, runs: list[Run], now: int) -> None:
        """Messages that were out for delivery return."""

    def reject(self, runs: list[Run], now: int) -> None:
        """Messages that a consumer refused for good."""

    def would_reject(self, message: Run) -> bool:
        """Whether there is no room for a message."""
        return False

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        """Policies came or went."""

    def restore(
        self, next_position: int, paged_out: Mapping[int, int], now: int, *, has_ttl: bool
    ) -> None:
        """What the keeper still has after a restart: so many messages in each lane, on the shelf.

        Some of them may expire if they are `mortal`.
        """

    def finish_restore(self, now: int) -> None:
        """All queues are restored, so whatever is too much or too old may go to others."""

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    def _set_timer(self, due: int) -> None:
        if not self.deleted and (self._timer_due is None or due < self._timer_due):
            self._timer_due = due
            self._set_queue_timer(self, due)

    def touch(self, now: int) -> None:
        """Somebody used the queue: what counts for its own expiry."""
        self._last_used = now
        self._set_expiry_timer()

    def _set_expiry_timer(self) -> None:
        if self.settings.expires is not None and not self.consumers:
            self._set_timer(self._last_used + self.settings.expires)

    def is_expired(self, now: int) -> bool:
        """Whether the queue itself has expired."""
        expires = self.settings.expires
        return expires is not None and not self.consumers and self._last_used + expires <= now

    # ── keeping ───────────────────────────────────────────────────────────────────────────────────────

    def settle(self, run: Run, low: int = 0, high: int | None = None) -> None:
        """Messages low..high-1 of a run are gone for good."""
        if run.stored and not self.deleted:
            count = (len(run) if high is None else high) - low
            self._store.settle(self, run.first_position + low * run.stride, count, run.stride)

    def acknowledge(self, run: Run, low: int, high: int) -> None:
        """Likewise, because a consumer said so."""
        if not self.deleted:
            self._store.acknowledge(
                self, run.first_position + low * run.stride, high - low, run.stride
            )

    def settle_forwarded(self, run: Run, targets: "Iterable[Queue]") -> None:
        """Messages have become others, which these queues have taken."""
        if run.stored and not self.deleted:
            self._store.settle_forwarded(self, run.first_position, len(run), run.stride, targets)

    def record_delivery(self, run: Run) -> None:
        """After a restart, these will have been delivered before."""
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
        """What it costs to remove a consumer: it is searched for among all that are awake, 5 ns for each."""
        return 2 + len(self.consumers) // 1024

    def _elect_active_consumer(self) -> None:
        if self._active_consumer is None and self.consumers:
            self._active_consumer = max(
                self.consumers, key=lambda consumer: consumer.settings.priority
            )
            self._ring.wake(self._active_consumer)

    def wake(self, consumer: Consumer) -> None:
        """The consumer may have room again; follow with `deal`."""
        if consumer in self.consumers and self._active_consumer in (None, consumer):
            self._ring.wake(consumer)

    def check_consumer(self, *, no_ack: bool, prefetch: int) -> None:
        """Refuse a consumer that this kind of queue cannot serve."""

    def excludes_consumer(self, exclusive: bool) -> bool:
        """Whether a further consumer must be refused, for one of them wants the queue for itself."""
        if exclusive:
            return bool(self.consumers) or self.settings.single_active_consumer
        return any(consumer.exclusive for consumer in islice(self.consumers, 1))
