"""Nodes and brokers that are killed with kill -9, and nodes that are stopped, on recado and on RabbitMQ.

Durable mailboxes lose nothing, and repeat at most the message that a handler was processing when its node died.
Asks end in a result, an error or a timeout. Bridges reconnect within HEALS seconds of the broker's return.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from recado.actors.inspection import INSPECTOR_NAME, Inspect, Inspector
from recado.actors.remote.amqp import Storage
from tests.actors.remote.running import in_a_loop
from tests.feeds.io.loop import until
from workshop.peers import Server

from .actors_cast import Gate, Note, Twice
from .actors_town import HEALS, Town, broker_lives, desk, noted, process, town


@in_a_loop
async def node_is_killed(url: str, folder: Path) -> None:
    kills = 3
    async with town(url, folder) as it:
        for _ in range(kills):
            it.tell(1000)
            await until(partial(it.has_noted, it.sent - 600))
            it.node.kill()
            it.tell(200)
            await it.node.start()
        await until(partial(it.has_noted, it.sent))
        assert await it.desk.calculator.ask(Twice(21), timeout=5.0) == 42
    found = noted(it.folder)
    assert list(dict.fromkeys(found)) == list(range(it.sent))
    assert len(found) - it.sent <= kills
    assert it.desk.longest < 2.0


def test_a_node_that_is_killed_finds_its_messages(server: Server, tmp_path: Path) -> None:
    node_is_killed(server.url, tmp_path)


@in_a_loop
async def asked_node_is_killed(url: str, exchange: str, folder: Path) -> None:
    asks = 5
    with process("server", url, exchange, folder) as node:
        await node.start()
        async with desk(url, exchange) as it:
            gate = it.system.actor("gate", Gate, node=exchange)
            inspector = it.system.actor(INSPECTOR_NAME, Inspector, node=exchange)
            answers = [gate.ask_future(Twice(number), timeout=60.0) for number in range(asks)]
            waiting = 0
            while waiting < asks - 1:  # the gate has one of them
                page = await inspector.ask(Inspect(), timeout=10.0)
                waiting = next(seen.waiting for seen in page.seen if seen.name == "gate")
            node.kill()
            (folder / "open").touch()
            await node.start()
            assert await asyncio.gather(*answers) == [2 * number for number in range(asks)]


def test_asks_that_waited_in_a_node_that_is_killed_are_answered(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    asked_node_is_killed(server.url, name("exchange"), tmp_path)


@in_a_loop
async def node_is_stopped(url: str, folder: Path) -> None:
    async with town(url, folder) as it:
        for _ in range(3):
            it.tell(1000)
            await until(partial(it.has_noted, it.sent - 600))
            stopping = asyncio.create_task(it.node.stop())
            await asyncio.sleep(0)
            it.tell(200)
            await stopping
            await it.node.start()
        await until(partial(it.has_noted, it.sent))
    assert noted(it.folder) == list(range(it.sent))


def test_a_node_that_is_stopped_finds_its_messages(server: Server, tmp_path: Path) -> None:
    node_is_stopped(server.url, tmp_path)


@in_a_loop
async def client_is_killed(url: str, exchange: str, folder: Path) -> None:
    lives = 3
    with process("server", url, exchange, folder) as node:
        await node.start()
        for life in range(lives):
            with process("client", url, exchange, folder) as teller:
                await teller.start()
                await until(lambda life=life: len(noted(folder, life)) > 200)  # type: ignore[misc]
        async with desk(url, exchange) as it:
            assert await it.ledger.ask(Note(9, 1), timeout=5.0) == 1  # so all before it is done
    for life in range(lives):
        found = noted(folder, life)
        assert found == list(range(len(found)))


def test_a_client_that_is_killed_leaves_no_gap_and_repeats_nothing(
    server: Server, name: Callable[[str], str], tmp_path: Path
) -> None:
    client_is_killed(server.url, name("exchange"), tmp_path)


@pytest.mark.parametrize(
    ("broker", "storages", "kills"),
    [
        ("recado", [Storage.DURABLE], 3),
        ("recado", [Storage.TRANSIENT], 2),
        ("recado", [Storage.EXCLUSIVE_AUTODELETE], 2),
        ("rabbitmq", list(Storage), 1),  # it starts so slowly that all of them share one
    ],
)
@in_a_loop
async def test_bridges_heal_when_the_broker_returns(
    broker: str, storages: list[Storage], kills: int, tmp_path: Path
) -> None:
    async with broker_lives(broker, tmp_path / "broker") as lives, AsyncExitStack() as stack:
        towns = []
        for storage in storages:
            towns.append(await stack.enter_async_context(town(lives.url, tmp_path, storage)))
        # Frames that a bridge accepted while it was lost wait in it, with any storage.
        waiting: dict[Town, list[int]] = {each: [] for each in towns}
        for _ in range(kills):
            for each in towns:
                each.tell(500)
                await until(partial(each.has_noted, each.sent - 300))
            await lives.kill()
            for each in towns:
                await until(each.is_lost)
                waiting[each] += range(each.sent, each.sent + 100)
                each.tell(100)
            returned = await lives.start()
            for each in towns:
                await until(partial(each.answered_since, returned))
                assert each.desk.answered_at - returned < HEALS
        for each in towns:
            all_of_it = range(each.sent) if each.storage is Storage.DURABLE else waiting[each]
            await until(partial(each.has_all_of, all_of_it))
    for each in towns:
        found = noted(each.folder)
        if each.storage is Storage.DURABLE:
            assert found == list(range(each.sent))
        else:  # frames in the broker are lost with it; later ones are in order nevertheless
            assert found == sorted(set(found))
        assert each.desk.longest < 2.0
