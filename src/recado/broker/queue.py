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

from recado.amqp.facts import Facts

from .arguments import QueueSettings
from .consumer import Consumer
from .deduplication import window_of
from .disposal import Disposal
from .keeper import Keeper
from .rota import Rota
from .run import Run

if TYPE_CHECKING:
    from .vhost import Vhost

DeadLetter = Callable[["Queue", Run, str, int], None]
Alarm = Callable[["Queue", int], None]


class Owner(Protocol):
    """Whose an exclusive queue is: a connection."""

    leaving: bool
    """It has ended, and its queues are about to be deleted."""

    exclusive: "dict[Queue, None]"


class Home(msgspec.Struct, frozen=True):
    """What all queues of a vhost have around them."""

    vhost: "Vhost[Queue]"
    dead_letter: DeadLetter
    alarm: Alarm
    keeper: Keeper
    disposal: Disposal


class Queue(ABC):
    # With slots, because objects with more than thirty attributes are slow without.
    __slots__ = (
        "_active",
        "_alarm",
        "_dead_letter",
        "_dispose",
        "_due",
        "_keeper",
        "_keeps",
        "_last_used",
        "_next_place",
        "_rota",
        "consumers",
        "crowded",
        "declared",
        "deleted",
        "dying",
        "lasting",
        "letter_bytes",
        "letters",
        "name",
        "owner",
        "ready",
        "returning",
        "settings",
        "stalled",
        "taps",
        "unacked",
        "vhost",
        "window",
    )

    is_address = False  # passes on to one consumer and keeps nothing
    consumer_type = Consumer

    def __init__(
        self, home: Home, name: str, settings: QueueSettings, owner: Owner | None, now: int
    ) -> None:
        vhost, keeper = home.vhost, home.keeper
        self.vhost = vhost
        self.name = name
        self.declared = settings
        self.owner = owner  # the connection of an exclusive queue
        self.consumers: dict[Consumer, None] = {}  # in order of arrival
        self.taps: dict[Consumer, None] = {}
        self.crowded = 0  # consumers whose channel has others
        self.ready = 0
        self.unacked = 0
        self.returning = 0  # channels that requeue messages in steps; none is delivered meanwhile
        self.deleted = False
        self.dying = 0  # runs that wait to be sent on as letters
        self.letters = 0  # dead ones that nobody has taken yet, see `assured`
        self.letter_bytes = 0
        self.stalled = False  # by so many of them that no more may die
        self.lasting = settings.durable and not settings.exclusive
        self.window = window_of(settings.window, keeper, vhost.name, self, lasting=self.lasting)
        self._keeper = keeper
        self._keeps = self.lasting and keeper.keeps  # what is persistent is kept
        self._next_place = 0
        self._rota = Rota()
        self._active: Consumer | None = None  # of a single active consumer queue
        self._dead_letter = home.dead_letter
        self._alarm = home.alarm
        self._dispose = home.disposal.add
        self._due: int | None = None  # when the alarm is set for
        self._last_used = now
        self._adopt(settings if self.is_address else vhost.policies.for_queue(name, settings))
        self.touch(now)

    def _adopt(self, settings: QueueSettings) -> None:
        """What was declared and what policies make of it."""
        self.settings = settings

    # ── what each kind does in its own way ────────────────────────────────────────────────────────────

    def gathers(self, facts: Facts) -> bool:
        """Whether nothing is asked of messages of this kind but to enter, so that some may enter together."""
        return False

    def keeps(self, facts: Facts) -> bool:
        """Whether such messages outlast the process here."""
        return self._keeps and facts.persistent

    @property
    def is_laborious(self) -> bool:
        """Whether messages may have to be taken in one by one."""
        return False

    @abstractmethod
    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Take in messages; gives the indexes of those that were refused."""

    def deal(self, now: int) -> None:
        """Give out what is ready to those who have room."""

    def expire(self, now: int) -> int:
        """The alarm went off: let go of what has outlived its time. Return the cost (see `steps`)."""
        return 0

    @abstractmethod
    def purge(self) -> int:
        """Let go of all that is ready; gives how many."""

    def get(self, now: int) -> Run | None:
        """One message for a client that asks for it."""
        return None

    def put_back(self, runs: list[Run], now: int) -> None:
        """Messages that were out for delivery return."""

    def reject(self, runs: list[Run], now: int) -> None:
        """Messages that a consumer refused for good."""

    def refuses(self, one: Run) -> bool:
        """Whether there is no room for a message."""
        return False

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        """Policies came or went."""

    def restore(
        self, next_place: int, shelved: Mapping[int, int], now: int, *, mortal: bool
    ) -> None:
        """What the keeper still has after a restart: so many messages in each lane, on the shelf.

        Some of them may expire if they are `mortal`.
        """

    def resume(self, now: int) -> None:
        """All queues are restored, so whatever is too much or too old may go to others."""

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    def _set_alarm(self, at: int) -> None:
        if not self.deleted and (self._due is None or at < self._due):
            self._due = at
            self._alarm(self, at)

    def touch(self, now: int) -> None:
        """Somebody used the queue: what counts for its own expiry."""
        self._last_used = now
        self._watch_idle()

    def _watch_idle(self) -> None:
        if self.settings.expires is not None and not self.consumers:
            self._set_alarm(self._last_used + self.settings.expires)

    def is_abandoned(self, now: int) -> bool:
        """Whether the queue itself has expired."""
        expires = self.settings.expires
        return expires is not None and not self.consumers and self._last_used + expires <= now

    # ── keeping ───────────────────────────────────────────────────────────────────────────────────────

    def settle(self, run: Run, low: int = 0, high: int | None = None) -> None:
        """Messages low..high-1 of a run are gone for good."""
        if run.kept and not self.deleted:
            count = (len(run) if high is None else high) - low
            self._keeper.settle(self, run.first + low * run.step, count, run.step)

    def acknowledge(self, run: Run, low: int, high: int) -> None:
        """Likewise, because a consumer said so."""
        if not self.deleted:
            self._keeper.acknowledge(self, run.first + low * run.step, high - low, run.step)

    def pass_on(self, run: Run, to: "Iterable[Queue]") -> None:
        """Messages have become others, which these queues have taken."""
        if run.kept and not self.deleted:
            self._keeper.passed_on(self, run.first, len(run), run.step, to)

    def note_delivered(self, run: Run) -> None:
        """After a restart, these will have been delivered before."""
        self._keeper.delivered(self, run.first, len(run), run.step)

    # ── consumers ─────────────────────────────────────────────────────────────────────────────────────

    def add_consumer(self, consumer: Consumer, now: int) -> None:
        if consumer.settings.wire_tap:
            self.taps[consumer] = None
            return
        self.consumers[consumer] = None
        self._last_used = now
        if self.settings.single_active_consumer:
            self._choose_active()
        else:
            self._rota.wake(consumer)

    def remove_consumer(self, consumer: Consumer, now: int) -> None:
        if consumer.settings.wire_tap:
            self.taps.pop(consumer, None)
            return
        self.consumers.pop(consumer, None)
        self._rota.sleep(consumer)
        if self._active is consumer:
            self._active = None
            self._choose_active()
            self.deal(now)
        self.touch(now)

    @property
    def removal_units(self) -> int:
        """What it costs to remove a consumer: it is searched for among all that are awake, 5 ns for each."""
        return 2 + len(self.consumers) // 1024

    def _choose_active(self) -> None:
        if self._active is None and self.consumers:
            self._active = max(self.consumers, key=lambda consumer: consumer.settings.priority)
            self._rota.wake(self._active)

    def wake(self, consumer: Consumer) -> None:
        """The consumer may have room again; follow with `deal`."""
        if consumer in self.consumers and self._active in (None, consumer):
            self._rota.wake(consumer)

    def check_consumer(self, *, no_ack: bool, prefetch: int) -> None:
        """Refuse a consumer that this kind of queue cannot serve."""

    def is_taken(self, exclusive: bool) -> bool:
        """Whether a further consumer must be refused, for one of them wants the queue for itself."""
        if exclusive:
            return bool(self.consumers) or self.settings.single_active_consumer
        return any(consumer.exclusive for consumer in islice(self.consumers, 1))
