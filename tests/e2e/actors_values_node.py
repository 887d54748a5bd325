"""A node as a process that receives values of every type: `python -m … WHERE FOLDER MODE`.

WHERE is `tcp`, or the URL of a broker. Its actor `keeper` has a durable mailbox, and writes for each value
whether it is unchanged to FOLDER/kept; with the MODE `hold` it handles none. `echo` replies with its message.
It prints `ready DEFAULT_PORT` when it is ready.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, ClassVar

from recado.actors import Actor, ActorSystem, DurableMailboxes, Message
from recado.actors.remote import AmqpSettings, AmqpTransport, TcpTransport
from tests.actors.values import EXAMPLES, Ask, Bid, Echoing, alike

NAME = "values"


class Item(Message[bool]):
    """One of EXAMPLES, and a union of messages."""

    manifest: ClassVar[str] = "values.Item"  # here the module is __main__

    name: str
    value: Any
    quote: Bid | Ask


class Stored(Message[int]):
    """How many items are in the durable mailbox, on disk."""

    manifest: ClassVar[str] = "values.Stored"


def quote_of(name: str) -> Bid | Ask:
    return Bid(1) if len(name) % 2 else Ask(2)


def is_as_it_was(item: Item) -> bool:
    return alike(item.value, EXAMPLES[item.name]) and alike(item.quote, quote_of(item.name))


class Keeper(Actor[Item]):
    def __init__(self, file: int, hold: bool) -> None:
        self._file = file
        self._hold = hold

    async def receive(self, message: Item) -> None:
        if self._hold:
            await asyncio.Event().wait()
        os.write(self._file, f"{message.name}:{is_as_it_was(message)}\n".encode())


class Counting(Actor[Stored]):
    def __init__(self, boxes: DurableMailboxes) -> None:
        self._boxes = boxes

    async def receive(self, message: Stored) -> None:
        loop = asyncio.get_running_loop()
        safe: asyncio.Future[None] = loop.create_future()
        count = self._boxes.pending_counts().get("keeper", 0)
        self._boxes._journal.when_synced(lambda _: loop.call_soon_threadsafe(safe.set_result, None))
        await safe
        self.reply(count)


async def live(where: str, folder: Path, mode: str) -> None:
    transport = (
        TcpTransport("127.0.0.1:0")
        if where == "tcp"
        else AmqpTransport(where, AmqpSettings(connect_timeout=20))
    )
    file = os.open(folder / "kept", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with ActorSystem(NAME, transport=transport) as system:
        boxes = DurableMailboxes(system, folder / "mail")
        keeper = boxes.mailbox("keeper", attempts_max=10)
        await system.spawn(lambda: Keeper(file, mode == "hold"), name="keeper", mailbox=keeper)
        await system.spawn(Echoing, name="echo")
        await system.spawn(lambda: Counting(boxes), name="counting")
        port = transport.address[1] if isinstance(transport, TcpTransport) else 0
        sys.stdout.write(f"ready {port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
