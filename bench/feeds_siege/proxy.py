"""A TCP proxy between the programs and the broker: each program has its own port, and can be cut off.

It runs in its own thread; `cut` and `mend` are called from any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from threading import Thread
from typing import Any, Final, Self, TypeVar

from workshop.peers import HOST

T = TypeVar("T")
CHUNK_BYTES: Final = 65536


class Proxy:
    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._writers: dict[str, set[asyncio.StreamWriter]] = {}
        self._cut: set[str] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self, name: str) -> int:
        """Open a port whose connections belong to the program of this name."""
        return self._run(self._listen(name))

    def cut(self, name: str) -> None:
        """Abort the connections of a program, and refuse new ones."""
        self._run(self._abort(name))

    def mend(self, name: str) -> None:
        self._loop.call_soon_threadsafe(self._cut.discard, name)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, name: str) -> int:
        self._writers[name] = set()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._forward(name, reader, writer)

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _abort(self, name: str) -> None:
        self._cut.add(name)
        for writer in self._writers[name]:
            writer.transport.abort()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for name in self._writers:
            await self._abort(name)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)  # their connections are gone

    async def _forward(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        mine = self._writers[name]
        mine.add(writer)
        try:
            if name in self._cut:
                return
            there, back = await asyncio.open_connection(HOST, self._broker_port)
            mine.add(back)
            try:
                if name in self._cut:
                    return
                await asyncio.gather(copy(reader, back), copy(there, writer))
            finally:
                back.transport.abort()
                mine.discard(back)
        except OSError:
            pass  # the broker is down: the program is refused, too
        finally:
            writer.transport.abort()
            mine.discard(writer)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until either side ends; then both are closed."""
    with suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()
