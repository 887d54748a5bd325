"""Messages that wait for their actor while others are settled: a durable mailbox accepts them as new, after any
number."""

from __future__ import annotations

import pytest

import recado
from recado.actors import ActorSystem
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.durable_mailbox.sequence_set import RANGES_MAX
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.journal.disk import MemoryDisk
from recado.simulator.disk import SimulatedDisk
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Book, Log, Place

MANY = 5 * RANGES_MAX // 2


@pytest.mark.parametrize("prefetch", [0, RANGES_MAX + 1])
def test_no_more_is_unsettled_than_gaps_are_remembered(prefetch: int) -> None:
    with pytest.raises(ValueError, match="prefetch"):
        AmqpSettings(prefetch=prefetch)


@in_a_loop
async def test_every_other_message_is_for_one_who_comes_later() -> None:
    async with recado.Broker() as broker:
        async with ActorSystem("server", transport=AmqpTransport(broker.url)):
            pass
        quiet = AmqpTransport(broker.url, AmqpSettings(server_bridge=False))
        async with ActorSystem("client", transport=quiet) as client:
            books = [client.actor(name, Book, node="server") for name in ("early", "late")]
            for number in range(MANY):
                books[number % 2].tell(Place(number))
        patient = RemoteOptions(warm_up=20)
        async with ActorSystem(
            "server", transport=AmqpTransport(broker.url), options=patient
        ) as server:
            boxes = DurableMailboxes(server, SimulatedDisk())
            early = await server.spawn(Book, name="early", mailbox=boxes.mailbox("early"))
            while len(await early.ask(Log())) < RANGES_MAX // 4:
                pass
            late = await server.spawn(Book, name="late", mailbox=boxes.mailbox("late"))
            for book, first in ((early, 0), (late, 1)):
                placed: list[int] = []
                while len(placed) < MANY // 2:
                    placed = await book.ask(Log())
                    assert placed == [*range(first, first + 2 * len(placed), 2)]


FIRST = -1
"""The message that waits for its actor while all others are settled."""


async def _sent_to_a_node_that_is_away(url: str) -> None:
    """Send one message for a later actor; then alternately for a durable mailbox and a plain one."""
    async with ActorSystem("server", transport=AmqpTransport(url)):
        pass
    quiet = AmqpTransport(url, AmqpSettings(server_bridge=False))
    async with ActorSystem("client", transport=quiet) as client:
        client.actor("late", Book, node="server").tell(Place(FIRST))
        books = [client.actor(name, Book, node="server") for name in ("plain", "early")]
        for number in range(MANY):
            books[number % 2].tell(Place(number))


async def _taken(server: ActorSystem, boxes: DurableMailboxes) -> None:
    """All but the message for the later actor."""
    early = await server.spawn(Book, name="early", mailbox=boxes.mailbox("early"))
    await server.spawn(Book, name="plain")
    while len(await early.ask(Log())) < MANY // 2:
        pass


async def _comes_late(server: ActorSystem, boxes: DurableMailboxes) -> None:
    late = await server.spawn(Book, name="late", mailbox=boxes.mailbox("late"))
    while not (placed := await late.ask(Log())) and Node.of(server).inbound.warmup.is_open:
        pass
    assert placed == [FIRST]


@in_a_loop
async def test_what_waits_is_new_however_much_is_taken_that_no_durable_mailbox_sees() -> None:
    async with recado.Broker() as broker:
        await _sent_to_a_node_that_is_away(broker.url)
        patient = RemoteOptions(warm_up=20)
        async with ActorSystem(
            "server", transport=AmqpTransport(broker.url), options=patient
        ) as server:
            boxes = DurableMailboxes(server, MemoryDisk())
            await _taken(server, boxes)
            await _comes_late(server, boxes)


@in_a_loop
async def test_what_waited_is_new_to_the_next_life() -> None:
    disk = MemoryDisk()
    async with recado.Broker() as broker:
        await _sent_to_a_node_that_is_away(broker.url)
        patient = RemoteOptions(warm_up=20)
        async with ActorSystem(
            "server", transport=AmqpTransport(broker.url), options=patient
        ) as server:
            await _taken(server, DurableMailboxes(server, disk))
        async with ActorSystem(
            "server", transport=AmqpTransport(broker.url), options=patient
        ) as server:
            await _comes_late(server, DurableMailboxes(server, disk))
