"""Links on which more comes than the mailboxes take that it is for: nothing is read from them for a while.

What can be settled needs none of this: it is settled when there is room, and only so much comes unsettled.

SL1  A link that fills a bounded mailbox is paused until there is room in it, and for no longer than PATIENCE
     seconds: what makes the room may be behind what is not read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakSet

from recado.actors.remote.transport import Link
from recado.actors.running.pressure import PATIENCE, forget, has_room, when_room

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell
    from recado.actors.system import ActorSystem


@runtime_checkable
class PausingLink(Link, Protocol):
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Slowing:
    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._paused: WeakSet[Link] = WeakSet()

    def after(self, link: Link, cell: Cell) -> None:
        """A message from this link was put into a bounded mailbox."""
        if has_room(cell) or link in self._paused or not isinstance(link, PausingLink):
            return
        self._paused.add(link)
        link.pause_reading()

        def go_on() -> None:
            timer.cancel()
            forget(cell, room)
            self._resume(link)

        room = partial(self._system.on_loop, go_on)
        timer = self._system.clock.call_later(PATIENCE, go_on)
        when_room(cell, room)

    def _resume(self, link: PausingLink) -> None:
        if link in self._paused:
            self._paused.discard(link)
            link.resume_reading()
