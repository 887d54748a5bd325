"""Asks that wait in a durable mailbox: a later incarnation of the node replies to an asker that still waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

import recado
from recado.actors.actor import Actor
from recado.actors.durable_mailbox.journal import MailboxJournal, MessageStored
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.errors import ActorStoppedError
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.actors.remote.errors import LinkLostError, NoRouteError
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.remote_ref import DISCARD_REPLY
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.transport import Transport
from recado.actors.remote_port import Asker
from recado.actors.system import ActorSystem
from recado.journal.disk import Disk, MemoryDisk
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import until
from tests.actors.values import EXAMPLES, Carry, alike

SECONDS = 30  # for an ask that must be answered


class Double(Message[int]):
    number: int


class Leave(Message[None]):
    pass


class Divide(Message[int]):
    by: int


class Clerk(Actor[Double | Leave | Divide | Carry]):
    """`Leave` stops it: what is behind that in its mailbox waits for the next one."""

    def receive(self, message: Double | Leave | Divide | Carry) -> None:
        match message:
            case Double(number):
                self.reply(2 * number)
            case Divide(by):
                self.reply(1 // by)
            case Carry(value):
                self.reply(value)
            case Leave():
                self.stop()


class World:
    """Where a server and its client find each other, in several incarnations."""

    def __init__(self, kind: str, url: str = "") -> None:
        self._kind = kind
        self._url = url
        self._hub = MemoryNetwork(durable=True)

    def server(self) -> Transport:
        return AmqpTransport(self._url) if self._url else MemoryTransport(self._hub)

    def client(self) -> Transport:
        if not self._url:
            return MemoryTransport(self._hub)
        return AmqpTransport(self._url, AmqpSettings(server_bridge=self._kind == "amqp, serving"))


@asynccontextmanager
async def world(kind: str) -> AsyncIterator[World]:
    if kind == "memory":
        yield World(kind)
        return
    async with recado.Broker() as broker:
        yield World(kind, broker.url)


@asynccontextmanager
async def office(
    transport: Transport, disk: Disk, *, attempts: int = 5, options: RemoteOptions | None = None
) -> AsyncIterator[tuple[ActorSystem, DurableMailboxes]]:
    async with ActorSystem("server", transport=transport, options=options) as system:
        boxes = DurableMailboxes(system, disk)
        await system.spawn(
            Clerk, name="clerk", mailbox=boxes.mailbox("clerk", attempts_max=attempts)
        )
        yield system, boxes


async def left_waiting(boxes: DurableMailboxes, count: int) -> None:
    """Until the clerk has left, with so many messages in its mailbox."""
    await until(lambda: not boxes._open_mailboxes and boxes.pending_counts() == {"clerk": count})


def clerk_of(client: ActorSystem) -> ActorRef[Double | Leave | Divide | Carry]:
    return client.actor("clerk", Clerk, node="server")


KINDS = ["amqp", "amqp, serving", "memory"]


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_the_next_life_of_the_node_answers(kind: str) -> None:
    disk = MemoryDisk()
    async with world(kind) as there, ActorSystem("client", transport=there.client()) as client:
        clerk = clerk_of(client)
        async with office(there.server(), disk) as (_, boxes):
            clerk.tell(Leave())
            asks = [clerk.ask_future(Double(number), SECONDS) for number in (1, 2)]
            failing = clerk.ask_future(Divide(0), SECONDS)
            await left_waiting(boxes, 3)
        async with office(there.server(), disk):
            assert await asyncio.gather(*asks) == [2, 4]
            with pytest.raises(ZeroDivisionError):
                await failing


@in_a_loop
async def test_answers_of_the_next_life_arrive_as_they_were() -> None:
    disk = MemoryDisk()
    async with world("amqp") as there, ActorSystem("client", transport=there.client()) as client:
        clerk = clerk_of(client)
        async with office(there.server(), disk) as (_, boxes):
            clerk.tell(Leave())
            asks = [clerk.ask_future(Carry(value), SECONDS) for value in EXAMPLES.values()]
            await left_waiting(boxes, len(EXAMPLES))
        async with office(there.server(), disk):
            for ask, value in zip(asks, EXAMPLES.values(), strict=True):
                assert alike(await ask, value)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_another_life_of_the_asker_is_not_answered(kind: str) -> None:
    """Its asks have other numbers; nothing in it is completed, refused or fails."""
    disk = MemoryDisk()
    async with world(kind) as there:
        async with office(there.server(), disk) as (_, boxes):
            async with ActorSystem("client", transport=there.client()) as client:
                clerk_of(client).tell(Leave())
                lost = clerk_of(client).ask_future(Double(1), SECONDS)
                await left_waiting(boxes, 1)
            assert lost.exception() is not None
        async with (
            office(there.server(), disk) as (server, boxes),
            ActorSystem("client", transport=there.client()) as client,
        ):
            await until(lambda: boxes.pending_counts() == {})
            assert await clerk_of(client).ask(Double(7), SECONDS) == 14
            assert client.dead_letter_count == server.dead_letter_count == 0


@in_a_loop
async def test_on_tcp_the_ask_ends_with_the_connection() -> None:
    """R2: the asker cannot know whether there is a next incarnation; the message is handled in it all the same."""
    disk = MemoryDisk()
    listening = TcpTransport("127.0.0.1:0")
    calling = TcpTransport(nodes={})
    async with ActorSystem("client", transport=calling) as client:
        async with office(listening, disk) as (_, boxes):
            host, port = listening.address
            calling.set_address("server", f"{host}:{port}")
            clerk_of(client).tell(Leave())
            asking = clerk_of(client).ask_future(Double(1), SECONDS)
            await left_waiting(boxes, 1)
        with pytest.raises(LinkLostError):
            await asking
        async with office(TcpTransport(f"{host}:{port}"), disk) as (_, boxes):
            await until(lambda: boxes.pending_counts() == {})
            assert await clerk_of(client).ask(Double(7), SECONDS) == 14


@in_a_loop
async def test_who_waits_for_what_is_not_attempted_any_more_is_told() -> None:
    disk = MemoryDisk()
    async with (
        world("memory") as there,
        ActorSystem("client", transport=there.client()) as client,
    ):
        async with office(there.server(), disk) as (_, boxes):
            clerk_of(client).tell(Leave())
            asking = clerk_of(client).ask_future(Double(1), SECONDS)
            await left_waiting(boxes, 1)
            [(entry, _)] = boxes._journal.pending_of("clerk")
            for _ in range(3):  # as incarnations that ended in the midst of the handler
                boxes._journal.record_attempt(entry)
        async with office(there.server(), disk, attempts=3) as (system, _):
            with pytest.raises(ActorStoppedError, match="3 attempts"):
                await asking
            await until(lambda: system.dead_letter_count == 1)


@in_a_loop
async def test_who_asked_in_the_same_process_is_answered_by_the_next_actor() -> None:
    async with ActorSystem("server") as system:
        boxes = DurableMailboxes(system, MemoryDisk())
        first = await system.spawn(Clerk, name="clerk", mailbox=boxes.mailbox("clerk"))
        first.tell(Leave())
        asking = first.ask_future(Double(4), SECONDS)
        await left_waiting(boxes, 1)
        later = first.ask_future(Double(5), SECONDS)
        await system.spawn(Clerk, name="clerk", mailbox=boxes.mailbox("clerk"))
        assert (await asking, await later) == (8, 10)


class Short(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """A record of a message as it was written before it said who asked."""

    number: int
    box: str
    origin: tuple[bytes, int] | None
    attempts: int
    sender: str
    asked: bool
    format_id: int
    manifest: str
    body: bytes


@in_a_loop
async def test_a_record_that_does_not_say_who_asked_is_read() -> None:
    disk = MemoryDisk()
    async with ActorSystem("server") as system:
        boxes = DurableMailboxes(system, disk)
        format_id, manifest, body = boxes._serializers.serialize(Double(1))
    short = Short(1, "clerk", (b"x" * 16, 1), 0, "", True, format_id, manifest, body)
    mailbox_journal = MailboxJournal(disk)
    mailbox_journal._journal.append(msgspec.msgpack.encode(short))
    mailbox_journal.close()
    async with office(MemoryTransport(MemoryNetwork()), disk) as (system, boxes):
        await until(lambda: boxes.pending_counts() == {})
        assert system.dead_letter_count == 0
        assert await system.actor("clerk", Clerk).ask(Double(2), SECONDS) == 4


def test_a_record_that_says_who_asked_is_read_by_the_last_version() -> None:
    record = MessageStored(1, "clerk", None, 0, "", True, 0, "m", b"", Asker("n", "", b"x" * 16, 7))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Short).asked


@in_a_loop
async def test_a_stranger_stays_one() -> None:
    """R5: on an untrusted node what the clerk does not know is no failure of it, in a later incarnation either."""
    disk = MemoryDisk()
    async with (
        world("memory") as there,
        ActorSystem("client", transport=there.client()) as client,
    ):
        untrusted = RemoteOptions(untrusted=True)
        async with office(there.server(), disk, options=untrusted) as (_, boxes):
            clerk: ActorRef[object] = client.actor("clerk", node="server")
            clerk.tell(Leave())
            clerk.tell(Unknown())
            asking = clerk.ask_future(Unknown(), SECONDS)
            await left_waiting(boxes, 2)
        async with office(there.server(), disk, options=untrusted) as (system, _):
            with pytest.raises(Exception, match="Unknown"):
                await asking
            assert await clerk.ask(Double(1), SECONDS) == 2
            assert [cell.restarts for cell in system.registry.cells()] == [0]
            assert Node.of(system).options.untrusted


class Unknown(Message[int]):
    pass


@in_a_loop
async def test_only_who_connects_by_itself_is_waited_for() -> None:
    asker = Asker("client", "client", b"x" * 16, 1)
    for transport in (TcpTransport(), MemoryTransport(MemoryNetwork())):
        async with ActorSystem("server", transport=transport) as system:
            with pytest.raises(NoRouteError):
                transport.link_to_client("client")
            reply = Node.of(system).restore_reply(asker)
            assert reply is not None
            reply.complete(1)  # which reaches nobody, and harms nobody
    async with recado.Broker() as broker:
        quiet = AmqpTransport(broker.url, AmqpSettings(server_bridge=False))
        async with ActorSystem("server", transport=quiet) as system:
            with pytest.raises(NoRouteError):
                quiet.link_to_client("client")


@in_a_loop
async def test_an_ask_of_one_node_too_many_is_not_answered() -> None:
    async with ActorSystem("server", transport=MemoryTransport(MemoryNetwork())) as system:
        node = Node.of(system)
        node.peer_table._max_peers = 0
        reply = node.restore_reply(Asker("client", "client", b"x" * 16, 1))
        assert reply is DISCARD_REPLY
