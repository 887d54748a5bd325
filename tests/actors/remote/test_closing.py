"""Closing a node: messages that arrive meanwhile are not lost, and later ones cause no errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recado.actors import Actor, ActorRef, ActorSystem, Message
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.errors import ActorStoppedError
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.journal.disk import Disk, MemoryDisk

from .running import in_a_loop
from .shop import Ack, Book, Place, pair, until


class Lingers(Actor[Any]):
    """It holds up the end of its node until it may go."""

    def __init__(self, going: asyncio.Event, gate: asyncio.Event) -> None:
        self.going, self.gate = going, gate

    async def post_stop(self) -> None:
        self.going.set()
        await self.gate.wait()


class There(Message[None]):
    ledger: ActorRef[Any]


class Where(Message[There]):
    """Its reference."""


class Ledger(Actor[Any]):
    def __init__(self, placed: list[int], gate: asyncio.Event | None = None) -> None:
        self.placed, self.gate = placed, gate

    async def receive(self, message: Place | Where) -> None:
        if isinstance(message, Where):
            self.reply(There(self.ref))
            return
        if self.gate is not None:
            await self.gate.wait()
        self.placed.append(message.order)
        self.reply_if_asked(Ack(message.order))


async def ledger(
    system: ActorSystem, placed: list[int], disk: Disk | None, gate: asyncio.Event | None = None
) -> None:
    if disk is None:
        await system.spawn(lambda: Ledger(placed, gate), name="ledger", capacity=1)
    else:
        box = DurableMailboxes(system, disk).mailbox("ledger")
        await system.spawn(lambda: Ledger(placed, gate), name="ledger", mailbox=box)


@pytest.mark.parametrize("durable", [False, True])
@in_a_loop
async def test_a_node_that_is_closed_finds_what_came_meanwhile_in_its_next_life(
    durable: bool,
) -> None:  # I4, R9, R11
    hub, disk, placed = MemoryNetwork(durable=True), MemoryDisk() if durable else None, list[int]()
    going, gate = asyncio.Event(), asyncio.Event()
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        cold = RemoteOptions(
            warm_up=0.0
        )  # otherwise a message for a stopped actor's name would be held
        async with ActorSystem("server", transport=MemoryTransport(hub), options=cold) as server:
            await ledger(server, placed, disk)
            await server.spawn(lambda: Lingers(going, gate))
            book = client.actor("ledger", node="server")
            assert await book.ask(Place(0)) == Ack(0)
            closing = asyncio.create_task(server.close())
            await going.wait()
            for order in range(1, 10):
                book.tell(Place(order))
            asked = book.ask_future(Place(10))
            passed = asyncio.Event()
            client._loop.call_soon(client._loop.call_soon, passed.set)  # after the sent messages
            await passed.wait()
            gate.set()
            await closing
            assert server.dead_letter_count == 0
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            await ledger(server, placed, disk)
            assert await asked == Ack(10)
    assert placed == list(range(11))


@in_a_loop
async def test_a_reference_that_travelled_reaches_the_durable_mailbox_later() -> None:  # R11
    hub, disk, placed = MemoryNetwork(durable=True), MemoryDisk(), list[int]()
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        named = client.actor("ledger", node="server")
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            await ledger(server, placed, disk)
            travelled = (await named.ask(Where())).ledger
            assert travelled == server.actor("ledger")
        for order in range(1, 5):
            (travelled if order % 2 else named).tell(Place(order))
        patient = RemoteOptions(warm_up=30.0)  # however busy the machine is
        async with ActorSystem("server", transport=MemoryTransport(hub), options=patient) as server:
            of_last_life = server.ref(str(travelled))
            await until(lambda: Node.of(server).inbound.warmup.must_hold("ledger"))
            await ledger(server, placed, disk)
            assert await travelled.ask(Place(5)) == Ack(5)
            assert await of_last_life.ask(Place(6)) == Ack(6)
            await of_last_life.tell_wait(Place(7))
            await until(lambda: len(placed) == 7)
            assert server.dead_letter_count == 0
    assert placed == list(range(1, 8))


@in_a_loop
async def test_a_reference_that_travelled_reaches_nobody_else_in_the_next_life() -> None:  # R11
    hub, placed = MemoryNetwork(durable=True), list[int]()
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            await ledger(server, placed, None)
            travelled = (await client.actor("ledger", node="server").ask(Where())).ledger
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            await ledger(server, placed, None)
            with pytest.raises(ActorStoppedError):
                await travelled.ask(Place(1))
            assert server.dead_letter_count == 1
    assert placed == []


@in_a_loop
async def test_what_found_no_room_comes_to_the_next_life() -> None:  # INB4
    """It was in a mailbox, over its capacity, so the broker has it still."""
    hub, placed = MemoryNetwork(durable=True), list[int]()
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            gate = asyncio.Event()
            await ledger(server, placed, None, gate)
            book = client.actor("ledger", node="server")
            cell = server._find_cell(server.actor("ledger").address)
            assert cell is not None
            book.tell(Place(0))
            await until(lambda: cell.is_claimed)
            for order in range(1, 4):
                book.tell(Place(order))
            await until(lambda: cell.mailbox.qsize() == 3)
            server._loop.call_soon(gate.set)
        assert server.dead_letter_count == 3
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            await ledger(server, placed, None)
            assert await book.ask(Place(4)) == Ack(4)
    assert placed[0] == 0
    assert placed[-3:] == [2, 3, 4]


@pytest.mark.parametrize("kind", ["memory", "lasting"])
@in_a_loop
async def test_what_is_told_to_others_after_the_end_harms_nobody(kind: str) -> None:  # K6
    async with pair(kind) as both:
        book = both.book()
        assert await book.ask(Place(1)) == Ack(1)
        await both.client.close()
        book.tell(Place(2))
        await asyncio.to_thread(book.tell, Place(3))
        assert await both.server.actor("book", Book).ask(Place(4)) == Ack(4)


def test_a_thread_may_tell_others_when_the_loop_is_closed() -> None:  # K6
    async def live() -> Any:
        async with pair() as both:
            return both.book()

    book = asyncio.run(live())

    async def other() -> None:
        await asyncio.to_thread(book.tell, Place(1))

    asyncio.run(other())
