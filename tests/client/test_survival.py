"""A broker that is killed and restarted, with a robust client connected all the time."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from recado.client import (
    ConnectionLost,
    ConnectionRecovered,
    Properties,
    RobustChannel,
    RobustConsumer,
    connect,
    encode_properties,
)
from workshop import peers
from workshop.peers import Server

from .faulty import Faulty, faulty_wire
from .notebook import Notebook
from .running import in_a_loop, soon

PERSISTENT = encode_properties(Properties(delivery_mode=2))


class Lives:
    """Several lives of one broker on one folder, each ended by kill -9."""

    def __init__(self, begin: Callable[[], AbstractContextManager[Server]], more: int) -> None:
        self.more = more  # lives after the first
        self._begin = begin
        self._now = ExitStack()

    def start(self) -> int:
        """The port of this life."""
        return self._now.enter_context(self._begin()).port

    def kill(self) -> None:
        self._now.close()


@pytest.fixture(params=["recado", "rabbitmq"])
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lives]:
    if request.param == "recado":
        found = Lives(lambda: peers.recado(data=tmp_path, stop=signal.SIGKILL), 4)
    else:  # which takes long to start
        found = Lives(lambda: peers.rabbitmq(data=tmp_path), 1)
    yield found
    found.kill()


class Traffic:
    """Messages 1, 2, … published and consumed until it is stopped."""

    def __init__(self, channel: RobustChannel, consumer: RobustConsumer, queue: str) -> None:
        self.channel = channel
        self.consumer = consumer
        self.queue = queue
        self.published = 0
        self.confirmed: list[int] = []
        self.arrived: list[int] = []
        self.enough = False
        self._moved = asyncio.Event()
        channel.on_confirm = self._confirmed

    def _confirmed(self, numbers: range, ok: bool) -> None:
        assert ok
        self.confirmed += numbers

    async def publish(self) -> None:
        while not self.enough:
            self.published += 1
            number = self.channel.publish("", self.queue, b"%d" % self.published, PERSISTENT)
            assert number == self.published
            if self.published % 20 == 0:
                await self.channel.drain()
                await asyncio.sleep(0.01)  # a steady flow, not a wait
        await self.channel.wait_for_confirms()

    async def consume(self) -> None:
        async for batch in self.consumer.batches():
            self.arrived += [int(each.body) for each in batch]
            batch[-1].ack(multiple=True)
            self._moved.set()

    async def more(self, count: int) -> None:
        """Wait until so many more have arrived."""
        upto = len(self.arrived) + count
        while len(self.arrived) < upto:
            self._moved.clear()
            await self._moved.wait()

    async def all_arrived(self) -> None:
        while len(set(self.arrived)) < self.published:
            self._moved.clear()
            await self._moved.wait()


async def restarted(lives: Lives, wire: Faulty) -> None:
    await asyncio.to_thread(lives.kill)
    wire.port_behind = await asyncio.to_thread(lives.start)


@pytest.mark.timeout(240)
@in_a_loop
async def test_nothing_confirmed_is_lost_and_order_is_kept(lives: Lives) -> None:
    notebook = Notebook()
    port = await asyncio.to_thread(lives.start)
    async with (
        faulty_wire(port) as wire,
        connect(wire.address, on_event=notebook, retry_initial=0.01, retry_max=0.2) as connection,
    ):
        channel = await connection.channel(unconfirmed_max_bytes=100_000)  # some 700 messages
        consuming = await connection.channel()
        await channel.declare_queue("work", durable=True)
        await consuming.qos(100)
        traffic = Traffic(channel, await consuming.consume("work"), "work")
        tasks = [asyncio.create_task(traffic.publish()), asyncio.create_task(traffic.consume())]
        for life in range(1, lives.more + 1):
            await soon(traffic.more(500))
            await restarted(lives, wire)
            await notebook.wait_for(ConnectionRecovered, 2 * life - 1)
            await soon(traffic.more(300))
            wire.cut()
            await notebook.wait_for(ConnectionRecovered, 2 * life)
        await soon(traffic.more(300))
        traffic.enough = True
        await soon(tasks[0], 60)
        await soon(traffic.all_arrived(), 60)
        await traffic.consumer.cancel()
        await soon(tasks[1])
        assert traffic.confirmed == sorted(set(traffic.confirmed))
        assert len(traffic.confirmed) == traffic.published
        assert list(dict.fromkeys(traffic.arrived)) == list(range(1, traffic.published + 1))
        losses = [each for each in notebook.notices if isinstance(each, ConnectionLost)]
        assert len(losses) >= 2 * lives.more
