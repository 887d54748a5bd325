"""Values of every type, to a node that is killed with kill -9 while they wait in its durable mailbox.

Over TCP, and through recado and RabbitMQ: all of them arrive unchanged, as messages, in the next incarnation,
and as replies.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recado.actors import ActorRef, ActorSystem
from recado.actors.remote import (
    AmqpSettings,
    AmqpTransport,
    RemoteError,
    SerializationError,
    TcpTransport,
)
from tests.actors.remote.running import in_a_loop
from tests.actors.values import EXAMPLES, Carry, alike
from tests.feeds.io.loop import until
from workshop.peers import Server
from workshop.time_limit import scale

from .actors_values_node import NAME, Item, Stored, quote_of

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0  # seconds


@contextmanager
def node(where: str, folder: Path, mode: str) -> Iterator[int]:
    """Run one incarnation of the node, ended by kill -9; yield its port."""
    command = [sys.executable, "-m", "tests.e2e.actors_values_node", where, str(folder), mode]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as running:
        try:
            assert running.stdout is not None
            ready, port = running.stdout.readline().split()
            assert ready == b"ready"
            yield int(port)
        finally:
            running.kill()


async def ask(ref: ActorRef[Any], message: Any) -> Any:
    """Ask until the node answers: earlier asks are lost with the link."""
    async with asyncio.timeout(scale(PATIENCE)):
        while True:
            try:
                return await ref.ask(message, timeout=5.0)
            except (RemoteError, TimeoutError):
                await asyncio.sleep(0.05)


@in_a_loop
async def killed_while_they_wait(where: str, folder: Path) -> None:
    transport = (
        TcpTransport()
        if where == "tcp"
        else AmqpTransport(where, AmqpSettings(server_bridge=False))
    )
    kept = folder / "kept"
    async with ActorSystem("sender", transport=transport) as system:
        keeper, echo, counting = (
            system.actor(name, node=NAME) for name in ("keeper", "echo", "counting")
        )
        with node(where, folder, "hold") as port:
            if isinstance(transport, TcpTransport):
                transport.set_address(NAME, f"127.0.0.1:{port}")
            for name, value in EXAMPLES.items():
                await keeper.tell_wait(Item(name, value, quote_of(name)))
            with pytest.raises(SerializationError, match=r"Item\.value\[0\]: object"):
                await keeper.tell_wait(Item("odd", [object()], quote_of("odd")))
            async with asyncio.timeout(scale(PATIENCE)):
                while await ask(counting, Stored()) < len(EXAMPLES):
                    pass
            for value in EXAMPLES.values():
                assert alike(await ask(echo, Carry(value)), value)
        assert kept.read_text() == ""
        with node(where, folder, "handle") as port:
            if isinstance(transport, TcpTransport):
                transport.set_address(NAME, f"127.0.0.1:{port}")
            await until(lambda: kept.read_text().count("\n") >= len(EXAMPLES))
            assert alike(await ask(echo, Carry(EXAMPLES)), EXAMPLES)
    assert kept.read_text().splitlines() == [f"{name}:True" for name in EXAMPLES]


def test_over_tcp(tmp_path: Path) -> None:
    killed_while_they_wait("tcp", tmp_path)


def test_through_a_broker(server: Server, tmp_path: Path) -> None:
    killed_while_they_wait(server.url, tmp_path)
