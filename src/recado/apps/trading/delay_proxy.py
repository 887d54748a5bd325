"""A TCP proxy that adds latency: bytes that arrive on one side leave on the other after a delay.

Each chunk has its own departure time, so the latency does not limit the rate: many chunks are in flight at a
time. The end of stream of one side is forwarded after the same delay; a connection that breaks is closed on
both sides at once. The data in flight is limited by memory only.

The loop must wake up precisely: asyncio's default selector rounds a delay up to whole milliseconds.
`precise_loop` uses `select`, which has a resolution of microseconds.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

HOST: Final = "127.0.0.1"
READ_BYTES: Final = 256 * 1024


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return a loop whose timers are precise to about 60 µs, for a few hundred connections at most."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class DelayLine:
    """One direction of a connection: chunks with the times at which they are due."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay: float, on_eof: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._delay = delay
        self._on_eof = on_eof
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.WriteTransport | None = None

    def connect(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._schedule()

    def put(self, data: bytes) -> None:
        """Append a chunk; b"" is the end of the stream."""
        self._chunks.append((self._loop.time() + self._delay, data))
        self._schedule()

    def close(self) -> None:
        self._chunks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    def _schedule(self) -> None:
        if self._timer is None and self._chunks and self._transport is not None:
            self._timer = self._loop.call_at(self._chunks[0][0], self._emit)

    def _emit(self) -> None:
        self._timer = None
        now = self._loop.time()
        assert self._transport is not None
        while self._chunks and self._chunks[0][0] <= now:
            data = self._chunks.popleft()[1]
            if data:
                self._transport.write(data)
            else:
                self._transport.write_eof()
                self._on_eof()
        self._schedule()


class ProxyProtocol(asyncio.BufferedProtocol):
    """The protocol of one side of a connection: reads into a delay line."""

    def __init__(self, delay_line: DelayLine, on_lost: Callable[[], None]) -> None:
        self._delay_line = delay_line
        self._on_lost = on_lost
        self._buffer = bytearray(READ_BYTES)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=1 << 30)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._delay_line.put(bytes(memoryview(self._buffer)[:nbytes]))

    def eof_received(self) -> bool:
        self._delay_line.put(b"")
        return True  # keep the other direction open

    def connection_lost(self, error: Exception | None) -> None:
        self._on_lost()


class DelayProxy:
    """Listens, and connects every client with the target address. Created by `delay_proxy`."""

    def __init__(self, host: str, port: int, one_way_delay: float) -> None:
        self._target = host, port
        self._one_way_delay = one_way_delay
        self._connections: set[ProxiedConnection] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, HOST, 0)

    def _accept(self) -> ProxyProtocol:
        pair = ProxiedConnection(self._target, self._one_way_delay, self._connections.discard)
        self._connections.add(pair)
        return pair.client_side

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        pairs = list(self._connections)
        for pair in pairs:
            pair.close()
        await asyncio.gather(*(pair.connect_task for pair in pairs), return_exceptions=True)
        await self._server.wait_closed()


class ProxiedConnection:
    """An accepted connection, and the connection to the target that was opened for it."""

    def __init__(
        self,
        target: tuple[str, int],
        one_way_delay: float,
        on_closed: Callable[[ProxiedConnection], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._to_target = DelayLine(loop, one_way_delay, self._direction_ended)
        self._to_client = DelayLine(loop, one_way_delay, self._direction_ended)
        self._open_directions = 2
        self._on_closed = on_closed
        self._closed = False
        self.client_side = ProxyProtocol(self._to_target, self.close)
        self._target_side = ProxyProtocol(self._to_client, self.close)
        self.connect_task = loop.create_task(self._connect(*target))

    async def _connect(self, host: str, port: int) -> None:
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self._target_side, host, port
            )
        except OSError:
            self.close()
            return
        assert self.client_side.transport is not None
        assert self._target_side.transport is not None
        if self._closed:  # the client has disconnected meanwhile
            self._target_side.transport.abort()
            return
        self._to_target.connect(self._target_side.transport)
        self._to_client.connect(self.client_side.transport)

    def _direction_ended(self) -> None:
        """Count a direction that has ended; close both transports after the second one."""
        self._open_directions -= 1
        if not self._open_directions:
            for end in (self.client_side, self._target_side):
                assert end.transport is not None
                end.transport.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._on_closed(self)
        for delay in (self._to_target, self._to_client):
            delay.close()
        for end in (self.client_side, self._target_side):
            if end.transport is not None:
                end.transport.abort()


@asynccontextmanager
async def delay_proxy(host: str, port: int, round_trip: float) -> AsyncIterator[DelayProxy]:
    """Run a proxy to an address that makes round trips `round_trip` seconds longer, half of it in each
    direction."""
    proxy = DelayProxy(host, port, round_trip / 2)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
