"""Who waits for what to be durable.

LG1  Everything made while `lsn` was T, and before, is durable when `safe` reaches T.

The ticket changes at the moment a sync begins, when all that was made with it is written. So whoever comes
while a sync is under way waits for the next one, and shares it with all others who come meanwhile.
"""

from collections import deque
from collections.abc import Callable

from recado.broker.store import DurabilityListener, MessageStore


class LsnTracker(MessageStore):
    has_disk = True

    def __init__(self) -> None:
        self.durable_ops = 0
        self.lsn = 1
        self.durable_lsn = 0
        self.topology_lsn = 0
        self._synced_ops = 0  # entries that a sync has covered, or will when it returns
        self._waiters: deque[tuple[int, DurabilityListener]] = deque()

    def notify_when_durable(self, listener: DurabilityListener) -> None:
        self._waiters.append((self.lsn, listener))

    @property
    def needs_sync(self) -> bool:
        """Whether somebody waits, or may, for what no sync has covered yet."""
        if self.durable_ops != self._synced_ops:
            return True
        return bool(self._waiters) and self._waiters[-1][0] == self.lsn

    def advance_lsn(self) -> int:
        """A sync begins, of all that was made up to now; gives what `reached` is to be told when it is done."""
        ticket = self.lsn
        self.lsn += 1
        self._synced_ops = self.durable_ops
        return ticket

    def mark_durable(self, lsn: int) -> None:
        """Tell those who waited for it. If one raises something, so does this, once all the others know."""
        self.durable_lsn = lsn
        waiting = self._waiters
        failure: Exception | None = None
        while waiting and waiting[0][0] <= lsn:
            try:
                waiting.popleft()[1].on_durable()
            except Exception as error:  # noqa: BLE001 - the others have no part in it
                failure = failure or error
        if failure is not None:
            raise failure


class DeferredActions:
    """What is to be done once all that was kept before is safe, and not sooner."""

    def __init__(self, lsns: LsnTracker) -> None:
        self._lsns = lsns
        self._actions: deque[tuple[int, Callable[[], None]]] = deque()

    def add(self, action: Callable[[], None]) -> None:
        self._actions.append((self._lsns.lsn, action))
        self._lsns.notify_when_durable(self)

    def __bool__(self) -> bool:
        return bool(self._actions)

    def on_durable(self) -> None:
        while self._actions and self._actions[0][0] <= self._lsns.durable_lsn:
            self._actions.popleft()[1]()
