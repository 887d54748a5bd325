"""What the actors of a bridge have in common: they try, fail, are restarted, and try again after a while.

RB1  An attempt is made at once, and after a restart when `Attempts` says; when that says never (`give_up`, or a
     node that is absent for long), the bridge is given up: it tells the application, and the actors stop.
RB2  The mailbox outlives a restart, so what an instance is told names what it is about; of others' it is not
     concerned.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import ClassVar, Final, TypeAlias

from recado.actors.actor import Actor
from recado.actors.failing.supervision import OneForOne, Supervision
from recado.actors.message import Message
from recado.actors.running.clock import Timer
from recado.client import Channel, ClientError, Connection, GaveUp

from .attempts import Attempts
from .bridge import Bridge

# Time limits the restarts (Attempts), not their number.
AGAIN: Final = OneForOne(max_restarts=None, within=None)
NOT_FOUND: Final = 404
CLOSE_SECONDS: Final = 2.0  # for the broker to answer that a channel is closed


class NobodyThere(ClientError):
    """The broker knows no queue of the node that the bridge leads to."""


class Begin(Message[None]):
    """Try."""


class Broke(Message[None]):
    by_reference: ClassVar[bool] = True
    what: Connection | Channel
    error: Exception


class Reads(Message[None]):
    """The channel that reads has everything that it had."""


Errand: TypeAlias = Begin | Broke | Reads


class Restarting(Actor[Errand]):
    supervision: ClassVar[Supervision] = AGAIN
    expected: ClassVar[tuple[type[BaseException], ...]] = (ClientError, OSError)

    def __init__(self, bridge: Bridge, attempts: Attempts) -> None:
        self.bridge = bridge
        self._attempts = attempts
        self._timer: Timer | None = None
        self._begun = False

    def started(self) -> None:
        if self.bridge.end is not None:
            return
        clock = self.system.clock
        delay = self._attempts.delay(clock.time(), random.random())
        if delay is not None:
            self._timer = clock.call_later(delay, self.ref.tell, Begin())
            return
        last = self.bridge.error or ConnectionError("nothing is known of it")
        seconds = self._attempts.since(clock.time())
        self.bridge.gave_up(GaveUp(seconds, self._attempts.count, last))

    async def receive(self, message: Errand) -> None:
        match message:
            case Begin():
                if not self._begun:
                    self._begun = True
                    await self._try()
            case Broke(what, error):
                if self.owns(what):
                    raise error
            case Reads():
                await self.other_reads()

    async def _try(self) -> None:
        try:
            await self.begin()
        except (ClientError, OSError) as error:
            self.bridge.failed(error)
            if isinstance(error, NobodyThere) or getattr(error, "code", 0) == NOT_FOUND:
                self.bridge.absent(str(error))
            raise
        self._attempts.succeeded(self.system.clock.time())

    @abstractmethod
    async def begin(self) -> None:
        """Make everything, or raise."""

    @abstractmethod
    def owns(self, what: Connection | Channel) -> bool: ...

    async def other_reads(self) -> None:
        """The channel that reads does."""

    async def stopped(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.leave()

    @abstractmethod
    async def leave(self) -> None:
        """Let go of all that this instance had."""
