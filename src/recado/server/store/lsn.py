"""LSNs: which operations are durable, and which listeners wait for their operations to become durable.

ST1  Every operation made while `lsn` was N or less is durable when `durable_lsn` reaches N.

An LSN numbers syncs, not bytes. `lsn` advances when a sync begins; all operations made before it are written to
the file by then. So an operation made while a sync is running waits for the next one, and shares it with all
other operations made meanwhile.
"""

from collections import deque
from collections.abc import Callable

from recado.broker.store import DurabilityListener, MessageStore


class LsnTracker(MessageStore):
    """The LSNs of a store, and the listeners that wait for them."""

    has_disk = True

    def __init__(self) -> None:
        self.durable_ops = 0
        self.lsn = 1
        self.durable_lsn = 0
        self.topology_lsn = 0  # set by the store with each declaration
        self._synced_ops = 0  # operations that a finished or running sync covers
        self._waiters: deque[tuple[int, DurabilityListener]] = deque()

    def notify_when_durable(self, listener: DurabilityListener) -> None:
        self._waiters.append((self.lsn, listener))

    @property
    def needs_sync(self) -> bool:
        """Whether a listener waits for another sync, or a durable operation is not covered by one.

        A persistent message is a durable operation also if it was published without confirms.
        """
        if self.durable_ops != self._synced_ops:
            return True
        return bool(self._waiters) and self._waiters[-1][0] == self.lsn

    @property
    def unsynced_ops(self) -> int:
        """The number of durable operations that no finished or running sync covers."""
        return self.durable_ops - self._synced_ops

    def advance_lsn(self) -> int:
        """Begin a sync of all operations so far; return the LSN to pass to `mark_durable` when it is done."""
        lsn = self.lsn
        self.lsn += 1
        self._synced_ops = self.durable_ops
        return lsn

    def mark_durable(self, lsn: int) -> None:
        """Notify the listeners up to an LSN. If some raise, raise the first error after all were notified."""
        self.durable_lsn = lsn
        waiters = self._waiters
        failure: Exception | None = None
        while waiters and waiters[0][0] <= lsn:
            try:
                waiters.popleft()[1].on_durable()
            except Exception as error:  # noqa: BLE001 - other listeners must be notified all the same
                failure = failure or error
        if failure is not None:
            raise failure


class DeferredActions:
    """Actions that run once all operations made before them are durable."""

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
