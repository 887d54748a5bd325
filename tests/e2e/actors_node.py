"""A node as a process: `python -m tests.e2e.actors_node server|client URL NAME FOLDER STORAGE`.

URL is that of a broker, or `tcp://host:port`, where the server listens.

A server has a ledger and a gate with durable mailboxes, and a calculator, and creates counters for other nodes;
SIGTERM closes it in order. A client tells the ledger numbers until it is killed. Both print `ready` when they
are.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from functools import partial
from pathlib import Path

from recado.actors import ActorSystem
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport, Storage
from recado.actors.remote.node import Node
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.transport import Transport

from .actors_cast import Calculator, Counter, Gate, Ledger, Note

TCP = "tcp://"


async def serve(url: str, name: str, folder: Path, storage: Storage) -> None:
    async with ActorSystem(name, transport=listening(url, storage)) as system:
        boxes = DurableMailboxes(system, folder / "mail")
        ledger = partial(Ledger, folder / "ledger")
        await system.spawn(ledger, name="ledger", mailbox=boxes.mailbox("ledger"))
        gate = partial(Gate, folder)
        await system.spawn(gate, name="gate", mailbox=boxes.mailbox("gate"))
        await system.spawn(Calculator, name="calculator")
        Node.of(system).creation.offer(Counter)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        say_ready()
        await ended.wait()


async def tell(url: str, name: str, folder: Path, storage: Storage) -> None:
    lives = folder / "lives"
    life = lives.stat().st_size if lives.exists() else 0
    with lives.open("ab") as file:
        file.write(b".")
    async with ActorSystem("teller", transport=calling(url, name, storage)) as system:
        ledger = system.actor("ledger", Ledger, node=name)
        say_ready()
        number = 0
        while True:
            for _ in range(10):
                ledger.tell(Note(life, number))
                number += 1
            # An answer shows that the ledger keeps up.
            await ledger.ask(Note(life, number), timeout=30.0)
            number += 1


def listening(url: str, storage: Storage) -> Transport:
    if url.startswith(TCP):
        return TcpTransport(url.removeprefix(TCP))
    return AmqpTransport(url, AmqpSettings(storage=storage, connect_timeout=20.0))


def calling(url: str, name: str, storage: Storage) -> Transport:
    """To the server of this name."""
    if url.startswith(TCP):
        return TcpTransport(nodes={name: url.removeprefix(TCP)})
    return AmqpTransport(url, AmqpSettings(storage=storage, server_bridge=False))


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    role, where, who, place, policy = sys.argv[1:]
    play = serve if role == "server" else tell
    asyncio.run(play(where, who, Path(place), Storage(policy)))
