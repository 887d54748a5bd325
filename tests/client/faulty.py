"""A proxy between client and broker that can cut or stall connections and drop data of the broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from recado.client.parameters import ConnectionParameters

HOST = "127.0.0.1"


class Faulty:
    def __init__(self, port: int) -> None:
        self.port_behind = port
        self.accepted = 0
        self.swallows = False  # drop data of the broker, forward data of the client
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, HOST, 0)

    @property
    def address(self) -> ConnectionParameters:
        port: int = self._server.sockets[0].getsockname()[1]
        return ConnectionParameters(host=HOST, port=port, heartbeat=1, connection_timeout=2.0)

    def cut(self) -> None:
        """Reset all connections; new ones may come at once."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Stop forwarding without closing the sockets."""
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        accepting = asyncio.current_task()
        assert accepting is not None
        self._tasks.add(accepting)  # `stop` must not leave it connecting
        accepting.add_done_callback(self._tasks.discard)
        try:
            there, back = await asyncio.open_connection(HOST, self.port_behind)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(back)
        for source, target, from_broker in ((reader, back, False), (there, writer, True)):
            task = asyncio.create_task(self._pump(source, target, from_broker))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, from_broker: bool
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self._flows.wait()
                if not (from_broker and self.swallows):
                    target.write(data)
                    await target.drain()
        target.transport.abort()
        self._writers.discard(target)


@asynccontextmanager
async def faulty_wire(port: int) -> AsyncIterator[Faulty]:
    wire = Faulty(port)
    await wire.start()
    try:
        yield wire
    finally:
        await wire.stop()
