"""Links on which more comes than the mailboxes take that it is for: nothing is read from them for a while.

What can be settled needs none of this: it is settled when there is room, and only so much comes unsettled.

SL1  A link that fills a bounded mailbox is paused until there is room in it, and for no longer than PATIENCE
     seconds: what makes the room may be behind what is not read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakSet

from recado.actors.remote.transport import PeerLink
from recado.actors.runtime.backpressure import (
    PAUSE_MAX_S,
    call_when_space,
    cancel_callback,
    has_space,
)

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell
    from recado.actors.system import ActorSystem


@runtime_checkable
class PausableLink(PeerLink, Protocol):
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class LinkBackpressure:
    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._paused: WeakSet[PeerLink] = WeakSet()

    def pause_if_full(self, link: PeerLink, cell: Cell) -> None:
        """A message from this link was put into a bounded mailbox."""
        if has_space(cell) or link in self._paused or not isinstance(link, PausableLink):
            return
        self._paused.add(link)
        link.pause_reading()

        def resume() -> None:
            timer.cancel()
            cancel_callback(cell, room)
            self._resume(link)

        room = partial(self._system._call_on_loop, resume)
        timer = self._system._clock.call_later(PAUSE_MAX_S, resume)
        call_when_space(cell, room)

    def _resume(self, link: PausableLink) -> None:
        if link in self._paused:
            self._paused.discard(link)
            link.resume_reading()
