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

from recado.actors.runtime import backpressure
from recado.actors.runtime.loop_dispatcher import AttachingDispatcher
from recado.actors.runtime.state import CellState

from .fixed_pool import FixedPool

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell
    from recado.actors.runtime.mailbox import MessageEnvelope


class StealableMailbox:
    """An actor's own messages first; when it has none, others', from the fullest mailbox."""

    __slots__ = ("__weakref__", "_cell", "_pool", "own_queue")

    def __init__(self, pool: WorkStealingPool) -> None:
        self.own_queue: SimpleQueue[MessageEnvelope] = SimpleQueue()
        self._pool = pool
        self._cell: ref[Cell] | None = None

    def attach_cell(self, cell: Cell) -> None:
        """The actor has begun, and steals from now on."""
        self._cell = ref(cell)

    def put(self, envelope: MessageEnvelope) -> None:
        self.own_queue.put(envelope)
        cell = self._attached_cell()
        if cell is not None and cell.is_claimed:
            self._pool.wake_idle_actor()

    def get_nowait(self) -> MessageEnvelope:
        try:
            return self.own_queue.get_nowait()
        except Empty:
            if not self._can_steal():
                raise
        return self._pool.steal()

    def release_one(self) -> MessageEnvelope:
        """One of its own, for somebody else; whoever waits to send to this actor has room then."""
        letter = self.own_queue.get_nowait()
        cell = self._attached_cell()
        if cell is not None and cell.space_callbacks:
            backpressure.notify_space(cell)
        return letter

    def qsize(self) -> int:
        """Its own; if it has none, whether there is something to do at all."""
        return self.own_queue.qsize() or (self._can_steal() and self._pool.has_work())

    def _can_steal(self) -> bool:
        """Not for an actor that has stopped: what it took would be dead letters."""
        cell = self._attached_cell()
        return cell is not None and cell.is_started

    def _attached_cell(self) -> Cell | None:
        return None if self._cell is None else self._cell()


class WorkStealingPool(FixedPool, AttachingDispatcher):
    def __init__(self, threads: int = 8, *, name: str = "recado-stealing") -> None:
        # An actor that took many messages at once would keep them from the others.
        super().__init__(threads, messages_max=1, name=name)
        self._mailboxes: WeakSet[StealableMailbox] = WeakSet()
        self._cells: WeakSet[Cell] = WeakSet()

    def mailbox(self) -> StealableMailbox:
        """For `spawn`: a mailbox that the others of the type may take from."""
        mailbox = StealableMailbox(self)
        with self._lock:
            self._mailboxes.add(mailbox)
        return mailbox

    def attach_cell(self, cell: Cell) -> None:
        """An actor has started here; if its mailbox is one of ours, it is of the type."""
        if isinstance(cell.mailbox, StealableMailbox):
            # What there is to steal counts as one that waits: a bound of one would be reached by that alone.
            cell.capacity = cell.capacity and max(cell.capacity, 2)
            with self._lock:
                self._cells.add(cell)
            cell.mailbox.attach_cell(cell)

    def wake_idle_actor(self) -> None:
        """A message has come for somebody who is busy: if another one is idle, it is for that one (WS2)."""
        with self._lock:
            idle = next((cell for cell in self._cells if cell.state is CellState.IDLE), None)
        if idle is not None:
            self.dispatch(idle)

    def has_work(self) -> bool:
        with self._lock:
            return any(mailbox.own_queue.qsize() for mailbox in self._mailboxes)

    def steal(self) -> MessageEnvelope:
        with self._lock:
            fullest = max(self._mailboxes, key=lambda mailbox: mailbox.own_queue.qsize())
        return fullest.release_one()
