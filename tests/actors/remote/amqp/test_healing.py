"""Bridges whose broker is cut off, silent, restarted, or loses their queues: they are restored completely.

Accepted frames arrive, in order, and more than once only if they were not confirmed. Bridges are restored
within HEALS seconds after the broker is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import recado
from recado.actors import ActorSystem
from recado.actors.remote.amqp import (
    AmqpSettings,
    AmqpTransport,
    ConnectionSharing,
    Storage,
    transport,
)
from recado.actors.remote.errors import LinkClosedError
from recado.actors.remote.events import LinkClosed, LinkLost, LinkRestored, LinkStillDown
from recado.actors.remote.node import Node
from recado.client import Connection
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Ack, Book, Place, until
from tests.client.faulty import Faulty, faulty_wire
from workshop.peers import free_ports

from .ends import End, end, frame, frames

HEALS = 2.0


class World:
    """A server and a client, each on a wire of its own to the broker."""

    def __init__(self, server: End, client: End, wires: tuple[Faulty, Faulty]) -> None:
        self.server, self.client = server, client
        self.wires = wires
        server.answer = lambda frame: frame + b"!"
        self.link = client.transport.connect("server")
        self.sent = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self.link.post(frame(self.sent))
            self.sent += 1

    async def all_arrived(self) -> None:
        """Each frame and each answer, in order; duplicates only of unconfirmed ones."""
        expected = frames(0, self.sent)
        answers = [each + b"!" for each in expected]
        await self.server.until(lambda: len(self.server.unique) == self.sent)
        await self.client.until(lambda: len(self.client.unique) == self.sent)
        assert self.server.unique == expected
        assert self.client.unique == answers

    async def well(self) -> None:
        await self.server.until(lambda: self.server.is_well)
        await self.client.until(lambda: self.client.is_well)


@asynccontextmanager
async def world(url: str, **settings: Any) -> AsyncIterator[World]:
    port = int(url.rpartition(":")[2].partition("/")[0])
    async with (
        faulty_wire(port) as one,
        faulty_wire(port) as other,
        end(one.address, "server", **settings) as server,
        end(other.address, "client", server_bridge=False, **settings) as client,
    ):
        it = World(server, client, (one, other))
        it.send(10)
        await it.all_arrived()
        yield it


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("sharing", ConnectionSharing)
@pytest.mark.parametrize("side", [0, 1])
@in_a_loop
async def test_a_cut_loses_nothing(side: int, sharing: ConnectionSharing, persistent: bool) -> None:
    policy: dict[str, Any] = {"server_sharing": sharing, "client_sharing": sharing}
    async with (
        recado.Broker() as broker,
        world(broker.url, persistent=persistent, **policy) as it,
    ):
        for _ in range(5):
            it.send(200)
            await asyncio.sleep(0)  # some are out and some are not
            it.wires[side].cut()
            it.send(200)
            async with asyncio.timeout(HEALS):
                await it.all_arrived()
        await it.well()
        events = (it.server, it.client)[side].events
        assert events == ["lost", "healed"] * (len(events) // 2)
        told = (it.server, it.client)[side].told
        assert {type(event) for event in told} == {LinkLost, LinkRestored}


@pytest.mark.parametrize("persistent", [True, False])
@in_a_loop
async def test_what_was_not_confirmed_is_repeated(persistent: bool) -> None:
    """The broker has it, and its confirm is lost: it arrives twice, and the node drops the duplicate."""
    async with recado.Broker() as broker, world(broker.url, persistent=persistent) as it:
        it.wires[1].swallows = True
        it.send(5)
        await it.server.until(lambda: len(it.server.unique) == it.sent)
        it.wires[1].cut()
        it.wires[1].swallows = False
        await it.server.until(lambda: len(it.server.frames) >= it.sent + 5)
        await it.all_arrived()
        assert it.server.frames[-5:] == frames(it.sent - 5, it.sent)


@in_a_loop
async def test_a_silent_broker_is_noticed_and_left() -> None:
    async with recado.Broker() as broker, world(broker.url, connect_timeout=0.5) as it:
        for wire in it.wires:
            wire.stall()
        it.send(20)
        await it.client.until(lambda: "lost" in it.client.events)
        await it.server.until(lambda: "lost" in it.server.events)
        for wire in it.wires:
            wire.go_on()
        async with asyncio.timeout(HEALS):
            await it.all_arrived()


@pytest.mark.parametrize("storage", Storage)
@in_a_loop
async def test_a_broker_that_comes_back_finds_them(storage: Storage, tmp_path: Path) -> None:
    """Lost queues and bindings are declared again; waiting frames are sent."""
    (port,) = free_ports(1)
    async with recado.Broker(port=port, data=tmp_path) as broker:
        going = world(broker.url, storage=storage)
        it = await going.__aenter__()
    try:
        await it.client.until(lambda: it.client.events == ["lost"])
        await it.server.until(lambda: it.server.events == ["lost"])
        it.send(50)
        async with recado.Broker(port=port, data=tmp_path):
            async with asyncio.timeout(HEALS):
                await it.all_arrived()
                await it.well()
            await it.client.transport.close()
    finally:
        await going.__aexit__(None, None, None)


@pytest.mark.parametrize("gone", ["actor.queue.in.server", "actor.queue.out.server.client"])
@in_a_loop
async def test_a_queue_that_somebody_deletes_is_made_again(gone: str) -> None:
    async with recado.Broker() as broker, world(broker.url) as it:
        who = it.server if ".in." in gone else it.client
        async with await Connection.open(broker.url) as connection:
            channel = await connection.channel()
            await channel.delete_queue(gone)
            await who.until(lambda: who.events == ["lost", "healed"])
        it.send(10)
        await it.all_arrived()


@in_a_loop
async def test_a_node_that_is_missing_for_a_moment_is_waited_for() -> None:
    """Its queue was exclusive to the connection, and is deleted with it; frames for it wait for its return."""
    exclusive = Storage.EXCLUSIVE_AUTODELETE
    async with recado.Broker() as broker, world(broker.url, storage=exclusive) as it:
        it.wires[1].stall()
        it.wires[0].cut()
        it.wires[1].cut()
        it.send(10)
        it.wires[1].go_on()
        async with asyncio.timeout(HEALS):
            await it.all_arrived()
        assert not it.client.returned_frames


@in_a_loop
async def test_the_application_is_told_again_and_again_while_the_broker_is_away(
    tmp_path: Path,
) -> None:
    """By default reconnecting never stops: the bridges are restored after any time."""
    (port,) = free_ports(1)
    async with recado.Broker(port=port, data=tmp_path) as broker:
        going = world(broker.url, report_interval=0.05)
        it = await going.__aenter__()
    try:
        it.send(3)
        for who in (it.client, it.server):
            await who.until(lambda who=who: len(who.told) >= 4)  # type: ignore[misc]
            lost, *down = who.told
            assert isinstance(lost, LinkLost)
            seconds = []
            for event in down:
                assert isinstance(event, LinkStillDown)
                assert event.link == lost.link
                assert event.reason
                seconds.append(event.down_seconds)
            assert seconds == sorted(seconds)
            assert seconds[0] >= 0.05
        async with recado.Broker(port=port, data=tmp_path):
            await it.all_arrived()
            await it.well()
            for who in (it.client, it.server):
                assert isinstance(who.told[-1], LinkRestored)
            await it.client.transport.close()
    finally:
        await going.__aexit__(None, None, None)


@in_a_loop
async def test_a_node_that_has_given_up_its_broker_fails_by_a_clear_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node that cannot be reached must not reach other nodes: the application has to open a new one."""
    (port,) = free_ports(1)
    settings = AmqpSettings(reconnect_timeout=0.3, connect_timeout=10.0)
    async with AsyncExitStack() as stack:
        systems: dict[str, ActorSystem] = {}
        gone: dict[str, set[str]] = {"server": set(), "client": set()}
        async with recado.Broker(port=port) as broker:
            for name in gone:
                system = ActorSystem(name, transport=AmqpTransport(broker.url, settings))
                systems[name] = await stack.enter_async_context(system)
                await system.spawn(Book, name="book")
                system._listeners.append(partial(_note_gone, gone[name]))
            book = systems["client"].actor("book", Book, node="server")
            assert await book.ask(Place(1), timeout=30) == Ack(1)
        await until(lambda: len(gone["client"]) == 2 and len(gone["server"]) == 1)
        assert gone == {
            "server": {"server server"},
            "client": {"server client", "client client of server"},
        }
        async with recado.Broker(port=port):
            with pytest.raises(
                LinkClosedError, match=r"reconnect_timeout=0.3.*no reconnection within"
            ):
                await book.ask(Place(2), timeout=30)
            with pytest.raises(LinkClosedError, match=r"reconnect_timeout=0.3"):
                Node.of(systems["client"]).transport.connect("another")
        assert (
            "bridge closed: reconnect timeout (bridge=server client reconnect_timeout=0.3)"
            in caplog.text
        )


def _note_gone(gone: set[str], event: object) -> None:
    if isinstance(event, LinkClosed):
        gone.add(event.link)


@in_a_loop
async def test_the_application_is_told_when_it_takes_too_long() -> None:
    async with recado.Broker() as broker:
        going = world(broker.url, reconnect_timeout=0.5)
        it = await going.__aenter__()
    try:
        it.send(3)
        await it.client.until(lambda: it.client.events == ["lost", "gone"])
        await it.server.until(lambda: it.server.events == ["lost", "gone"])
        assert it.client.returned_frames == frames(it.sent - 3, it.sent)
        for who, name in ((it.client, "client client of server"), (it.server, "server server")):
            assert [type(event) for event in who.told] == [LinkLost, LinkClosed]
            assert {event.link for event in who.told} == {name}
        with pytest.raises(LinkClosedError, match="no reconnection within"):
            it.link.post(frame(1))
        assert it.client.transport.connect("server") is not it.link
    finally:
        await going.__aexit__(None, None, None)


@pytest.mark.parametrize("state", ["away", "silent"])
@in_a_loop
async def test_the_end_does_not_wait_long_for_a_broker_that_does_not_answer(state: str) -> None:
    async with recado.Broker() as broker:
        going = world(broker.url, connect_timeout=30.0)
        it = await going.__aenter__()
        if state == "silent":
            for wire in it.wires:
                wire.stall()
                wire.cut()
            await it.client.until(lambda: "lost" in it.client.events)
        else:
            await it.wires[0].stop()
            await it.wires[1].stop()
        it.send(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transport, "CLOSE_TIMEOUT_S", 0.05)
            async with asyncio.timeout(10):  # and not for as long as an attempt may take
                await it.client.transport.close()
                await it.server.transport.close()
        assert len(it.client.returned_frames) == 1
        await going.__aexit__(None, None, None)
