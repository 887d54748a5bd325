"""Nodes whose connections to the broker are cut, silent or slow, on recado and on RabbitMQ.

The node and the broker are processes; the connections of both nodes are relayed by this test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.actors.remote.running import in_a_loop
from tests.client.faulty import Faulty
from tests.feeds.io.loop import until
from workshop.peers import Server

from .actors_town import HEALS, Town, noted, town

SLOW = 0.03  # seconds that each chunk takes on a slow connection
QUICK: dict[str, Any] = {"read_timeout": 2.0, "connect_timeout": 1.0}


class Wire(Faulty):
    """One that can be slow as well."""

    delay = 0.0

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.address.host}:{self.address.port}/%2F"

    async def _pump(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, from_broker: bool
    ) -> None:
        slowed = asyncio.StreamReader()
        carrying = asyncio.create_task(self._carry(source, slowed))
        try:
            await super()._pump(slowed, target, from_broker)
        finally:
            carrying.cancel()

    async def _carry(self, source: asyncio.StreamReader, slowed: asyncio.StreamReader) -> None:
        try:
            while data := await source.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                slowed.feed_data(data)
        finally:
            slowed.feed_eof()


@asynccontextmanager
async def wired(server: Server, folder: Path) -> AsyncIterator[tuple[Town, Wire, Wire]]:
    """A town whose node and whose desk have a relayed connection each."""
    wires = [Wire(server.port), Wire(server.port)]
    for wire in wires:
        await wire.start()
    try:
        async with town(wires[0].url, folder, desk_url=wires[1].url, **QUICK) as it:
            yield it, wires[0], wires[1]
    finally:
        for wire in wires:
            await wire.stop()


async def all_noted(it: Town) -> None:
    await until(partial(it.has_noted, it.sent))
    assert noted(it.folder) == list(range(it.sent))


def test_wires_that_are_cut(server: Server, tmp_path: Path) -> None:
    @in_a_loop
    async def work() -> None:
        async with wired(server, tmp_path) as (it, to_node, to_desk):
            for wire in (to_node, to_desk) * 3:
                it.tell(300)
                await until(partial(it.has_noted, it.sent - 250))
                wire.cut()
                it.tell(100)
                cut = asyncio.get_running_loop().time()
                await until(partial(it.answered_since, cut))
                assert it.desk.answered_at - cut < HEALS
            await all_noted(it)
        assert it.desk.longest < 2.0

    work()


def test_wires_that_are_silent(server: Server, tmp_path: Path) -> None:
    @in_a_loop
    async def work() -> None:
        async with wired(server, tmp_path) as (it, _, to_desk):
            it.tell(50)
            to_desk.stall()
            it.tell(200)
            await until(it.is_lost)
            to_desk.go_on()
            heard = asyncio.get_running_loop().time()
            await until(partial(it.answered_since, heard))
            assert it.desk.answered_at - heard < HEALS
            await all_noted(it)
        assert it.desk.longest < 2.0
        assert it.desk.outcomes["AskTimeoutError"] > 0

    work()


def test_wires_that_are_slow(server: Server, tmp_path: Path) -> None:
    """Slow is not lost: no connection is closed, and everything arrives."""

    @in_a_loop
    async def work() -> None:
        async with wired(server, tmp_path) as (it, to_node, to_desk):
            to_node.delay = to_desk.delay = SLOW
            answered = it.desk.outcomes["answered"]
            it.tell(500)
            await all_noted(it)
            await until(lambda: it.desk.outcomes["answered"] >= answered + 5)
        assert not it.desk.told
        assert set(it.desk.outcomes) == {"answered"}

    work()
