"""The status of an actor system: what is read, what is published, and the limits of both."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

import recado
from recado.actors import (
    Actor,
    ActorRef,
    ActorsSettings,
    ActorSystem,
    Message,
    OneForOne,
    open_system,
    publish_status,
)
from recado.actors.status import SystemStatusReader, describe_error
from recado.client import Connection
from recado.status.record import (
    ACTORS_MAX_COUNT,
    DEPTH_MAX_COUNT,
    ERROR_MAX_COUNT,
    FAILURES_MAX_COUNT,
    NAME_MAX_BYTES,
    STATUS_EXCHANGE,
    ActorsStatus,
    decode_record,
)
from workshop.time_limit import scale

PATIENCE_S = scale(30.0)


class Count(Message[int]):
    number: int = 1


class Fail(Message[None]):
    text: str = "broken"


class Counter(Actor[Count | Fail]):
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = (ValueError,)

    async def receive(self, message: Count | Fail) -> int:
        match message:
            case Count(number):
                return number
            case Fail(text):
                raise ValueError(text)


class Plain(Actor[Count]):
    def receive(self, message: Count) -> int:
        return message.number


async def read(system: ActorSystem) -> ActorsStatus:
    return await SystemStatusReader(system, 5.0).read()


def test_the_tree_with_mailboxes_and_handled_messages() -> None:
    async def run() -> ActorsStatus:
        async with ActorSystem("exchange") as system:
            root = await system.spawn(Counter, name="root")
            await root.ask(Count())
            await system.spawn(Counter, name="child", supervisor=root)
            plain = await system.spawn(Plain)
            for _ in range(3):
                await plain.ask(Count())
            return await read(system)

    status = asyncio.run(run())
    assert (status.name, status.state, status.actor_count) == ("exchange", "running", 3)
    assert [(each.name, each.type, each.depth) for each in status.actors] == [
        ("root", "Counter", 0),
        ("", "Plain", 0),
        ("child", "Counter", 1),
    ]
    assert status.actors[2].supervisor == status.actors[0].uid
    assert [each.handled for each in status.actors] == [1, 3, 0]
    assert (status.handled, status.waiting, status.omitted) == (4, 0, 0)


def test_messages_of_stopped_actors_stay_counted() -> None:
    async def run() -> ActorsStatus:
        async with ActorSystem("exchange") as system:
            plain = await system.spawn(Plain)
            for _ in range(300):  # more than one run of the cell
                plain.tell(Count())
            await plain.ask(Count())
            await system.stop(plain)
            plain.tell(Count())
            return await read(system)

    status = asyncio.run(run())
    assert (status.handled, status.actor_count, status.dead_letters) == (301, 0, 1)


def test_the_tree_is_bounded_in_number_and_depth() -> None:
    async def run() -> tuple[ActorsStatus, ActorsStatus]:
        async with ActorSystem("wide") as system:
            for _ in range(ACTORS_MAX_COUNT + 7):
                await system.spawn(Plain)
            wide = await read(system)
        async with ActorSystem("deep") as system:
            parent: ActorRef[Count | Fail] | None = None
            for number in range(DEPTH_MAX_COUNT + 5):
                parent = await system.spawn(Counter, name=str(number), supervisor=parent)
            return wide, await read(system)

    wide, deep = asyncio.run(run())
    assert (len(wide.actors), wide.omitted) == (ACTORS_MAX_COUNT, 7)
    assert (len(deep.actors), deep.omitted) == (DEPTH_MAX_COUNT + 1, 4)
    assert deep.actors[-1].depth == DEPTH_MAX_COUNT


def test_failures_are_remembered_newest_first() -> None:
    async def run() -> ActorsStatus:
        async with ActorSystem("exchange") as system:
            reader = SystemStatusReader(system, 5.0)
            system._listeners.append(reader.record_event)
            strategy = OneForOne(FAILURES_MAX_COUNT + 5, within=1000)
            actor = await system.spawn(Counter, name="weak", supervisor_strategy=strategy)
            for number in range(FAILURES_MAX_COUNT + 5):
                actor.tell(Fail(f"{number} " + "x" * 2_000))
            await actor.ask(Count())
            actor.tell(Fail("last"))
            stopped = asyncio.Event()
            system._listeners.append(
                lambda _: None if system.registry.by_name("weak") else stopped.set()
            )
            async with asyncio.timeout(PATIENCE_S):
                await stopped.wait()
            return await reader.read()

    status = asyncio.run(run())
    assert len(status.failures) == FAILURES_MAX_COUNT
    newest, before = status.failures[:2]
    assert (newest.actor, newest.outcome, newest.error) == ("weak", "given_up", "ValueError: last")
    assert (before.outcome, len(before.error)) == ("restarted", ERROR_MAX_COUNT)


def test_an_exception_without_a_text() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe_error(ValueError()) == "ValueError"
    assert describe_error(MuteError()) == "MuteError: (RuntimeError in __str__)"


def test_a_system_publishes_until_its_end() -> None:
    async def run() -> list[ActorsStatus]:
        received: list[ActorsStatus] = []
        async with recado.Broker() as broker:
            connection = await Connection.open(broker.url)
            channel = await connection.channel()
            await channel.declare_exchange(STATUS_EXCHANGE, "topic", durable=True)
            queue = await channel.declare_queue(exclusive=True)
            await channel.bind_queue(queue.name, STATUS_EXCHANGE, "actors.*")
            consumer = await channel.consume(queue.name, no_ack=True)

            async def receive() -> None:
                async with asyncio.timeout(PATIENCE_S):
                    for delivery in await consumer.next_batch():
                        record = decode_record(delivery.routing_key, delivery.body)
                        assert isinstance(record, ActorsStatus)
                        received.append(record)

            async with open_system("exchange", ActorsSettings(status=broker.url)) as system:
                await system.spawn(Plain, name="plain")
                await receive()
                assert not any(cell.is_internal for cell in system.registry.cells())
            while received[-1].state != "closed":
                await receive()
            await connection.close()
        return received

    received = asyncio.run(run())
    assert received[0].state == "running"
    assert received[-1].actors[0].name == "plain"


def test_wrong_arguments() -> None:
    async def run(name: str, url: str, interval: float) -> None:
        async with ActorSystem(name) as system, publish_status(system, url, interval=interval):
            pass

    for name, url, interval, problem in (
        ("x", "http://localhost", 5.0, "amqp"),
        ("x" * (NAME_MAX_BYTES + 1), "amqp://localhost", 5.0, "status: the name"),
        ("x", "amqp://localhost", 0.0, "interval"),
        ("x", "amqp://localhost", 1e6, "interval"),
    ):
        with pytest.raises(ValueError, match=problem):
            asyncio.run(run(name, url, interval))
