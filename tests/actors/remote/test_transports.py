"""The guarantees of every transport (transport.py), on TCP and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from recado.actors.remote.errors import LinkClosedError, NoRouteError
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.transport import Transport

from .recorder import Recorder

LIMIT = 1 << 20


class World:
    """Two nodes, of which the client knows the server."""

    def __init__(self, server: Transport, client: Transport) -> None:
        self.server, self.client = server, client
        self.at_server, self.at_client = Recorder(), Recorder()


@asynccontextmanager
async def world(kind: str) -> AsyncIterator[World]:
    if kind == "tcp":
        tcp = TcpTransport("127.0.0.1:0")
        server: Transport = tcp
        client: Transport = (client_tcp := TcpTransport())
    else:
        hub = MemoryNetwork(durable=kind == "lasting")
        server, client = MemoryTransport(hub), MemoryTransport(hub)
    it = World(server, client)
    await server.open("server", "server", LIMIT, it.at_server)
    if kind == "tcp":
        host, port = tcp.address
        client_tcp.set_address("server", f"{host}:{port}")
    await client.open("client", "client", LIMIT, it.at_client)
    try:
        yield it
    finally:
        await client.close()
        await server.close()


def frame(number: int, size: int = 40) -> bytes:
    return number.to_bytes(4) + bytes(size)


def each(test: Callable[[World], Awaitable[None]]) -> Callable[[str], None]:
    @pytest.mark.parametrize("kind", ["tcp", "memory", "lasting"])
    def run(kind: str) -> None:
        async def go() -> None:
            async with world(kind) as it:
                await test(it)

        asyncio.run(go())

    return run


@each
async def test_frames_arrive_whole_and_in_order(it: World) -> None:
    sent = [frame(number, 40 + number * 37 % 5000) for number in range(500)]
    link = it.client.connect("server")
    for each_frame in sent:
        link.post(each_frame)
    await it.at_server.until(lambda: len(it.at_server.frames) == 500)
    assert it.at_server.frames == sent


@each
async def test_answers_go_back_on_the_link_on_which_the_frame_came(it: World) -> None:
    it.at_server.answer = lambda frame: frame + b"!"
    link = it.client.connect("server")
    for number in range(10):
        link.post(frame(number))
    await it.at_client.until(lambda: len(it.at_client.frames) == 10)
    assert it.at_client.frames == [frame(number) + b"!" for number in range(10)]
    assert set(map(id, it.at_client.links)) == {id(link)}


@each
async def test_there_is_one_link_to_a_node(it: World) -> None:
    link = it.client.connect("server")
    assert it.client.connect("server") is link
    assert link.peer == "server"


@each
async def test_an_unknown_node_is_told_at_once(it: World) -> None:
    with pytest.raises(NoRouteError):
        it.client.connect("nowhere")


@each
async def test_a_receiver_is_not_called_while_its_link_is(it: World) -> None:
    it.at_server.answer = lambda frame: b"answer" * 10
    link = it.client.connect("server")
    for _ in range(3):
        before = len(it.at_client.frames)
        link.post(frame(1))
        assert len(it.at_client.frames) == before
        await it.at_client.until(lambda before=before: len(it.at_client.frames) > before)  # type: ignore[misc]


@each
async def test_the_largest_frame_passes(it: World) -> None:
    largest = bytes(range(256)) * (LIMIT // 256)
    it.client.connect("server").post(largest)
    await it.at_server.until(lambda: it.at_server.frames == [largest])


@each
async def test_a_closed_link_takes_nothing(it: World) -> None:
    link = it.client.connect("server")
    link.close()
    with pytest.raises(LinkClosedError):
        link.post(frame(1))
    with pytest.raises(LinkClosedError):
        await link.drain()
    again = it.client.connect("server")
    again.post(frame(2))
    await it.at_server.until(lambda: it.at_server.frames == [frame(2)])


@each
async def test_a_server_that_goes_is_noticed(it: World) -> None:
    link = it.client.connect("server")
    link.post(frame(1))
    await it.at_server.until(lambda: len(it.at_server.frames) == 1)
    await it.server.close()
    await it.at_client.until(lambda: it.at_client.events == ["lost"])
    await it.server.close()


@each
async def test_a_transport_can_be_closed_while_it_works(it: World) -> None:
    link = it.client.connect("server")
    for number in range(1000):
        link.post(frame(number))
    await it.client.close()
    with pytest.raises(NoRouteError):
        it.client.connect("server")


def test_what_was_not_settled_comes_to_the_next_life_of_a_lasting_node() -> None:
    async def go() -> None:
        async with world("lasting") as it:
            link = it.client.connect("server")
            link.post(frame(1))
            link.post(frame(2))
            await it.at_server.until(lambda: len(it.at_server.frames) == 2)
            settle = it.at_server.settles[0]
            assert settle is not None
            settle(True)
            await it.server.close()
            link.post(frame(3))
            await it.server.open("server", "server", LIMIT, it.at_server)
            await it.at_server.until(lambda: len(it.at_server.frames) == 4)
            assert it.at_server.frames[2:] == [frame(2), frame(3)]

    asyncio.run(go())


def test_frames_for_nobody_are_returned() -> None:
    async def go() -> None:
        async with world("memory") as it:
            link = it.client.connect("server")
            await it.server.close()
            link.post(frame(1))
            await it.at_client.until(lambda: it.at_client.returned_frames == [frame(1)])

    asyncio.run(go())


def test_what_is_severed_heals() -> None:
    async def go() -> None:
        async with world("lasting") as it:
            assert isinstance(it.client, MemoryTransport)
            hub = it.client.network
            link = it.client.connect("server")
            hub.partition("client", "server")
            link.post(frame(1))
            await it.at_client.until(lambda: it.at_client.events == ["lost"])
            assert it.at_server.frames == []
            hub.heal("client", "server")
            await it.at_server.until(lambda: it.at_server.frames == [frame(1)])
            assert it.at_client.events == ["lost", "healed"]

    asyncio.run(go())
