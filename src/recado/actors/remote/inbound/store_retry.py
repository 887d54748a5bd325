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

from recado.actors.errors import SystemClosedError
from recado.actors.runtime.backpressure import call_when_space
from recado.actors.runtime.mailbox import StoredCallback
from recado.actors.serialization.errors import SerializationError

if TYPE_CHECKING:
    from recado.actors.runtime.cell import Cell
    from recado.actors.runtime.clock import Timer
    from recado.actors.system import ActorSystem

STORE_RETRY_INTERVAL_S: Final = 1.0  # seconds until a full disk is asked again


class StoreRetries:
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
        self, cell: Cell, settled: StoredCallback, error: BaseException | None
    ) -> None:
        """The mailbox says how it went. In any thread."""
        match error:
            case None if cell.capacity:
                call_when_space(cell, partial(settled, None))
            case None | SerializationError() | SystemClosedError():
                settled(error)
            case _:
                self._system._call_on_loop(self._retry_later, cell, settled)

    def _retry_later(self, cell: Cell, settled: StoredCallback) -> None:
        if self._is_closed:
            return
        self._unstored.append((cell, settled))
        if self._timer is None:
            self._timer = self._system._clock.call_later(STORE_RETRY_INTERVAL_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        unsafe, self._unstored = self._unstored, []
        for cell, settled in unsafe:
            assert cell.durable_mailbox is not None
            cell.durable_mailbox.when_stored(partial(self.handle_stored, cell, settled))
