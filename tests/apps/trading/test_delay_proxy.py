"""The slower network: later by so much, in order, as fast as without it, and ends come through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from recado.apps.trading.delay_proxy import HOST, DelayProxy, delay_proxy, precise_loop

T = TypeVar("T")
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def run(work: Awaitable[T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, 30)

    with asyncio.Runner(loop_factory=precise_loop) as runner:
        return runner.run(bounded())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@asynccontextmanager
async def through(handler: Handler, round_trip: float) -> AsyncIterator[tuple[DelayProxy, Streams]]:
    """A server behind a network, and a connection to it."""
    ended: set[asyncio.Task[None]] = set()

    async def handle(*streams: *Streams) -> None:
        task = asyncio.current_task()
        assert task is not None
        ended.add(task)
        await handler(*streams)

    server = await asyncio.start_server(handle, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    async with delay_proxy(HOST, port, round_trip) as way:
        reader, writer = await asyncio.open_connection(HOST, way.port)
        try:
            yield way, (reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
    server.close()
    await asyncio.gather(*ended, return_exceptions=True)
    await server.wait_closed()


def test_a_round_trip_takes_as_much_longer() -> None:
    async def work() -> float:
        times = []
        async with through(echo, 0.002) as (_, (reader, writer)):
            for _ in range(50):
                begun = time.perf_counter()
                writer.write(b"x")
                await reader.readexactly(1)
                times.append(time.perf_counter() - begun)
        return min(times)

    # 2.3 ms where nothing else runs; a loop that rounds up to whole milliseconds would need 4.
    assert 0.002 <= run(work()) < 0.0038


def test_what_is_under_way_does_not_hold_up_what_follows() -> None:
    """16 MiB through 100 ms each way: one piece after the other, of 64 KiB, would take a minute."""
    size = 16 * 1024 * 1024

    async def work() -> float:
        async with through(echo, 0.2) as (_, (reader, writer)):
            begun = time.perf_counter()
            writer.write(bytes(size))
            received = await reader.readexactly(size)
            assert len(received) == size
            return time.perf_counter() - begun

    assert 0.2 <= run(work()) < 20.0


def test_bytes_come_in_order() -> None:
    data = b"".join(number.to_bytes(4, "big") for number in range(50_000))

    async def work() -> bytes:
        async with through(echo, 0.004) as (_, (reader, writer)):
            for start in range(0, len(data), 999):
                writer.write(data[start : start + 999])
                await asyncio.sleep(0)
            return await reader.readexactly(len(data))

    assert run(work()) == data


def test_an_end_comes_behind_all_that_was_sent_before_it() -> None:
    async def work() -> bytes:
        async with through(echo, 0.02) as (_, (reader, writer)):
            writer.write(b"all of it")
            writer.write_eof()
            return await reader.read(-1)

    assert run(work()) == b"all of it"


async def until_end(reader: asyncio.StreamReader) -> bytes:
    """What comes before the end, which may also be told as a reset."""
    try:
        return await reader.read(-1)
    except ConnectionResetError:
        return b""


def test_a_connection_that_is_closed_behind_it_ends_here() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def work() -> bytes:
        async with through(hang_up, 0.02) as (_, (reader, _)):
            return await until_end(reader)

    assert run(work()) == b""


def test_nobody_is_behind_it() -> None:
    async def work() -> bytes:
        server = await asyncio.start_server(echo, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        async with delay_proxy(HOST, port, 0.0) as way:
            reader, writer = await asyncio.open_connection(HOST, way.port)
            try:
                return await until_end(reader)
            finally:
                writer.close()

    assert run(work()) == b""
