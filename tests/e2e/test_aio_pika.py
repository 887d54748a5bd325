"""aio-pika: the asyncio client, its reconnecting connection, and its patterns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue, AbstractRobustConnection
from aio_pika.exceptions import DeliveryError
from aio_pika.patterns import RPC, Master
from pamqp.common import Arguments

from workshop.peers import Server
from workshop.time_limit import scale

from .proxy import Proxy, proxy_to
from .traffic import PATIENCE

T = TypeVar("T")


def run(main: Awaitable[T]) -> T:
    """Run a test's coroutine; it fails at the deadline."""

    async def within_patience() -> T:
        async with asyncio.timeout(scale(PATIENCE)):
            return await main

    return asyncio.run(within_patience())


class Inbox:
    """A consumer that acknowledges and hands bodies to whoever waits."""

    def __init__(self) -> None:
        self.bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def __call__(self, message: AbstractIncomingMessage) -> None:
        await message.ack()
        self.bodies.put_nowait(message.body)

    async def on(self, queue: AbstractQueue) -> Inbox:
        """Start to consume."""
        await queue.consume(self)
        return self


@asynccontextmanager
async def robust(
    proxy: Proxy,
) -> AsyncIterator[tuple[AbstractRobustConnection, asyncio.Queue[str]]]:
    """A robust connection through a proxy, and the news of its reconnections."""
    news: asyncio.Queue[str] = asyncio.Queue()
    connection = await aio_pika.connect_robust(proxy.url, reconnect_interval=0.05)
    connection.reconnect_callbacks.add(lambda *_: news.put_nowait("reconnected"))
    async with connection:
        yield connection, news


def test_a_robust_connection_restores_queues_bindings_and_consumers(
    server: Server, name: Callable[[str], str]
) -> None:
    async def scenario(proxy: Proxy) -> None:
        async with robust(proxy) as (connection, news):
            channel = await connection.channel()
            exchange = await channel.declare_exchange(name("robust"), "topic", auto_delete=True)
            queue = await channel.declare_queue(name("robust"), auto_delete=True)
            await queue.bind(exchange, "a.#")
            inbox = await Inbox().on(queue)
            for number in range(3):
                await exchange.publish(Message(b"%d" % number), "a.b")
                assert await inbox.bodies.get() == b"%d" % number
                proxy.cut()
                assert await news.get() == "reconnected"
            await exchange.publish(Message(b"after"), "a.b")
            assert await inbox.bodies.get() == b"after"
        assert proxy.accepted == 4

    with proxy_to(server) as proxy:
        run(scenario(proxy))


def test_a_robust_connection_keeps_trying_while_nobody_answers(
    server: Server, name: Callable[[str], str]
) -> None:
    async def scenario(proxy: Proxy) -> None:
        async with robust(proxy) as (connection, news):
            channel = await connection.channel()
            queue = await channel.declare_queue(name("robust"), auto_delete=True)
            inbox = await Inbox().on(queue)
            proxy.refusing = True
            proxy.cut()
            await asyncio.to_thread(proxy.wait_for_accepted, 4)
            proxy.refusing = False
            assert await news.get() == "reconnected"
            await channel.default_exchange.publish(Message(b"at last"), queue.name)
            assert await inbox.bodies.get() == b"at last"

    with proxy_to(server) as proxy:
        run(scenario(proxy))


def test_unacknowledged_messages_come_again_after_a_cut(
    server: Server, name: Callable[[str], str]
) -> None:
    async def scenario(proxy: Proxy) -> None:
        async with robust(proxy) as (connection, _):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=10)
            queue = await channel.declare_queue(name("robust"))
            for number in range(5):
                await channel.default_exchange.publish(Message(b"%d" % number), queue.name)
            seen: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
            await queue.consume(seen.put)
            assert [(await seen.get()).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
            proxy.cut()
            again = [await seen.get() for _ in range(5)]
            assert [message.body for message in again] == [b"0", b"1", b"2", b"3", b"4"]
            assert all(message.redelivered for message in again)
            for message in again:
                await message.ack()
            await queue.delete(if_unused=False)

    with proxy_to(server) as proxy:
        run(scenario(proxy))


def test_publisher_confirms_tell_what_happened(server: Server, name: Callable[[str], str]) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            limit: Arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
            queue = await channel.declare_queue(name("full"), exclusive=True, arguments=limit)
            publish = channel.default_exchange.publish
            confirmation = await publish(Message(b"kept"), queue.name)
            assert confirmation is not None
            with pytest.raises(DeliveryError):
                await publish(Message(b"refused"), queue.name)
            with pytest.raises(DeliveryError):
                await publish(Message(b"nowhere"), name("nowhere"))
            message = await queue.get(no_ack=True)
            assert message.body == b"kept"

    run(scenario())


def test_hundreds_of_confirms_at_once(server: Server, name: Callable[[str], str]) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name("many"), exclusive=True)
            async with asyncio.TaskGroup() as group:
                for number in range(500):
                    publish = channel.default_exchange.publish(Message(b"%d" % number), queue.name)
                    group.create_task(publish)
            seen = set()
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        seen.add(int(message.body))
                    if len(seen) == 500:
                        break
            assert seen == set(range(500))

    run(scenario())


def test_transactions(server: Server, name: Callable[[str], str]) -> None:
    async def scenario() -> None:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(name("tx"), exclusive=True)
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"kept"), queue.name)
            transaction = channel.transaction()
            await transaction.select()
            await channel.default_exchange.publish(Message(b"lost"), queue.name)
            await transaction.rollback()
            message = await queue.get(no_ack=True)
            assert message.body == b"kept"
            assert await queue.get(no_ack=True, fail=False) is None

    run(scenario())


def test_the_rpc_pattern(server: Server, name: Callable[[str], str]) -> None:
    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def fail() -> None:
        raise ValueError("on purpose")

    async def scenario() -> None:
        async with await aio_pika.connect_robust(server.url) as connection:
            rpc = await RPC.create(await connection.channel())
            multiplying, failing = name("multiply"), name("fail")
            await rpc.register(multiplying, multiply, auto_delete=True)
            await rpc.register(failing, fail, auto_delete=True)
            answers = [rpc.call(multiplying, {"x": number, "y": 2}) for number in range(20)]
            assert await asyncio.gather(*answers) == [number * 2 for number in range(20)]
            with pytest.raises(ValueError, match="on purpose"):
                await rpc.call(failing)
            with pytest.raises(aio_pika.exceptions.MessageProcessError):
                await rpc.call(name("nobody"))
            await rpc.close()

    run(scenario())


def test_the_worker_pattern(server: Server, name: Callable[[str], str]) -> None:
    async def scenario() -> None:
        done: asyncio.Queue[int] = asyncio.Queue()

        async def work(*, number: int) -> None:
            done.put_nowait(number)

        async with await aio_pika.connect_robust(server.url) as connection:
            master = Master(await connection.channel())
            tasks = name("tasks")
            workers = [await master.create_worker(tasks, work, auto_delete=True) for _ in range(2)]
            for number in range(20):
                await master.create_task(tasks, {"number": number})
            assert {await done.get() for _ in range(20)} == set(range(20))
            for worker in workers:
                await worker.close()

    run(scenario())
