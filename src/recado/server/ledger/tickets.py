"""Who waits for what to be durable.

LG1  Everything made while `ticket` was T, and before, is durable when `safe` reaches T.

The ticket changes at the moment a sync begins, when all that was made with it is written. So whoever comes
while a sync is under way waits for the next one, and shares it with all others who come meanwhile.
"""

from collections import deque
from collections.abc import Callable

from recado.broker.keeper import Keeper, Waiting


class Tickets(Keeper):
    keeps = True

    def __init__(self) -> None:
        self.entries = 0
        self.ticket = 1
        self.safe = 0
        self.changed = 0
        self._covered = 0  # entries that a sync has covered, or will when it returns
        self._waiting: deque[tuple[int, Waiting]] = deque()

    def tell(self, waiting: Waiting) -> None:
        self._waiting.append((self.ticket, waiting))

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits, or may, for what no sync has covered yet."""
        if self.entries != self._covered:
            return True
        return bool(self._waiting) and self._waiting[-1][0] == self.ticket

    def next_ticket(self) -> int:
        """A sync begins, of all that was made up to now; gives what `reached` is to be told when it is done."""
        ticket = self.ticket
        self.ticket += 1
        self._covered = self.entries
        return ticket

    def reached(self, ticket: int) -> None:
        """Tell those who waited for it. If one raises something, so does this, once all the others know."""
        self.safe = ticket
        waiting = self._waiting
        failure: Exception | None = None
        while waiting and waiting[0][0] <= ticket:
            try:
                waiting.popleft()[1].kept()
            except Exception as error:  # noqa: BLE001 - the others have no part in it
                failure = failure or error
        if failure is not None:
            raise failure


class Later:
    """What is to be done once all that was kept before is safe, and not sooner."""

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._actions: deque[tuple[int, Callable[[], None]]] = deque()

    def add(self, action: Callable[[], None]) -> None:
        self._actions.append((self._tickets.ticket, action))
        self._tickets.tell(self)

    def __bool__(self) -> bool:
        return bool(self._actions)

    def kept(self) -> None:
        while self._actions and self._actions[0][0] <= self._tickets.safe:
            self._actions.popleft()[1]()
