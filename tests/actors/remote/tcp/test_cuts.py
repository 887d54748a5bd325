"""A connection that is cut repeatedly, within frames: asks end, answers are the right ones, nothing is
duplicated."""

from __future__ import annotations

import asyncio
import contextlib
import random
from itertools import count

import pytest

from recado.actors import ActorSystem
from recado.actors.remote.errors import RemoteError
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.tcp.transport import TcpSettings
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Ack, Book, Log, Place

OPTIONS = RemoteOptions(cookie="secret", require_cookie=True)


class Cutter:
    """A proxy that relays so many bytes in either direction, and then closes the connection."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._port = port
        self._chance = chance
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0
        self.sharp = True

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        left = [self._chance.randrange(3000) if self.sharp else 1 << 40]
        pipes = [self._pipe(reader, back, left), self._pipe(there, writer, left)]
        tasks = [asyncio.create_task(pipe) for pipe in pipes]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self.cuts += 1
        for end in (writer, back):
            end.transport.abort()

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data[: left[0]])
                left[0] -= len(data)
                if left[0] <= 0:
                    await writer.drain()
                    return

    async def close(self) -> None:
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()


@pytest.mark.searching
@pytest.mark.parametrize("seed", range(3))
@in_a_loop
async def test_asks_end_and_answers_fit_whatever_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    listening = TcpTransport("127.0.0.1:0")
    async with ActorSystem("server", transport=listening, options=OPTIONS) as server:
        here = await server.spawn(Book, name="book")
        cutter = Cutter(listening.address[1], chance)
        settings = TcpSettings(retry_max=0.01)
        calling = TcpTransport(nodes={"server": await cutter.open()}, settings=settings)
        async with ActorSystem("client", transport=calling, options=OPTIONS) as client:
            book = client.actor("book", node="server")
            answered: list[int] = []
            failed: list[int] = []

            async def ask(order: int) -> None:
                try:
                    assert await book.ask(Place(order), timeout=10) == Ack(order)
                    answered.append(order)
                except (RemoteError, TimeoutError):
                    failed.append(order)

            for first in range(0, 400, 8):
                await asyncio.gather(*(ask(order) for order in range(first, first + 8)))
            assert cutter.cuts > 3
            assert failed
            assert answered
            cutter.sharp = False
            async with asyncio.timeout(10):
                for order in count(400):  # it heals when it is let
                    failed.clear()
                    await ask(order)
                    if not failed:
                        break
            placed = await here.ask(Log())
            assert len(set(placed)) == len(placed)  # at most once
            assert set(answered) <= set(placed)
            assert placed == sorted(placed)  # in order, with gaps
        await cutter.close()
