"""Work stealing among actors of one type: idle actors take messages from the mailboxes of busy ones.

    pool = WorkStealingPool(threads=4)
    for _ in range(4):
        await system.spawn(Worker, dispatcher=pool, mailbox=pool.mailbox)

WS1  Each message is handled once, by some actor of the pool, which need not be the one that it was sent to.
WS2  No message waits for a busy actor while another one of the pool is idle.

So two messages to the same actor may be handled by two actors at the same time: their order is lost. Use it for
actors that are interchangeable.
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
    """Returns the actor's own messages first, and then messages from the fullest mailbox of the pool."""

    __slots__ = ("__weakref__", "_cell", "_pool", "own_queue")

    def __init__(self, pool: WorkStealingPool) -> None:
        self.own_queue: SimpleQueue[MessageEnvelope] = SimpleQueue()
        self._pool = pool
        self._cell: ref[Cell] | None = None

    def attach_cell(self, cell: Cell) -> None:
        """Set the cell of this mailbox once it has started: from now on, the mailbox steals for it."""
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
        """Remove and return a message for another actor. This makes space for paused senders."""
        envelope = self.own_queue.get_nowait()
        cell = self._attached_cell()
        if cell is not None and cell.space_callbacks:
            backpressure.notify_space(cell)
        return envelope

    def qsize(self) -> int:
        """Return the number of own messages; if there are none, 1 if there is a message to steal."""
        return self.own_queue.qsize() or (self._can_steal() and self._pool.has_work())

    def _can_steal(self) -> bool:
        """Return whether the actor runs. Messages that a stopped actor stole would become dead letters."""
        cell = self._attached_cell()
        return cell is not None and cell.is_started

    def _attached_cell(self) -> Cell | None:
        return None if self._cell is None else self._cell()


class WorkStealingPool(FixedPool, AttachingDispatcher):
    def __init__(self, threads: int = 8, *, name: str = "recado-stealing") -> None:
        # One message per run: an actor that took several would withhold them from idle ones.
        super().__init__(threads, messages_max=1, name=name)
        self._mailboxes: WeakSet[StealableMailbox] = WeakSet()
        self._cells: WeakSet[Cell] = WeakSet()

    def mailbox(self) -> StealableMailbox:
        """Create a mailbox that the other actors of the pool can steal from. For `spawn`."""
        mailbox = StealableMailbox(self)
        with self._lock:
            self._mailboxes.add(mailbox)
        return mailbox

    def attach_cell(self, cell: Cell) -> None:
        """Add a cell to the pool if its mailbox is stealable."""
        if isinstance(cell.mailbox, StealableMailbox):
            # `qsize` of an empty mailbox is 1 while there is a message to steal. With a capacity of 1 such a
            # mailbox would look full.
            cell.capacity = cell.capacity and max(cell.capacity, 2)
            with self._lock:
                self._cells.add(cell)
            cell.mailbox.attach_cell(cell)

    def wake_idle_actor(self) -> None:
        """Dispatch an idle actor, if there is one, because a message has arrived for a busy one (WS2)."""
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
