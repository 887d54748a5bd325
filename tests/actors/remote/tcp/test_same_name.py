"""Two nodes of one name over TCP: the later one replaces the earlier one, which is notified at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from recado.actors import Actor, ActorRef, ActorSystem, Message
from recado.actors.remote.errors import (
    LinkLostError,
    MessageRefusedError,
    RefusalReason,
    RemoteError,
)
from recado.actors.remote.events import NodeReplaced
from recado.actors.remote.node import Node
from recado.actors.remote.tcp import TcpTransport
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Ack, Book, Log, Place, Silence, actor_of, until

SECONDS = 30  # for waits that must not end by a timeout


class Take(Message[int]):
    number: int


class Door(Actor[Take]):
    """It answers each message when it is opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.came: list[int] = []

    async def receive(self, message: Take) -> None:
        self.came.append(message.number)
        await self.opened.wait()
        self.reply(message.number)


@asynccontextmanager
async def server(**where: Any) -> AsyncIterator[tuple[ActorSystem, str]]:
    tcp = TcpTransport("127.0.0.1:0", **where)
    async with ActorSystem("server", transport=tcp) as system:
        await system.spawn(Book, name="book")
        host, port = tcp.address
        yield system, f"{host}:{port}"


def guest(address: str) -> ActorSystem:
    return ActorSystem("guest", transport=TcpTransport(nodes={"server": address}))


def book(system: ActorSystem) -> ActorRef[Any]:
    ref: ActorRef[Any] = system.actor("book", node="server")
    return ref


@in_a_loop
async def test_the_later_one_replaces_the_earlier(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as (system, address), guest(address) as first, guest(address) as second:
        door = actor_of(system, await system.spawn(Door, name="door"))
        assert isinstance(door, Door)
        told: list[object] = []
        first._listeners.append(told.append)
        there = [client.actor("door", Door, node="server") for client in (first, second)]
        caught = there[0].ask_future(Take(1), SECONDS)
        await until(lambda: door.came == [1])
        kept = there[1].ask_future(Take(2), SECONDS)
        with pytest.raises(
            MessageRefusedError, match="another node named guest"
        ) as refused:  # the door is shut
            await caught
        assert refused.value.reason is RefusalReason.REPLACED
        with pytest.raises(MessageRefusedError):  # on the connection of before, or on the next
            await there[0].ask(Take(3), SECONDS)
        assert told == [NodeReplaced("server")]
        door.opened.set()
        assert await kept == 2
        for number in range(3):
            with pytest.raises(MessageRefusedError, match="replaced: another node named guest"):
                await there[0].ask(Take(number), SECONDS)
            assert await there[1].ask(Take(number), SECONDS) == number
        assert second.dead_letter_count == 0
        lines = [
            record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
        ]
        assert any(line.startswith("node replaced") for line in lines)  # the server's
        assert any(line.startswith("replaced by another node") for line in lines)  # the first's


@in_a_loop
async def test_many_refused_asks_do_not_close_the_connection() -> None:
    async with server() as (_, address), guest(address) as first, guest(address) as second:
        await book(first).ask(Place(1), SECONDS)
        await book(second).ask(Place(2), SECONDS)
        for _ in range(200):
            with pytest.raises(MessageRefusedError) as refused:
                await book(first).ask(Place(3), SECONDS)
            assert refused.value.reason is RefusalReason.REPLACED


@in_a_loop
async def test_who_was_cut_off_when_it_was_replaced_is_refused_when_it_is_back() -> None:
    async with server() as (system, address), guest(address) as first, guest(address) as second:
        await book(first).ask(Place(1), SECONDS)
        transport = Node.of(system).transport
        assert isinstance(transport, TcpTransport)
        [accepted] = transport._inbound_links
        assert accepted.connection is not None
        accepted.connection.abort("a test")
        await until(lambda: not transport._inbound_links)
        await book(second).ask(Place(2), SECONDS)
        with pytest.raises(RemoteError):  # Cut, if the loss is noticed only now
            await book(first).ask(Place(3), SECONDS)
        with pytest.raises(MessageRefusedError):
            await book(first).ask(Place(4), SECONDS)
        assert await book(second).ask(Place(5), SECONDS) == Ack(5)


@in_a_loop
async def test_what_the_earlier_one_was_asked_ends() -> None:
    async with server() as (system, address), guest(address) as first:
        await first.spawn(Book, name="book")
        await book(first).ask(Place(1), SECONDS)
        asking = system.actor("book", node="guest").ask_future(Silence(), SECONDS)
        async with guest(address) as second:
            await book(second).ask(Place(2), SECONDS)
            with pytest.raises(LinkLostError, match="replaced"):
                await asking


@in_a_loop
async def test_what_a_client_sent_before_its_next_life_arrives() -> None:
    """The server reads it late: after the first frame of the next incarnation."""
    many = 500
    async with server() as (system, address):
        transport = Node.of(system).transport
        assert isinstance(transport, TcpTransport)
        async with guest(address) as first:
            await book(first).ask(Place(0), SECONDS)
            [accepted] = transport._inbound_links
            accepted.pause_reading()
            for number in range(1, many):
                book(first).tell(Place(number))
        async with guest(address) as second:
            assert await book(second).ask(Place(many), SECONDS) == Ack(many)
            accepted.resume_reading()
            await until(lambda: accepted not in transport._inbound_links)
            placed = await book(second).ask(Log(), SECONDS)
            assert placed == [0, many, *range(1, many)]


@in_a_loop
async def test_nodes_that_stand_in_for_each_other_at_one_address_are_heard_in_turns() -> None:
    calling = TcpTransport(nodes={})
    async with (
        ActorSystem("guest", transport=calling) as client,
        server() as (first, first_address),
        server() as (second, second_address),
    ):
        for number, (system, address) in enumerate(
            [(first, first_address), (second, second_address), (first, first_address)]
        ):
            calling.set_address("server", address)
            for link in calling._outbound_links.values():
                assert link.connection is not None
                link.connection.abort("a test")
                await link.connection.closed
            assert await asked_until_answered(book(client), Place(number)) == Ack(number)
            placed = actor_of(system, system.actor("book"))
            assert isinstance(placed, Book)
            assert placed.placed[-1] == number


async def asked_until_answered(ref: ActorRef[Any], message: Message[Ack]) -> Ack:
    """LinkLostError ends an ask that was sent on a connection whose loss was noticed later."""
    while True:
        try:
            return await ref.ask(message, SECONDS)
        except LinkLostError:
            continue


@in_a_loop
async def test_the_node_at_its_own_address_keeps_its_name() -> None:
    """The server has connected to it; another one of that name connects to the server."""
    listening = TcpTransport("127.0.0.1:0")
    async with ActorSystem("guest", transport=listening) as first:
        await first.spawn(Book, name="book")
        host, port = listening.address
        async with server(nodes={"guest": f"{host}:{port}"}) as (system, address):
            at_guest = system.actor("book", node="guest")
            assert await at_guest.ask(Place(1), SECONDS) == Ack(1)
            async with guest(address) as second:
                with pytest.raises(MessageRefusedError) as refused:
                    await book(second).ask(Place(2), SECONDS)
                assert refused.value.reason is RefusalReason.REPLACED
                assert await at_guest.ask(Place(3), SECONDS) == Ack(3)
