"""Random mixtures of cuts, lost frames, silence and restarts of the broker, by a seed: nothing is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import pytest

import recado
from recado.actors.remote.amqp import ConnectionSharing
from tests.actors.remote.running import in_a_loop
from workshop.peers import free_ports

from .test_healing import World, world

FAULTS = 8

Fault = Literal["cut", "cut both", "swallow", "stall", "restart"]


class Lives:
    """A broker that is started and stopped repeatedly on one folder."""

    def __init__(self, port: int, folder: Path) -> None:
        self._port = port
        self._folder = folder
        self._now = AsyncExitStack()

    async def start(self) -> recado.Broker:
        broker = recado.Broker(port=self._port, data=self._folder)
        return await self._now.enter_async_context(broker)

    async def stop(self) -> None:
        await self._now.aclose()


async def fault(kind: Fault, chance: Random, it: World, lives: Lives) -> None:
    wire = chance.choice(it.wires)
    match kind:
        case "cut":
            wire.cut()
        case "cut both":
            for each in it.wires:
                each.cut()
        case "swallow":
            wire.swallows = True
            it.send(chance.randrange(20))
            await turns(chance)
            wire.cut()
            wire.swallows = False
        case "stall":
            wire.stall()
            it.send(chance.randrange(20))
            await turns(chance)
            wire.cut()
            wire.go_on()
        case "restart":
            await lives.stop()
            it.send(chance.randrange(20))
            await turns(chance)
            await lives.start()


async def turns(chance: Random) -> None:
    """Let something happen, more or less."""
    for _ in range(chance.choice([0, 1, 5, 50, 500])):
        await asyncio.sleep(0)


@pytest.mark.searching
@pytest.mark.parametrize("seed", range(6))
@in_a_loop
async def test_a_mixture(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    (port,) = free_ports(1)
    lives = Lives(port, tmp_path)
    broker = await lives.start()
    persistent = chance.choice([True, False])
    policy: dict[str, Any] = {
        "persistent": persistent,
        "server_sharing": chance.choice(list(ConnectionSharing)),
        "client_sharing": chance.choice(list(ConnectionSharing)),
    }
    try:
        async with world(broker.url, **policy) as it:
            for _ in range(FAULTS):
                it.send(chance.randrange(100))
                await turns(chance)
                kinds = get_args(Fault) if persistent else get_args(Fault)[:-1]
                await fault(chance.choice(kinds), chance, it, lives)
                it.send(chance.randrange(10))
                await turns(chance)
            await it.all_arrived()
            await it.well()
    finally:
        await lives.stop()
