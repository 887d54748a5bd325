"""One incarnation of a process with a durable mailbox, `python -m … FOLDER FIRST`: it sends itself mail until killed.

stdout            safe NUMBER     that message is on disk
FOLDER/handled    NUMBER          a line when its handler begins

FIRST is the number to begin with. 0: send nothing, handle what is left, and end. Numbers are those of frames of
another node, which sends them again when it did not hear that they had arrived.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path

from recado.actors.actor import Actor
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.message import Message
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.system import ActorSystem
from tests.actors.remote.sender import Sender

POISON = 13  # the handler of this one kills the process
ATTEMPTS = 3
AT_ONCE = 4


class Put(Message[int]):
    number: int


class Done(Message[None]):
    pass


class Keeper(Actor[Put | Done]):
    def __init__(self, handled: int) -> None:
        self.handled = handled

    async def receive(self, message: Put | Done) -> None:
        match message:
            case Put(number):
                os.write(self.handled, b"%d\n" % number)
                if number == POISON:
                    os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.sleep(0)
            case Done():
                self.reply(None)


async def live(folder: Path, first: int) -> None:
    handled = os.open(folder / "handled", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    async with ActorSystem("test", transport=MemoryTransport(MemoryNetwork())) as system:
        boxes = DurableMailboxes(system, folder / "mail", segment_bytes=20_000)
        ref = await system.spawn(
            lambda: Keeper(handled),
            name="keeper",
            mailbox=boxes.mailbox("keeper", attempts_max=ATTEMPTS),
        )
        if not first:
            await ref.ask(Done(), timeout=60)
            assert boxes.pending_counts() == {}
            return
        room, sender = asyncio.Semaphore(AT_ONCE), Sender()

        def safe(number: int, taken: bool) -> None:
            assert taken
            os.write(1, b"safe %d\n" % number)
            room.release()

        while True:
            await room.acquire()
            sender.give(system, "keeper", Put(first), first, partial(safe, first))
            first += 1


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2])))
