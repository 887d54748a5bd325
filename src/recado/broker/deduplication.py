"""De-duplication: a message whose id was seen lately is confirmed, and goes nowhere.

A publisher that has no confirm does not know whether its message arrived, and sends it again. A queue or an
exchange that was declared with `x-message-deduplication` remembers the ids of what it took in, so many
(`x-cache-size`) and so long (`x-cache-ttl`), and takes the same message only once.

W1  A message that was not taken in (it was refused, or found no queue) is not a duplicate when it comes again.
W2  An id is kept together with the message that has it, so after a crash both are known or neither; where a
    stream took it, after the message: a crash may then double it, and never lose it. Only the id of a
    persistent message is kept, for the others are lost in any case.
W3  A duplicate is confirmed when the message that it repeats is safe, not before.
W4  Dead letters are not sifted: the broker moves them, nobody sent them twice.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from recado.amqp.frames import extract_properties
from recado.amqp.properties import Properties
from recado.amqp.traits import read_message_id

from .arguments import DeduplicationSettings
from .run import Run
from .store import MessageStore

if TYPE_CHECKING:
    from .exchange import Exchange
    from .queue import Queue

RecordId = Callable[[bytes, int, "Iterable[Queue]"], None]


class DeduplicationWindow:
    """What was seen lately, oldest first."""

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
        """`ttl` is in milliseconds; `keep` tells the keeper, where the window is to outlast the process."""
        self._capacity = capacity
        self._ttl_ms = ttl_ms
        self._store = store
        self._record = record
        self._required_lsn = 0  # the ticket of the id that was kept last
        # When each was taken in. The first of a plain dict is found behind all that left before it: 11 µs to
        # let one of 100,000 go, instead of 0.3.
        self._ids: OrderedDict[bytes, int] = OrderedDict()
        self._transient_ids: set[bytes] = set()  # those that were not kept

    def is_duplicate(self, message_id: bytes, now: int) -> bool:
        """Whether this is a duplicate. If what it repeats is not safe yet, the keeper has a new entry (W3)."""
        self._evict(now)
        when = self._ids.get(message_id)
        if when is None:
            return False
        if message_id not in self._transient_ids and self._required_lsn > self._store.durable_lsn:
            self._store.require_sync()
            self._required_lsn = self._store.lsn
        return True

    def add(
        self, message_id: bytes, now: int, *, persistent: bool, targets: "Iterable[Queue]" = ()
    ) -> None:
        """A message was taken in that nobody knew; `to` are the queues behind an exchange."""
        self._ids[message_id] = now
        if not persistent:
            self._transient_ids.add(message_id)
        elif self._record is not None:
            self._record(message_id, now, targets)
            self._required_lsn = self._store.lsn
        self._evict(now)

    def _evict(self, now: int) -> None:
        seen = self._ids
        oldest = 0 if self._ttl_ms is None else now - self._ttl_ms
        while seen:
            message_id = next(iter(seen))
            if len(seen) <= self._capacity and seen[message_id] >= oldest:
                break
            del seen[message_id]
            self._transient_ids.discard(message_id)

    def ids(self) -> list[tuple[bytes, int]]:
        """All ids, and when they were seen."""
        return list(self._ids.items())

    def persistent_ids(self, ids: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Those of some ids that are known still, and are to be known after a restart."""
        return (pair for pair in ids if pair[0] in self._ids and pair[0] not in self._transient_ids)

    def restore(self, ids: Iterable[tuple[bytes, int]]) -> None:
        """What the keeper has after a restart, oldest first; the same id may come again."""
        for message_id, seen_at in ids:
            self._ids.setdefault(message_id, seen_at)
            self._evict(seen_at)

    def publish_new(
        self, run: Run, now: int, publish: Callable[[Run, int], Sequence[int]]
    ) -> Sequence[int]:
        """Let `take` have what is new, whole if nothing has an id; gives the indexes of what it refused."""
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
    """What a queue or an exchange needs to find duplicates, if it is to."""
    if settings is None:
        return None
    record = partial(store.record_message_id, vhost, owner) if persist and store.has_disk else None
    return DeduplicationWindow(settings.capacity, settings.ttl_ms, store, record)


class ExchangeDeduplication:
    """One message on its way through exchanges, of which some may know it."""

    __slots__ = ("_message_id", "_now", "_persistent", "_windows", "is_duplicate")

    def __init__(self, properties: Properties, now: int) -> None:
        self._message_id = (properties.message_id or "").encode(errors="surrogateescape")
        self._persistent = properties.delivery_mode == 2
        self._now = now
        self._windows: list[DeduplicationWindow] = []
        self.is_duplicate = False
        """Somewhere it was a duplicate: if it goes nowhere then it was there before."""

    def enter(self, window: DeduplicationWindow) -> bool:
        if not self._message_id:
            return True
        if window.is_duplicate(self._message_id, self._now):
            self.is_duplicate = True
            return False
        self._windows.append(window)
        return True

    @property
    def is_tracked(self) -> bool:
        """Whether an exchange looks for duplicates of it on the way that it took."""
        return self.is_duplicate or bool(self._windows)

    def was_overtaken(self) -> bool:
        """Whether another message with its id got through since it entered an exchange."""
        entered = self._windows
        return bool(entered) and any(
            window.is_duplicate(self._message_id, self._now) for window in entered
        )

    def record(self, queues: "Iterable[Queue]") -> None:
        """All these queues took it (W1)."""
        for window in self._windows:
            window.add(self._message_id, self._now, persistent=self._persistent, targets=queues)
