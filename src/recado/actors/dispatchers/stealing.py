"""Work stealing among actors of one type: who is idle takes messages out of the mailboxes of the busy.

    stealing = WorkStealing(threads=4)
    for _ in range(4):
        await system.spawn(Worker, dispatcher=stealing, mailbox=stealing.mailbox)

WS1  Each message is handled once, by some actor of the type, which need not be the one that it was sent to.
WS2  No message waits for a busy actor while another one of the type is idle.

So two messages to the same actor may be handled at the same time, by two actors: their order is lost. This is
for actors of which it does not matter which one does the work.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from recado.actors.running import pressure
from recado.actors.running.state import State

from .pool import Pool

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell
    from recado.actors.running.mailbox import Letter


class SharedMailbox:
    """An actor's own messages first; when it has none, others', from the fullest mailbox."""

    __slots__ = ("__weakref__", "_cell", "_group", "own")

    def __init__(self, group: WorkStealing) -> None:
        self.own: SimpleQueue[Letter] = SimpleQueue()
        self._group = group
        self._cell: ref[Cell] | None = None

    def meet(self, cell: Cell) -> None:
        """The actor has begun, and steals from now on."""
        self._cell = ref(cell)

    def put(self, letter: Letter) -> None:
        self.own.put(letter)
        cell = self._actor()
        if cell is not None and cell.busy:
            self._group.invite()

    def get_nowait(self) -> Letter:
        try:
            return self.own.get_nowait()
        except Empty:
            if not self._may_steal():
                raise
        return self._group.steal()

    def give_up(self) -> Letter:
        """One of its own, for somebody else; whoever waits to send to this actor has room then."""
        letter = self.own.get_nowait()
        cell = self._actor()
        if cell is not None and cell.waiting:
            pressure.relieve(cell)
        return letter

    def qsize(self) -> int:
        """Its own; if it has none, whether there is something to do at all."""
        return self.own.qsize() or (self._may_steal() and self._group.has_work())

    def _may_steal(self) -> bool:
        """Not for an actor that has stopped: what it took would be dead letters."""
        cell = self._actor()
        return cell is not None and cell.state is State.STARTED

    def _actor(self) -> Cell | None:
        return None if self._cell is None else self._cell()


class WorkStealing(Pool):
    def __init__(self, threads: int = 8, *, name: str = "recado-stealing") -> None:
        # An actor that took many messages at once would keep them from the others.
        super().__init__(threads, messages=1, name=name)
        self._mailboxes: WeakSet[SharedMailbox] = WeakSet()
        self._cells: WeakSet[Cell] = WeakSet()

    def mailbox(self) -> SharedMailbox:
        """For `spawn`: a mailbox that the others of the type may take from."""
        mailbox = SharedMailbox(self)
        with self._lock:
            self._mailboxes.add(mailbox)
        return mailbox

    def attach(self, cell: Cell) -> None:
        """An actor has started here; if its mailbox is one of ours, it is of the type."""
        if isinstance(cell.mailbox, SharedMailbox):
            # What there is to steal counts as one that waits: a bound of one would be reached by that alone.
            cell.capacity = cell.capacity and max(cell.capacity, 2)
            with self._lock:
                self._cells.add(cell)
            cell.mailbox.meet(cell)

    def invite(self) -> None:
        """A message has come for somebody who is busy: if another one is idle, it is for that one (WS2)."""
        with self._lock:
            idle = next((cell for cell in self._cells if not cell.busy), None)
        if idle is not None:
            self.dispatch(idle)

    def has_work(self) -> bool:
        with self._lock:
            return any(mailbox.own.qsize() for mailbox in self._mailboxes)

    def steal(self) -> Letter:
        with self._lock:
            fullest = max(self._mailboxes, key=lambda mailbox: mailbox.own.qsize())
        return fullest.give_up()
