"""A slower network, in user space: what comes in at one end comes out at the other so much later.

Each piece of bytes has its own time to come out, so a latency does not limit the rate: many are under way at a
time, as on a long wire. An end of the one side is passed on to the other after the same delay; a connection
that breaks breaks at once. What is under way is limited by memory only.

The loop has to wake up precisely: asyncio's usual one rounds a delay up to whole milliseconds, this one waits
by `select`, which counts microseconds (`precise_loop`).
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

HOST: Final = "127.0.0.1"
CHUNK: Final = 256 * 1024


def precise_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are exact to some 60 µs, for a few hundred connections at most."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class Delay:
    """One direction of a connection: bytes, and when each piece is due."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, ended: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._ended = ended
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._out: asyncio.WriteTransport | None = None

    def connect(self, out: asyncio.WriteTransport) -> None:
        self._out = out
        self._schedule()

    def put(self, data: bytes) -> None:
        """Nothing, b"", is the end."""
        self._pieces.append((self._loop.time() + self._seconds, data))
        self._schedule()

    def close(self) -> None:
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._out is not None:
            self._out.abort()

    def _schedule(self) -> None:
        if self._timer is None and self._pieces and self._out is not None:
            self._timer = self._loop.call_at(self._pieces[0][0], self._emit)

    def _emit(self) -> None:
        self._timer = None
        now = self._loop.time()
        assert self._out is not None
        while self._pieces and self._pieces[0][0] <= now:
            data = self._pieces.popleft()[1]
            if data:
                self._out.write(data)
            else:
                self._out.write_eof()
                self._ended()
        self._schedule()


class End(asyncio.BufferedProtocol):
    """One end of a connection: what it reads goes into a delay."""

    def __init__(self, away: Delay, lost: Callable[[], None]) -> None:
        self._away = away
        self._lost = lost
        self._buffer = bytearray(CHUNK)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=1 << 30)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._away.put(bytes(memoryview(self._buffer)[:nbytes]))

    def eof_received(self) -> bool:
        self._away.put(b"")
        return True  # the other direction goes on

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()


class Network:
    """Listens, and connects each who comes with the one address behind it. Made by `network`."""

    def __init__(self, host: str, port: int, one_way: float) -> None:
        self._behind = host, port
        self._one_way = one_way
        self._pairs: set[Pair] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, HOST, 0)

    def _accepted(self) -> End:
        pair = Pair(self._behind, self._one_way, self._pairs.discard)
        self._pairs.add(pair)
        return pair.near

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        pairs = list(self._pairs)
        for pair in pairs:
            pair.close()
        await asyncio.gather(*(pair.dialling for pair in pairs), return_exceptions=True)
        await self._server.wait_closed()


class Pair:
    """A connection that was accepted, and the one that was made for it."""

    def __init__(
        self, behind: tuple[str, int], one_way: float, gone: Callable[[Pair], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        self._there = Delay(loop, one_way, self._ended)
        self._back = Delay(loop, one_way, self._ended)
        self._directions = 2
        self._gone = gone
        self._closed = False
        self.near = End(self._there, self.close)
        self._far = End(self._back, self.close)
        self.dialling = loop.create_task(self._dial(*behind))

    async def _dial(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self._far, host, port)
        except OSError:
            self.close()
            return
        assert self.near.transport is not None
        assert self._far.transport is not None
        if self._closed:  # meanwhile
            self._far.transport.abort()
            return
        self._there.connect(self._far.transport)
        self._back.connect(self.near.transport)

    def _ended(self) -> None:
        """One direction is over; after the second nothing can come any more."""
        self._directions -= 1
        if not self._directions:
            for end in (self.near, self._far):
                assert end.transport is not None
                end.transport.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._gone(self)
        for delay in (self._there, self._back):
            delay.close()
        for end in (self.near, self._far):
            if end.transport is not None:
                end.transport.abort()


@asynccontextmanager
async def network(host: str, port: int, round_trip: float) -> AsyncIterator[Network]:
    """A way to an address that makes round trips so many seconds longer, half of it in each direction."""
    way = Network(host, port, round_trip / 2)
    await way.start()
    try:
        yield way
    finally:
        await way.close()
