"""What the actors of a bridge have in common: they try, fail, are restarted, and try again after a while.

RB1  An attempt is made at once, and after a restart when `BridgeRetries` says; when that says never (`give_up`, or a
     node that is absent for long), the bridge is given up: it tells the application, and the actors stop.
RB2  The mailbox outlives a restart, so what an instance is told names what it is about; of others' it is not
     concerned.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from typing import ClassVar, Final, TypeAlias

from recado.actors.actor import Actor
from recado.actors.message import Message
from recado.actors.runtime.clock import Timer
from recado.actors.supervision.strategy import OneForOne, SupervisorStrategy
from recado.client import Channel, ClientError, Connection, ReconnectTimeoutError

from .bridge import Bridge
from .retry import BridgeRetries

# Time limits the restarts (Attempts), not their number.
ALWAYS_RESTART: Final = OneForOne(max_restarts=None, within=None)
NOT_FOUND_CODE: Final = 404
CHANNEL_CLOSE_TIMEOUT_S: Final = 2.0  # for the broker to answer that a channel is closed


class NodeAbsentError(ClientError):
    """The broker knows no queue of the node that the bridge leads to."""


class StartAttempt(Message[None]):
    """Try."""


class ResourceClosed(Message[None]):
    by_reference: ClassVar[bool] = True
    resource: Connection | Channel
    error: Exception


class ReaderReady(Message[None]):
    """The channel that reads has everything that it had."""


BridgeActorMessage: TypeAlias = StartAttempt | ResourceClosed | ReaderReady


class BridgeActor(Actor[BridgeActorMessage]):
    supervisor_strategy: ClassVar[SupervisorStrategy] = ALWAYS_RESTART
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = (ClientError, OSError)

    def __init__(self, bridge: Bridge, retries: BridgeRetries) -> None:
        self.bridge = bridge
        self._retries = retries
        self._timer: Timer | None = None
        self._is_attempted = False

    def pre_start(self) -> None:
        if self.bridge.close_reason is not None:
            return
        clock = self.system._clock
        delay = self._retries.next_delay(clock.time(), random.random())
        if delay is not None:
            self._timer = clock.call_later(delay, self.ref.tell, StartAttempt())
            return
        last = self.bridge.last_error or ConnectionError("nothing is known of it")
        seconds = self._retries.elapsed(clock.time())
        self.bridge.give_up(ReconnectTimeoutError(seconds, self._retries.attempt_count, last))

    async def receive(self, message: BridgeActorMessage) -> None:
        match message:
            case StartAttempt():
                if not self._is_attempted:
                    self._is_attempted = True
                    await self._attempt()
            case ResourceClosed(what, error):
                if self.owns(what):
                    raise error
            case ReaderReady():
                await self.reader_ready()

    async def _attempt(self) -> None:
        try:
            await self.open_resources()
        except (ClientError, OSError) as error:
            self.bridge.attempt_failed(error)
            if (
                isinstance(error, NodeAbsentError)
                or getattr(error, "reply_code", 0) == NOT_FOUND_CODE
            ):
                self.bridge.node_absent(str(error))
            raise
        self._retries.mark_succeeded(self.system._clock.time())

    @abstractmethod
    async def open_resources(self) -> None:
        """Make everything, or raise."""

    @abstractmethod
    def owns(self, resource: Connection | Channel) -> bool: ...

    async def reader_ready(self) -> None:
        """The channel that reads does."""

    async def post_stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.close_resources()

    @abstractmethod
    async def close_resources(self) -> None:
        """Let go of all that this instance had."""
