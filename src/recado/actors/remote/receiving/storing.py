"""Messages of other nodes that a durable mailbox has taken, and that are not safe yet: its disk is full.

Who sent them keeps them until they are settled, and gives only so many that are not. So as long as this node
lives it asks again, or nothing more would come when there is room on the disk.

SO1  What is in a mailbox is settled when it is safe, however often its disk was full before.
SO2  What a mailbox refuses for good (nobody can write it down) is settled as unwanted.
SO3  What a mailroom refuses since it is closed is left to the next life.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from recado.actors.errors import SystemClosed
from recado.actors.running.mailbox import Then
from recado.actors.running.pressure import when_room
from recado.actors.serialising.faults import CannotSerialise

if TYPE_CHECKING:
    from recado.actors.running.cell import Cell
    from recado.actors.running.clock import Timer
    from recado.actors.system import ActorSystem

AGAIN: Final = 1.0  # seconds until a full disk is asked again


class Storing:
    def __init__(self, system: ActorSystem) -> None:
        self._system = system
        self._unsafe: list[tuple[Cell, Then]] = []
        self._timer: Timer | None = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def stored(self, cell: Cell, settled: Then, error: BaseException | None) -> None:
        """The mailbox says how it went. In any thread."""
        match error:
            case None if cell.capacity:
                when_room(cell, partial(settled, None))
            case None | CannotSerialise() | SystemClosed():
                settled(error)
            case _:
                self._system.on_loop(self._wait, cell, settled)

    def _wait(self, cell: Cell, settled: Then) -> None:
        if self._closed:
            return
        self._unsafe.append((cell, settled))
        if self._timer is None:
            self._timer = self._system.clock.call_later(AGAIN, self._ask_again)

    def _ask_again(self) -> None:
        self._timer = None
        unsafe, self._unsafe = self._unsafe, []
        for cell, settled in unsafe:
            assert cell.lasting is not None
            cell.lasting.stored(partial(self.stored, cell, settled))
