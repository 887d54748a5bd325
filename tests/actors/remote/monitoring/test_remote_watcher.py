"""Death watch and supervision across nodes: confirmed dead, unreachable, and back again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import pytest

from recado import Broker
from recado.actors import (
    Actor,
    ActorRef,
    ActorSystem,
    ChildFailed,
    Down,
    NodeUnreachableError,
    NoSuchActorError,
    OneForOne,
    Restarted,
    Stopped,
)
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.actors.remote.events import NodeReachable, NodeUnreachable
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.peer import Peer
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.transport import Transport
from recado.actors.runtime.cell import Cell
from recado.actors.supervision.links import link, monitor, tie, unmonitor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import KINDS, Ack, Book, Fail, Place, Watcher, pair, until, watcher
from workshop.peers import free_ports

each_kind = pytest.mark.parametrize("kind", KINDS)
QUICK = RemoteOptions(heartbeat_interval=0.01, failure_timeout=0.1)


def cell(actor: Actor[Any]) -> Cell:
    return actor._cell


async def occurs(system: ActorSystem, wanted: Callable[[object], bool]) -> None:
    """Wait for an occurrence of this system."""
    happened = asyncio.Event()

    def listen(event: object) -> None:
        if wanted(event):
            happened.set()

    system._listeners.append(listen)
    async with asyncio.timeout(10):
        await happened.wait()


# ── confirmed dead ────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@in_a_loop
async def test_a_watched_actor_that_stops_is_confirmed_dead(kind: str) -> None:
    async with pair(kind) as it:
        seer = await watcher(it.client)
        book = it.server.actor("book")
        there = it.client.ref(book.address)
        monitor(cell(seer), there)
        await it.book().ask(Place(1))
        await it.server.stop(book)
        assert await seer.until(1) == [Down(there, None)]
        assert (
            len(it.at_client.remote_watcher.relations)
            == len(it.at_server.remote_watcher.relations)
            == 0
        )


@each_kind
@in_a_loop
async def test_who_was_not_there_is_confirmed_dead_at_once(kind: str) -> None:
    async with pair(kind) as it:
        seer = await watcher(it.client)
        monitor(cell(seer), it.book("nobody"))
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NoSuchActorError)


@each_kind
@in_a_loop
async def test_the_reason_of_a_death_travels(kind: str) -> None:
    async with pair(kind) as it:
        doomed = await it.server.spawn(Book, supervisor_strategy=OneForOne(0))
        there = it.client.ref(doomed.address)
        seer = await watcher(it.client)
        monitor(cell(seer), there)
        there.tell(Fail("the end"))
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert repr(down.reason) == "ValueError('the end')"


@each_kind
@in_a_loop
async def test_who_watches_no_more_hears_nothing(kind: str) -> None:
    async with pair(kind) as it:
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        unmonitor(cell(seer), it.book())
        await it.book().ask(Place(1))
        await it.server.stop_all()
        await asyncio.sleep(0)
        assert seer.heard == []
        assert len(it.at_server.remote_watcher.relations) == 0


# ── unreachable ───────────────────────────────────────────────────────────────────────────────────────────


@each_kind
@in_a_loop
async def test_a_node_that_falls_silent_is_unreachable(kind: str) -> None:
    async with pair(kind, QUICK, QUICK) as it:
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        await it.book().ask(Place(1))
        await it.silence_server()
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NodeUnreachableError)


@in_a_loop
async def test_a_node_that_answers_signs_of_life_is_not_unreachable() -> None:
    calm = RemoteOptions(heartbeat_interval=0.005, failure_timeout=5.0)
    async with pair("memory", calm, calm) as it:
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        peer = it.at_client.peer_table.peer("server")
        peer.last_heard -= 4.0  # nearly too long ago
        before = peer.last_heard
        await until(lambda: peer.last_heard > before)
        assert seer.heard == []


@in_a_loop
async def test_silence_counts_from_the_first_bond() -> None:
    async with pair("memory", QUICK, QUICK) as it:
        seer = await watcher(it.client)
        other = await it.client.spawn(Watcher)
        away = it.client.actor("book", node="nowhere")
        monitor(cell(seer), away)  # heartbeats are sent already
        peer = it.at_client.peer_table.peer("server")
        peer.last_heard -= 1000.0  # there was no relation with it for long
        above = it.client._find_cell(other.address)
        assert above is not None
        monitor(above, it.book())
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert down.ref == away
        assert isinstance(above.actor, Watcher)
        assert above.actor.heard == []


@in_a_loop
async def test_everybody_hears_that_a_node_went_and_came() -> None:
    async with pair("memory", QUICK, QUICK) as it:
        assert it.hub is not None
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        await it.book().ask(Place(1))
        lost = asyncio.create_task(
            occurs(it.client, lambda event: event == NodeUnreachable("server"))
        )
        await asyncio.sleep(0)
        it.hub.partition("client", "server")
        await lost
        found = asyncio.create_task(
            occurs(it.client, lambda event: event == NodeReachable("server"))
        )
        it.hub.heal("client", "server")
        assert await it.book().ask(Place(2)) == Ack(2)
        await found


@in_a_loop
async def test_a_short_cut_is_not_noticed_and_the_watch_goes_on() -> None:
    async with pair("memory") as it:
        assert it.hub is not None
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        await it.book().ask(Place(1))
        it.hub.partition("client", "server")
        await it.server.stop(it.server.actor("book"))  # its Down is lost
        await asyncio.sleep(0)
        assert seer.heard == []
        it.hub.heal("client", "server")
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NoSuchActorError)  # confirmed, when it could be


@in_a_loop
async def test_the_actors_of_a_node_that_began_another_life_are_confirmed_dead() -> None:
    hub = MemoryNetwork()
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        seer = await watcher(client)
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            book = client.ref((await server.spawn(Book, name="book")).address)
            hub.frame_filter = lambda sender, to, frame: True
            monitor(cell(seer), book)
            await book.ask(Place(1))
            hub.frame_filter = lambda sender, to, frame: False  # it fails silently
        hub.frame_filter = lambda sender, to, frame: True
        async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
            await server.spawn(Book, name="book")
            [down] = await seer.until(1)
            assert isinstance(down, Down)
            assert isinstance(down.reason, NoSuchActorError)


@asynccontextmanager
async def lives(kind: str) -> AsyncIterator[tuple[ActorSystem, Callable[[], ActorSystem]]]:
    """A client, and a function that starts incarnations of a server."""
    async with AsyncExitStack() as stack:
        if kind == "amqp":
            broker = await stack.enter_async_context(Broker())
            to_server: Transport = AmqpTransport(broker.url, AmqpSettings(server_bridge=False))
            make: Callable[[], Transport] = partial(AmqpTransport, broker.url)
        elif kind == "tcp":
            address = f"127.0.0.1:{free_ports(1)[0]}"
            to_server, make = (
                TcpTransport(nodes={"server": address}),
                partial(TcpTransport, address),
            )
        else:
            hub = MemoryNetwork(durable=kind == "lasting")
            to_server, make = MemoryTransport(hub), partial(MemoryTransport, hub)
        often = RemoteOptions(heartbeat_interval=0.02)
        client = ActorSystem("client", transport=to_server, options=often)
        yield (
            await stack.enter_async_context(client),
            lambda: ActorSystem("server", transport=make()),
        )


def silence(system: ActorSystem) -> None:
    """From now on it sends nothing, as if it had been killed."""

    def lose(peer: Peer, envelope: bytes) -> None:
        pass

    Node.of(system).peer_table.send = lose  # type: ignore[method-assign]


async def is_identified(system: ActorSystem) -> None:
    """Wait until the other node has reported the uid of the name."""
    bonds = Node.of(system).remote_watcher.relations.by_node
    await until(lambda: all(marks.uid for each in bonds.values() for marks in each.values()))


@each_kind
@in_a_loop
async def test_a_watch_by_name_ends_with_the_life_of_the_node(kind: str) -> None:
    """Also if the next incarnation has an actor of the same name, long before the failure timeout."""
    async with lives(kind) as (client, server):
        seer = await watcher(client)
        book = client.actor("book", node="server")
        async with server() as first:
            await first.spawn(Book, name="book")
            await book.ask(Place(1))
            monitor(cell(seer), book)
            await is_identified(client)
            silence(first)
        async with server() as second:
            await second.spawn(Book, name="book")
            [down] = await seer.until(1)
            assert isinstance(down, Down)
            assert down.ref == book
            assert isinstance(down.reason, NoSuchActorError)
            # A new watch is about the new actor: neither ended by signals about the last one, nor lost.
            monitor(cell(seer), book)
            await is_identified(client)
            assert len(seer.heard) == 1
            await second.stop(second.actor("book"))
            assert (await seer.until(2))[1] == Down(book, None)


@each_kind
@in_a_loop
async def test_a_supervisor_by_name_loses_its_child_with_the_life_of_the_node(kind: str) -> None:
    async with lives(kind) as (client, server):
        async with server() as first:
            await first.spawn(Book, name="book")
            boss = await boss_of(client, client.actor("book", node="server"))
            await is_identified(client)
            silence(first)
        async with server() as second:
            await second.spawn(Book, name="book")
            await until(lambda: not boss.children)
            book = second._find_cell(second.actor("book").address)
            assert book is not None
            assert book.supervisor is None


@in_a_loop
async def test_a_watch_by_name_is_not_passed_on_to_the_next_of_that_name() -> None:
    """In the same incarnation of the node: the signal of the death was lost, and the name was reused."""
    async with pair("memory") as it:
        assert it.hub is not None
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        await is_identified(it.client)
        it.hub.partition("client", "server")
        await it.server.stop(it.server.actor("book"))
        await it.server.spawn(Book, name="book")
        it.hub.heal("client", "server")
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NoSuchActorError)
        book = it.server._find_cell(it.server.actor("book").address)
        assert book is not None
        assert not book.ensure_links().watchers


@each_kind
@in_a_loop
async def test_a_watch_may_be_the_first_contact_with_the_next_life_of_a_node(kind: str) -> None:
    """The node was known, was restarted, and has sent nothing since: its actor is not dead because of that."""
    async with lives(kind) as (client, server):
        seer = await watcher(client)
        book = client.actor("book", node="server")
        async with server() as first:
            await first.spawn(Book, name="book")
            await book.ask(Place(1))
        link_there = Node.of(client).peer_table.peers["server"].link
        assert link_there is not None
        if kind == "tcp":
            await until(lambda: not link_there.is_up)
        async with server() as second:
            await second.spawn(Book, name="book")
            await until(lambda: link_there.is_up)
            await asyncio.sleep(0)  # links in memory report that they are restored in the next turn
            boss = await boss_of(client, book)
            monitor(cell(seer), book)
            await is_identified(client)
            assert await book.ask(Place(2)) == Ack(2)  # after all answers to the probes
            assert seer.heard == []
            assert [*boss.children] == [book]
            await second.stop(second.actor("book"))
            assert await seer.until(1) == [Down(book, None)]


@in_a_loop
async def test_a_watch_that_only_the_last_life_of_a_node_got_is_told_by_the_next() -> None:
    async with lives("memory") as (client, server):
        seer = await watcher(client)
        book = client.actor("book", node="server")
        async with server() as first:
            await first.spawn(Book, name="book")
            await book.ask(Place(1))
            silence(first)
            monitor(cell(seer), book)
            spawned = first._find_cell(first.actor("book").address)
            assert spawned is not None
            await until(lambda: bool(spawned.ensure_links().watchers))
        async with server() as second:
            await second.spawn(Book, name="book")
            [down] = await seer.until(1)
            assert isinstance(down, Down)
            assert isinstance(down.reason, NoSuchActorError)


@in_a_loop
async def test_a_watch_that_was_set_before_the_node_was_there_is_about_its_first_life() -> None:
    async with lives("tcp") as (client, server):
        seer = await watcher(client)
        book = client.actor("book", node="server")
        monitor(cell(seer), book)
        async with server() as first:
            await first.spawn(Book, name="book")
            await is_identified(client)
            assert seer.heard == []
            await first.stop(first.actor("book"))
            assert await seer.until(1) == [Down(book, None)]


@in_a_loop
async def test_another_life_of_one_is_not_another_life_of_the_other() -> None:
    hub = MemoryNetwork()
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        incarnations = set[bytes]()

        def listen(sender: str, to: str, frame: bytes) -> bool:
            incarnations.add(frame[1:17])
            return True

        hub.frame_filter = listen
        for life in range(1, 4):
            async with ActorSystem("server", transport=MemoryTransport(hub)) as server:
                await server.spawn(Book, name="book")
                for order in range(5):
                    assert await client.actor("book", node="server").ask(Place(order)) == Ack(order)
                assert len(incarnations) == 1 + life


@in_a_loop
async def test_an_unreachable_watcher_is_forgotten() -> None:
    async with pair("memory", QUICK, QUICK) as it:
        assert it.hub is not None
        seer = await watcher(it.client)
        monitor(cell(seer), it.book())
        await it.book().ask(Place(1))
        book = it.server._find_cell(it.server.actor("book").address)
        assert book is not None
        assert len(book.ensure_links().watchers) == 1
        it.hub.partition("client", "server")
        await until(lambda: not book.ensure_links().watchers)


@in_a_loop
async def test_a_watch_on_a_node_without_address_is_told_at_the_latest_by_silence() -> None:
    async with pair("memory", QUICK, QUICK) as it:
        seer = await watcher(it.client)
        monitor(cell(seer), it.client.actor("book", node="nowhere"))
        [down] = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NodeUnreachableError)


# ── supervision ───────────────────────────────────────────────────────────────────────────────────────────


class Boss(Watcher):
    supervisor_strategy: ClassVar = OneForOne(2, within=60.0)


async def boss_of(system: ActorSystem, child: ActorRef[Any]) -> Boss:
    ref: ActorRef[Any] = await system.spawn(Boss)
    above = system._find_cell(ref.address)
    assert above is not None
    link(above, child, None)
    assert isinstance(above.actor, Boss)
    return above.actor


@each_kind
@in_a_loop
async def test_a_supervisor_may_sit_on_another_node(kind: str) -> None:
    async with pair(kind) as it:
        book = it.server.actor("book")
        there = it.client.ref(book.address)
        boss = await boss_of(it.client, there)
        for _ in range(2):
            restarted = asyncio.create_task(occurs(it.server, lambda e: isinstance(e, Restarted)))
            await asyncio.sleep(0)
            there.tell(Fail("again"))
            await restarted
        assert await there.ask(Place(3)) == Ack(3)
        stopped = asyncio.create_task(occurs(it.server, lambda e: isinstance(e, Stopped)))
        await asyncio.sleep(0)
        there.tell(Fail("once too often"))
        await stopped
        [exhausted] = await boss.until(1)
        assert isinstance(exhausted, ChildFailed)
        assert repr(exhausted.reason) == "ValueError('once too often')"


@in_a_loop
async def test_who_has_a_supervisor_is_not_taken_away_by_another_node() -> None:
    async with pair() as it:
        book = it.server._find_cell(it.server.actor("book").address)
        assert book is not None
        boss = await boss_of(it.server, book.ref)
        thief = await boss_of(it.client, it.client.ref(book.ref.address))
        await until(lambda: not thief.children)
        assert book.supervisor == boss.ref
        assert not it.at_client.remote_watcher.relations.by_node
        assert not it.at_server.remote_watcher.relations.by_node


@in_a_loop
async def test_a_supervisor_hears_that_the_node_of_its_child_is_unreachable() -> None:
    async with pair("memory", QUICK, QUICK) as it:
        assert it.hub is not None
        there = it.client.ref(it.server.actor("book").address)
        boss = await boss_of(it.client, there)
        await there.ask(Place(1))
        it.hub.partition("client", "server")
        [exhausted] = await boss.until(1)
        assert isinstance(exhausted, ChildFailed)
        assert isinstance(exhausted.reason, NodeUnreachableError)
        # The child continues under its own system.
        book = it.server._find_cell(it.server.actor("book").address)
        assert book is not None
        await until(lambda: book.supervisor is None)
        assert await it.server.actor("book").ask(Place(2)) == Ack(2)


@in_a_loop
async def test_who_failed_and_whose_supervisor_is_out_of_reach_is_stopped() -> None:
    async with pair("memory", QUICK, QUICK) as it:
        assert it.hub is not None
        here = it.server.actor("book")
        await boss_of(it.client, it.client.ref(here.address))
        await it.book().ask(Place(1))
        it.hub.frame_filter = lambda sender, to, frame: False
        stopped = asyncio.create_task(occurs(it.server, lambda e: isinstance(e, Stopped)))
        await asyncio.sleep(0)
        here.tell(Fail("alone"))
        await stopped


@each_kind
@in_a_loop
async def test_actors_that_are_tied_die_together(kind: str) -> None:
    async with pair(kind) as it:
        mine: ActorRef[Any] = await it.client.spawn(Book)
        book = await it.server.spawn(Book, supervisor_strategy=OneForOne(0))
        mine_cell = it.client._find_cell(mine.address)
        assert mine_cell is not None
        tie(mine_cell, it.client.ref(book.address))
        await it.client.ref(book.address).ask(Place(1))
        ended = asyncio.create_task(
            occurs(it.client, lambda e: isinstance(e, Stopped) and e.ref == mine)
        )
        await asyncio.sleep(0)
        book.tell(Fail("both of us"))
        await ended


@each_kind
@in_a_loop
async def test_an_actor_of_another_node_can_be_stopped(kind: str) -> None:
    async with pair(kind) as it:
        stopped = asyncio.create_task(occurs(it.server, lambda e: isinstance(e, Stopped)))
        await asyncio.sleep(0)
        it.book().stop()
        await stopped


@in_a_loop
async def test_three_nodes_on_tcp_watch_each_other() -> None:
    tcps = {name: TcpTransport("127.0.0.1:0") for name in ("a", "b", "c")}
    systems = {name: ActorSystem(name, transport=tcp) for name, tcp in tcps.items()}
    for name, system in systems.items():
        await system.__aenter__()
        host, port = tcps[name].address
        for other in tcps.values():
            other.set_address(name, f"{host}:{port}")
    book = await systems["c"].spawn(Book, name="book")
    seers = [await watcher(systems[name]) for name in ("a", "b")]
    for seer in seers:
        monitor(cell(seer), seer.system.actor("book", node="c"))
        await seer.system.actor("book", node="c").ask(Place(1))
    await systems["c"].stop(book)
    for seer in seers:
        [down] = await seer.until(1)
        assert isinstance(down, Down)
    for system in systems.values():
        await system.close()
    await until(lambda: True)
