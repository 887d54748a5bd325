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

from recado.amqp.facts import message_id_of
from recado.amqp.frames import properties_of
from recado.amqp.properties import Properties

from .arguments import WindowSettings
from .keeper import Keeper
from .run import Run

if TYPE_CHECKING:
    from .exchange import Exchange
    from .queue import Queue

Keep = Callable[[bytes, int, "Iterable[Queue]"], None]


class Window:
    """What was seen lately, oldest first."""

    __slots__ = ("_awaited", "_fleeting", "_keep", "_keeper", "_seen", "_size", "_ttl")

    def __init__(self, size: int, ttl: int | None, keeper: Keeper, keep: Keep | None) -> None:
        """`ttl` is in milliseconds; `keep` tells the keeper, where the window is to outlast the process."""
        self._size = size
        self._ttl = ttl
        self._keeper = keeper
        self._keep = keep
        self._awaited = 0  # the ticket of the id that was kept last
        # When each was taken in. The first of a plain dict is found behind all that left before it: 11 µs to
        # let one of 100,000 go, instead of 0.3.
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._fleeting: set[bytes] = set()  # those that were not kept

    def knows(self, message_id: bytes, now: int) -> bool:
        """Whether this is a duplicate. If what it repeats is not safe yet, the keeper has a new entry (W3)."""
        self._forget(now)
        when = self._seen.get(message_id)
        if when is None:
            return False
        if message_id not in self._fleeting and self._awaited > self._keeper.safe:
            self._keeper.require_sync()
            self._awaited = self._keeper.ticket
        return True

    def add(
        self, message_id: bytes, now: int, *, persistent: bool, to: "Iterable[Queue]" = ()
    ) -> None:
        """A message was taken in that nobody knew; `to` are the queues behind an exchange."""
        self._seen[message_id] = now
        if not persistent:
            self._fleeting.add(message_id)
        elif self._keep is not None:
            self._keep(message_id, now, to)
            self._awaited = self._keeper.ticket
        self._forget(now)

    def _forget(self, now: int) -> None:
        seen = self._seen
        oldest = 0 if self._ttl is None else now - self._ttl
        while seen:
            message_id = next(iter(seen))
            if len(seen) <= self._size and seen[message_id] >= oldest:
                break
            del seen[message_id]
            self._fleeting.discard(message_id)

    def ids(self) -> list[tuple[bytes, int]]:
        """All ids, and when they were seen."""
        return list(self._seen.items())

    def lasting(self, ids: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """Those of some ids that are known still, and are to be known after a restart."""
        return (pair for pair in ids if pair[0] in self._seen and pair[0] not in self._fleeting)

    def restore(self, seen: Iterable[tuple[bytes, int]]) -> None:
        """What the keeper has after a restart, oldest first; the same id may come again."""
        for message_id, when in seen:
            self._seen.setdefault(message_id, when)
            self._forget(when)

    def sift(self, run: Run, now: int, take: Callable[[Run, int], Sequence[int]]) -> Sequence[int]:
        """Let `take` have what is new, whole if nothing has an id; gives the indexes of what it refused."""
        ids = [message_id_of(properties_of(content)) for content in run.contents()]
        if not any(ids):
            return take(run, now)
        refused = []
        for i, message_id in enumerate(ids):
            if message_id and self.knows(message_id, now):
                continue
            if take(run.slice(i, i + 1), now):
                refused.append(i)
            elif message_id:
                self.add(message_id, now, persistent=run.facts.persistent)
        return refused


def window_of(
    settings: WindowSettings | None,
    keeper: Keeper,
    vhost: str,
    owner: "Queue | Exchange[Any]",
    *,
    lasting: bool,
) -> Window | None:
    """What a queue or an exchange needs to find duplicates, if it is to."""
    if settings is None:
        return None
    keep = partial(keeper.seen, vhost, owner) if lasting and keeper.keeps else None
    return Window(settings.size, settings.ttl, keeper, keep)


class Passage:
    """One message on its way through exchanges, of which some may know it."""

    __slots__ = ("_entered", "_message_id", "_now", "_persistent", "stopped")

    def __init__(self, properties: Properties, now: int) -> None:
        self._message_id = (properties.message_id or "").encode(errors="surrogateescape")
        self._persistent = properties.delivery_mode == 2
        self._now = now
        self._entered: list[Window] = []
        self.stopped = False
        """Somewhere it was a duplicate: if it goes nowhere then it was there before."""

    def enters(self, window: Window) -> bool:
        if not self._message_id:
            return True
        if window.knows(self._message_id, self._now):
            self.stopped = True
            return False
        self._entered.append(window)
        return True

    @property
    def is_watched(self) -> bool:
        """Whether an exchange looks for duplicates of it on the way that it took."""
        return self.stopped or bool(self._entered)

    def was_overtaken(self) -> bool:
        """Whether another message with its id got through since it entered an exchange."""
        entered = self._entered
        return bool(entered) and any(
            window.knows(self._message_id, self._now) for window in entered
        )

    def arrive(self, queues: "Iterable[Queue]") -> None:
        """All these queues took it (W1)."""
        for window in self._entered:
            window.add(self._message_id, self._now, persistent=self._persistent, to=queues)
