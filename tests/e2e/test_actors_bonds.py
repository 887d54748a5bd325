"""Actors of a node that is a process, watched, started, supervised and moved there, on recado and RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from recado.actors import (
    ActorRef,
    ActorSystem,
    ChildFailed,
    Down,
    NodeUnreachableError,
    NoSuchActorError,
    OneForOne,
)
from recado.actors.inspection import INSPECTOR_NAME, Inspect, Inspector
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.supervision.links import monitor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Watcher, actor_of, watcher
from workshop.peers import Server

from .actors_cast import Add, Counter
from .actors_town import NodeProcess, process

QUICK = RemoteOptions(heartbeat_interval=0.1, failure_timeout=2.0)


class Boss(Watcher):
    supervisor_strategy: ClassVar = OneForOne(1)


@asynccontextmanager
async def two_nodes(
    url: str, name: str, folder: Path, options: RemoteOptions = QUICK
) -> AsyncIterator[tuple[NodeProcess, Node]]:
    """A process, and a node of this one."""
    transport = AmqpTransport(url, AmqpSettings(server_bridge=False))
    with process("server", url, name, folder) as there:
        await there.start()
        async with ActorSystem(f"desk of {name}", transport=transport, options=options) as system:
            yield there, Node.of(system)


async def boss_of(here: Node) -> Boss:
    ref: ActorRef[Any] = await here.system.spawn(Boss)
    boss = actor_of(here.system, ref)
    assert isinstance(boss, Boss)
    return boss


def test_one_is_started_there_and_supervised_from_here(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    @in_a_loop
    async def work() -> None:
        async with two_nodes(server.url, exchange, tmp_path) as (_, here):
            boss, seer = await boss_of(here), await watcher(here.system)
            counter = await here.creation.create(exchange, Counter, 40, supervisor=boss.ref)
            monitor(seer._cell, counter)
            assert await counter.ask(Add(2)) == 42
            counter.tell(Add(-1))
            assert await counter.ask(Add(0)) == 40  # begun anew
            assert (seer.heard, boss.heard) == ([], [])
            counter.tell(Add(-2))  # which the budget does not allow
            (exhausted,) = await boss.until(1)
            assert isinstance(exhausted, ChildFailed)
            assert repr(exhausted.reason) == "ValueError('-2 is negative')"
            (down,) = await seer.until(1)
            assert isinstance(down, Down)
            assert (down.ref, repr(down.reason)) == (counter, repr(exhausted.reason))

    exchange = name("exchange")
    work()


def test_one_moves_there_with_its_state(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    @in_a_loop
    async def work() -> None:
        async with two_nodes(server.url, exchange, tmp_path) as (_, here):
            seer = await watcher(here.system)
            old: ActorRef[Any] = await here.system.spawn(Counter, name="counter")
            monitor(seer._cell, old)
            assert await old.ask(Add(40)) == 40
            new = await here.migration.move(old, exchange)
            assert new.address.node == exchange
            assert await old.ask(Add(1)) == 41
            assert await new.ask(Add(1)) == 42
            assert seer.heard == []
            new.stop()
            assert await seer.until(1) == [Down(old, None)]

    exchange = name("exchange")
    work()


def test_a_watch_by_name_does_not_outlive_a_node_that_is_killed_and_comes_back(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    @in_a_loop
    async def work() -> None:
        patient = RemoteOptions(heartbeat_interval=0.1, failure_timeout=60.0)
        async with two_nodes(server.url, exchange, tmp_path, patient) as (there, here):
            seer = await watcher(here.system)
            # Each incarnation has it before it can be reached: its name is never free.
            inspector = here.system.actor(INSPECTOR_NAME, Inspector, node=exchange)
            monitor(seer._cell, inspector)
            await inspector.ask(Inspect(), timeout=30)
            there.kill()
            await there.start()
            (down,) = await seer.until(1)
            assert isinstance(down, Down)
            assert isinstance(down.reason, NoSuchActorError)
            await inspector.ask(Inspect(), timeout=30)

    exchange = name("exchange")
    work()


def test_a_node_that_is_killed_is_unreachable_and_in_its_next_life_its_actors_are_dead(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    @in_a_loop
    async def work() -> None:
        async with two_nodes(server.url, exchange, tmp_path) as (there, here):
            boss, seer = await boss_of(here), await watcher(here.system)
            counter = await here.creation.create(exchange, Counter, supervisor=boss.ref)
            monitor(seer._cell, counter)
            assert await counter.ask(Add(1)) == 1
            there.kill()
            (down,) = await seer.until(1)
            assert isinstance(down, Down)
            assert isinstance(down.reason, NodeUnreachableError)
            (exhausted,) = await boss.until(1)
            assert isinstance(exhausted, ChildFailed)
            assert isinstance(exhausted.reason, NodeUnreachableError)
            await there.start()
            monitor(seer._cell, counter)
            (_, confirmed) = await seer.until(2)
            assert isinstance(confirmed, Down)
            assert isinstance(confirmed.reason, NoSuchActorError)

    exchange = name("exchange")
    work()
