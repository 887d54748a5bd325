"""Deduplication: a message whose id was accepted recently is confirmed and dropped.

A publisher that misses a confirm does not know whether its message arrived, and publishes it again. A queue
or an exchange that was declared with `x-message-deduplication` remembers the ids of accepted messages,
limited by number (`x-cache-size`) and age (`x-cache-ttl`), and accepts each message once.

DD1  A message that was not accepted (it was rejected or unroutable) is not a duplicate when it is published
     again.
DD2  An id is stored atomically with its message, so that after a crash both are known or neither. If a
     stream accepted it, the id is stored after the message: a crash may then duplicate it and never lose
     it. Only ids of persistent messages are stored, because transient messages are lost anyway.
DD3  A duplicate is confirmed when the original message is durable, not before.
DD4  Dead letters and moved messages are not deduplicated: the broker forwards them, and no publisher repeated
     them.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from recado.amqp.frames import extract_properties
from recado.amqp.properties import Properties
from recado.amqp.traits import read_message_id

from .arguments import DeduplicationSettings
from .run import Run
from .store import MessageStore

if TYPE_CHECKING:
    from .exchange import Exchange
    from .queue import Queue

_EVICTED_IDS_MAX: Final = 1024  # at once, for a window that was made smaller: 0.3 ms

RecordId = Callable[[bytes, int, "Iterable[Queue]"], None]


class DeduplicationWindow:
    """The recently accepted ids, oldest first."""

    __slots__ = (
        "_capacity",
        "_ids",
        "_record",
        "_required_lsn",
        "_store",
        "_transient_ids",
        "_ttl_ms",
    )

    def __init__(
        self, capacity: int, ttl_ms: int | None, store: MessageStore, record: RecordId | None
    ) -> None:
        """`record` stores an id, or is None if the window need not survive a restart."""
        self._capacity = capacity
        self._ttl_ms = ttl_ms
        self._store = store
        self._record = record
        self._required_lsn = 0  # of the sync that covers all stored ids
        # Time of acceptance by id. Not a plain dict: it finds its first key after scanning all deleted
        # ones, 11 µs to evict one of 100,000 instead of 0.3.
        self._ids: OrderedDict[bytes, int] = OrderedDict()
        self._transient_ids: set[bytes] = set()  # ids that were not stored

    def is_duplicate(self, message_id: bytes, now: int) -> bool:
        """Whether the id is a duplicate.

        If the original is not durable yet, the confirm waits for it (DD3).
        """
        self._evict(now)
        if not self.has(message_id, now):
            return False
        if message_id not in self._transient_ids and self._required_lsn > self._store.durable_lsn:
            self._store.require_sync()  # at the end of this turn; it makes the original durable as well
            self._required_lsn = self._store.lsn
        return True

    def has(self, message_id: bytes, now: int) -> bool:
        """Whether the id is a duplicate, without any effect."""
        seen_at = self._ids.get(message_id)
        return seen_at is not None and (self._ttl_ms is None or seen_at >= now - self._ttl_ms)

    def add(
        self, message_id: bytes, now: int, *, persistent: bool, targets: "Iterable[Queue]" = ()
    ) -> None:
        """Record an accepted message; `targets` are the queues behind an exchange."""
        self._ids[message_id] = now
        if not persistent:
            self._transient_ids.add(message_id)
        elif self._record is not None:
            self._record(message_id, now, targets)
            self._required_lsn = self._store.lsn
        self._evict(now)

    def _evict(self, now: int) -> None:
        ids = self._ids
        oldest = 0 if self._ttl_ms is None else now - self._ttl_ms
        count = 0
        while ids and count < _EVICTED_IDS_MAX:
            count += 1
            message_id = next(iter(ids))
            if len(ids) <= self._capacity and ids[message_id] >= oldest:
                break
            del ids[message_id]
            self._transient_ids.discard(message_id)

    def configure(self, settings: DeduplicationSettings) -> None:
        """Change the limits. If many ids exceed them, they are evicted in portions."""
        self._capacity, self._ttl_ms = settings.capacity, settings.ttl_ms

    def set_recorder(self, record: RecordId | None) -> None:
        """Store ids from now on with `record`, or no more with None."""
        self._record = record

    def ids(self) -> list[tuple[bytes, int]]:
        """Return all ids with the times when they were accepted."""
        return list(self._ids.items())

    def persistent_ids(self, ids: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Return those of the given ids that are still known and must be known after a restart."""
        return (pair for pair in ids if pair[0] in self._ids and pair[0] not in self._transient_ids)

    def restore(self, ids: Iterable[tuple[bytes, int]]) -> None:
        """Add the ids that the store has after a restart, oldest first; ids may repeat."""
        for message_id, seen_at in ids:
            self._ids.setdefault(message_id, seen_at)
            self._evict(seen_at)

    def publish_new(
        self, run: Run, now: int, publish: Callable[[Run, int], Sequence[int]]
    ) -> Sequence[int]:
        """Publish the messages that are not duplicates; return the indexes of those that were rejected.

        Without ids, the run is published as a whole.
        """
        ids = [read_message_id(extract_properties(content)) for content in run.contents()]
        if not any(ids):
            return publish(run, now)
        rejected = []
        for i, message_id in enumerate(ids):
            if message_id and self.is_duplicate(message_id, now):
                continue
            if publish(run.slice(i, i + 1), now):
                rejected.append(i)
            elif message_id:
                self.add(message_id, now, persistent=run.traits.persistent)
        return rejected


def create_window(
    settings: DeduplicationSettings | None,
    store: MessageStore,
    vhost: str,
    owner: "Queue | Exchange[Any]",
    *,
    persist: bool,
) -> DeduplicationWindow | None:
    """Return the deduplication window of a queue or an exchange, or None if it has none."""
    if settings is None:
        return None
    record = find_recorder(store, vhost, owner, persist=persist)
    return DeduplicationWindow(settings.capacity, settings.ttl_ms, store, record)


def find_recorder(
    store: MessageStore, vhost: str, owner: "Queue | Exchange[Any]", *, persist: bool
) -> RecordId | None:
    """Return the function that stores the ids of a queue or an exchange, None if they need not be stored."""
    return partial(store.record_message_id, vhost, owner) if persist and store.has_disk else None


class ExchangeDeduplication:
    """Deduplication of one message by the exchanges that it passes."""

    __slots__ = ("_message_id", "_now", "_persistent", "_windows", "is_duplicate")

    def __init__(self, properties: Properties, now: int) -> None:
        self._message_id = (properties.message_id or "").encode(errors="surrogateescape")
        self._persistent = properties.delivery_mode == 2
        self._now = now
        self._windows: list[DeduplicationWindow] = []
        self.is_duplicate = False
        """An exchange has seen the message before; if it is routed nowhere, that is the reason."""

    def enter(self, window: DeduplicationWindow) -> bool:
        """Return whether the message may pass an exchange with this window."""
        if not self._message_id:
            return True
        if window.is_duplicate(self._message_id, self._now):
            self.is_duplicate = True
            return False
        self._windows.append(window)
        return True

    @property
    def is_tracked(self) -> bool:
        """Whether an exchange on the message's route deduplicates it."""
        return self.is_duplicate or bool(self._windows)

    def was_overtaken(self) -> bool:
        """Whether a message with the same id was accepted since this one entered an exchange."""
        return any(window.is_duplicate(self._message_id, self._now) for window in self._windows)

    def record(self, queues: "Iterable[Queue]") -> None:
        """Record the id, because all these queues have accepted the message (DD1)."""
        for window in self._windows:
            window.add(self._message_id, self._now, persistent=self._persistent, targets=queues)
