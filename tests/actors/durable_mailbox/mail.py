"""An actor with a durable mailbox, and incarnations of a process that has one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from recado.actors.actor import Actor
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.remote.memory import MemoryTransport
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem
from recado.journal.disk import Disk

T = TypeVar("T")
ALWAYS = OneForOne(max_restarts=None)


class Put(Message[int]):
    number: int


class Introduce(Message[None]):
    to: ActorRef[Any]


class Odd:
    """Nobody knows how to write it down."""


class Keeper(Actor[Any]):
    """It fails on a number as often as it is told to, then handles it."""

    def __init__(self, handled: list[int], failures: dict[int, int] | None = None) -> None:
        self.handled = handled
        self.failures = failures if failures is not None else {}

    async def receive(self, message: Any) -> None:
        match message:
            case Put(number):
                await asyncio.sleep(0)
                if self.failures.get(number, 0):
                    self.failures[number] -= 1
                    raise RuntimeError(str(number))
                self.handled.append(number)
                self.reply_if_asked(number)
            case Introduce(to):
                to.tell(Put(len(self.handled)))
            case _:
                self.unhandled(message)


def incarnation(
    disk: Disk,
    story: Callable[[ActorSystem, DurableMailboxes], Coroutine[Any, Any, T]],
    transport: MemoryTransport | None = None,
) -> T:
    """One incarnation of a process that keeps its mail there."""

    async def live() -> T:
        async with ActorSystem("test", transport=transport) as system:
            return await story(system, DurableMailboxes(system, disk, segment_bytes=4_096))

    log = logging.getLogger("recado.actors")
    log.setLevel(logging.CRITICAL)
    try:
        return asyncio.run(live())
    finally:
        log.setLevel(logging.NOTSET)
