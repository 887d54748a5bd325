"""A bounded mailbox slows down its senders, also those of another node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recado import Broker
from recado.actors import ActorRef, ActorSystem, DurableMailboxes
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.actors.remote.amqp.frame_batch import MAX_BATCH_FRAMES
from recado.actors.remote.node import Node
from recado.actors.runtime.backpressure import PAUSE_MAX_S
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import KINDS, Book, Log, Place, actor_of, pair, until

CAPACITY = 10


class Slow(Book):
    gate: asyncio.Semaphore

    async def receive(self, message: Any) -> None:
        if isinstance(message, Place):
            await Slow.gate.acquire()
        await super().receive(message)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_everything_arrives_and_the_mailbox_is_bounded_where_the_link_can_wait(
    kind: str,
) -> None:
    async with pair(kind) as it:
        Slow.gate = asyncio.Semaphore(0)
        slow: ActorRef[Any] = await it.server.spawn(Slow, name="slow", capacity=CAPACITY)
        there = it.book("slow")
        there.tell(Place(0))
        await until(lambda: it.server.mailbox_size(slow) == 0)
        for order in range(1, 5000):
            there.tell(Place(order))
            if order % 100 == 0:
                await asyncio.sleep(0)
        most = 0
        for _ in range(5000):
            most = max(most, it.server.mailbox_size(slow))
            Slow.gate.release()
            await asyncio.sleep(0)
        assert await there.ask(Log(), timeout=30) == list(range(5000))
        if kind == "tcp":  # the frames of one read may exceed it
            assert most < 5000


@in_a_loop
async def test_of_what_is_for_a_full_mailbox_the_broker_keeps_the_rest() -> None:
    window = AmqpSettings(prefetch=MAX_BATCH_FRAMES)  # one message of the broker
    async with (
        Broker() as broker,
        ActorSystem("server", transport=AmqpTransport(broker.url, window)) as server,
        ActorSystem("client", transport=AmqpTransport(broker.url)) as client,
    ):
        Slow.gate = asyncio.Semaphore(0)
        slow: ActorRef[Any] = await server.spawn(Slow, name="slow", capacity=CAPACITY)
        there: ActorRef[Any] = client.actor("slow", node="server")
        for order in range(400):
            there.tell(Place(order))
        bridge = Node.of(client).transport.connect("server").bridge  # type: ignore[attr-defined]
        await bridge.wait_until_confirmed()  # so the broker has them all
        placed = actor_of(server, slow).placed  # type: ignore[attr-defined]
        most = 0
        for order in range(400):
            Slow.gate.release()
            await until(lambda: len(placed) > order)  # noqa: B023
            most = max(most, server.mailbox_size(slow))
        assert placed == list(range(400))
        assert CAPACITY <= most <= CAPACITY + MAX_BATCH_FRAMES


@pytest.mark.parametrize(
    "kind", ["tcp", "lasting", "amqp"]
)  # "memory" has no sender that could wait
@in_a_loop
async def test_a_durable_mailbox_slows_down_as_well(kind: str, tmp_path: Path) -> None:
    async with pair(kind) as it:
        Slow.gate = asyncio.Semaphore(0)
        boxes = DurableMailboxes(it.server, tmp_path)
        slow: ActorRef[Any] = await it.server.spawn(
            Slow, name="slow", mailbox=boxes.mailbox("slow"), capacity=CAPACITY
        )
        there = it.book("slow")
        for order in range(100):
            there.tell(Place(order))
        await until(lambda: it.server.mailbox_size(slow) == 99)
        if kind == "tcp":
            (link,) = it.at_server.transport._inbound_links  # type: ignore[attr-defined]
            assert not link.connection._transport.is_reading()
        else:
            safe = asyncio.Event()
            boxes._journal.when_synced(lambda error: it.server._call_on_loop(safe.set))
            await safe.wait()  # all of them; and few of them are settled
            assert len(it.at_server.inbound._pending_settles) >= 99 - CAPACITY
            if it.hub is not None:
                assert len(it.hub.unsettled["client", "server"]) >= 99 - CAPACITY
        for _ in range(100):
            Slow.gate.release()
        assert await there.ask(Log(), timeout=30) == list(range(100))


@in_a_loop
async def test_a_link_is_not_paused_for_ever() -> None:
    assert PAUSE_MAX_S <= 1.0
    async with pair("tcp") as it:
        Slow.gate = asyncio.Semaphore(0)
        await it.server.spawn(Slow, name="slow", capacity=1)
        for order in range(5):
            it.book("slow").tell(Place(order))
        # The slow actor is stuck; other actors on the same link are reached nevertheless.
        it.book().tell(Place(7))
        assert await it.book().ask(Log(), timeout=10 * PAUSE_MAX_S) == [7]
        for _ in range(5):
            Slow.gate.release()
