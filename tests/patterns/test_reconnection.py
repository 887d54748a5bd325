"""What can happen to a consumer, on both brokers: afterwards a new message is handled within seconds."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import pytest

import recado
from recado.broker import consumer_timeout
from recado.patterns import Message, Messaging, Retry
from tests.client.faulty import Faulty, faulty_wire
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from workshop import peers
from workshop.peers import HOST, Server
from workshop.time_limit import scale

RECOVERY_S = 5.0
ACK_TIMEOUT_MS = 5_000

Name = Callable[[str], str]


@asynccontextmanager
async def consuming_again(
    app: Messaging, seen: Collected, publish: Callable[[], object]
) -> AsyncIterator[None]:
    """After the block, a message must be handled in time; it is published until then."""
    yield
    count = len(seen.items)
    async with asyncio.timeout(scale(RECOVERY_S)):
        while len(seen.items) == count:
            publish()
            await asyncio.sleep(0.1)
        while not app.health().is_healthy:  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.01)


class Publisher:
    """Publishes numbers in the background, as a program of its own."""

    def __init__(self, app: Messaging, queue: str) -> None:
        self._app = app
        self._queue = queue
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self) -> None:
        task = asyncio.create_task(self._app.publish(self._queue, 1))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


def url_of(wire: Faulty) -> str:
    return f"amqp://guest:guest@{HOST}:{wire.address.port}/%2F"


@pytest.mark.parametrize("harm", ["cut", "freeze"])
@in_a_loop
async def test_a_connection_that_is_lost(server: Server, name: Name, harm: str) -> None:
    async with faulty_wire(server.port) as wire:
        app, queue, seen = Messaging(url_of(wire)), name("numbers"), Collected()

        @app.subscribe(queue)
        async def handle(number: int) -> None:
            seen.add(number)

        async with Messaging(server.url) as another, app:
            publisher = Publisher(another, queue)
            await another.publish(queue, 0)
            await seen.wait(1)
            async with consuming_again(app, seen, publisher):
                if harm == "cut":
                    wire.cut()
                else:
                    wire.stall()
                    async with asyncio.timeout(scale(30)):
                        while app.health().is_healthy:  # noqa: ASYNC110  there is no event for it
                            await asyncio.sleep(0.05)
                    wire.cut()
                    wire.go_on()
            await publisher.finish()


@pytest.mark.parametrize("broker", ["recado", "rabbitmq"])
@in_a_loop
async def test_a_broker_that_is_killed_and_restarted(
    broker: str, name: Name, tmp_path: Path
) -> None:
    port = peers.free_ports(1)[0]

    def start() -> AbstractContextManager[Server]:
        if broker == "recado":
            return peers.recado(port=port, data=tmp_path, stop=signal.SIGKILL)
        return peers.rabbitmq(port=port, data=tmp_path, stop=signal.SIGTERM)

    queue, seen = name("numbers"), Collected()
    with ExitStack() as first:
        server = await asyncio.to_thread(first.enter_context, start())
        app = Messaging(server.url)

        @app.subscribe(queue)
        async def handle(number: int) -> None:
            seen.add(number)

        async with app:
            await app.publish(queue, 0)
            await seen.wait(1)
            await asyncio.to_thread(first.close)
            # Published while there is no broker, and confirmed by the next one.
            publishing = asyncio.gather(*(app.publish(queue, n) for n in range(1, 20)))
            with ExitStack() as second:
                await asyncio.to_thread(second.enter_context, start())
                async with asyncio.timeout(scale(30)):
                    await publishing
                    await seen.wait(20)
                assert set(seen.items) == set(range(20))
                assert app.health().is_healthy


@pytest.mark.parametrize("broker", ["recado", "rabbitmq"])
@in_a_loop
async def test_handlers_that_outlast_the_ack_timeout(
    broker: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker closes the channel and redelivers; the endpoint consumes on, and the handler goes on."""
    # Both brokers look for late acknowledgements once a minute, unless they are told otherwise.
    monkeypatch.setattr(consumer_timeout, "CHECK_INTERVAL_MS", 500)
    async with AsyncExitStack() as stack:
        if broker == "recado":
            config = {"broker": {"consumer_timeout": ACK_TIMEOUT_MS / 1000}}
            url = (await stack.enter_async_context(recado.Broker(config=config))).url
        else:
            rabbitmq = peers.rabbitmq(
                settings={"consumer_timeout": str(ACK_TIMEOUT_MS)},
                advanced="[{rabbit, [{channel_tick_interval, 500}]}].",
            )
            url = (await asyncio.to_thread(stack.enter_context, rabbitmq)).url
        queue, seen, held = name("numbers"), Collected(), asyncio.Event()
        app = Messaging(url, shutdown_timeout=0.1)

        @app.subscribe(queue, retry=Retry(5), concurrency=2)
        async def handle(message: Message[int]) -> None:
            if message.body == 0 and message.attempt == 1:
                await held.wait()  # much longer than the broker allows
            seen.add((message.body, message.attempt))

        async with app:
            await app.publish(queue, 0)
            async with asyncio.timeout(scale(60)):
                while (0, 2) not in seen.items:  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(0.05)
            publisher = Publisher(app, queue)
            async with consuming_again(app, seen, publisher):
                held.set()
            await publisher.finish()


@in_a_loop
async def test_heartbeats_continue_during_long_plain_functions(server: Server, name: Name) -> None:
    import time

    queue, seen = name("numbers"), Collected()
    app = Messaging(server.url + "?heartbeat=1")
    loop = asyncio.get_running_loop()

    @app.subscribe(queue)
    def handle(number: int) -> None:
        time.sleep(3.5)  # blocks its thread for more than three heartbeats; this is what is tested
        loop.call_soon_threadsafe(seen.add, number)

    async with app:
        connection = app.endpoints["handle"].channel
        await app.publish(queue, 1)
        await seen.wait(1)
        await app.publish(queue, 2)
        await seen.wait(2)
        assert seen.items == [1, 2]  # not redelivered, so the connection was not lost
        assert app.endpoints["handle"].channel is connection
