"""Backpressure on other nodes: full mailboxes pause links, full disks delay the settling of messages.

Messages that can be settled need no pause: they are settled when the mailbox has space, and the broker delivers
only a limited number of unsettled ones. Other links are paused (LinkBackpressure).

A durable mailbox may be unable to store a message because its disk is full. The message stays unsettled, so its
sender retains it, and the node retries until the disk has space (StoreRetries). Otherwise the limit of
unsettled messages would be used up, and nothing more would be delivered.

BP1  A link whose messages overfill a bounded mailbox is paused until the mailbox has space, and for at most
     PAUSE_MAX_S: the message that makes space may be behind those that are not read.
BP2  A message in a durable mailbox is settled once it is stored, however often the disk was full before.
BP3  A message that can never be stored is settled as rejected.
BP4  A message refused because the system is closing is left unsettled, for the next incarnation of the node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from recado.actors.errors import SystemClosedError
from recado.actors.remote.transport import PeerLink
from recado.actors.runtime.backpressure import (
    PAUSE_MAX_S,
    call_when_space,
    cancel_callback,
    has_space,
)
from recado.actors.runtime.mailbox import StoredCallback
from recado.actors.serialization.errors import SerializationError

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell
    from recado.actors.runtime.clock import Timer
    from recado.actors.system import ActorSystem

STORE_RETRY_INTERVAL_S: Final = 1.0


class LinkBackpressure:
    """Pauses links whose messages overfill a bounded mailbox (BP1)."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._paused: WeakSet[PeerLink] = WeakSet()

    def pause_if_full(self, link: PeerLink, cell: Cell) -> None:
        """Call it after a message from this link was put into a bounded mailbox."""
        if has_space(cell) or link in self._paused:
            return
        self._paused.add(link)
        link.pause_reading()

        def resume() -> None:
            timer.cancel()
            cancel_callback(cell, resume_on_loop)
            self._resume(link)

        resume_on_loop = partial(self._system._call_on_loop, resume)
        timer = self._system._clock.call_later(PAUSE_MAX_S, resume)
        call_when_space(cell, resume_on_loop)

    def _resume(self, link: PeerLink) -> None:
        if link in self._paused:
            self._paused.discard(link)
            link.resume_reading()


class StoreRetries:
    """Settles messages of other nodes when durable mailboxes have stored them; retries while a disk is full."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._unstored: list[tuple[Cell, StoredCallback]] = []
        self._timer: Timer | None = None
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def handle_stored(
        self, cell: Cell, settle: StoredCallback, error: BaseException | None
    ) -> None:
        """The mailbox reports whether it has stored a message. Called from any thread."""
        match error:
            case None if cell.capacity:
                call_when_space(cell, partial(settle, None))
            case None | SerializationError() | SystemClosedError():
                settle(error)
            case _:
                self._system._call_on_loop(self._retry_later, cell, settle)

    def _retry_later(self, cell: Cell, settle: StoredCallback) -> None:
        if self._is_closed:
            return
        self._unstored.append((cell, settle))
        if self._timer is None:
            self._timer = self._system._clock.call_later(STORE_RETRY_INTERVAL_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        unstored, self._unstored = self._unstored, []
        for cell, settle in unstored:
            assert cell.durable_mailbox is not None
            cell.durable_mailbox.when_stored(partial(self.handle_stored, cell, settle))
