"""Actors of two nodes through a broker, recado and RabbitMQ, behave as local ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from recado.actors import ActorSystem
from recado.actors.errors import ActorError, AskTimeoutError
from recado.actors.remote.amqp import AmqpSettings, AmqpTransport, ConnectionSharing, Storage
from recado.actors.remote.errors import RemoteError
from recado.actors.remote.options import RemoteOptions
from tests.actors.remote.running import in_a_loop
from tests.feeds.io.loop import until
from workshop.peers import Server

from .actors_cast import Calculator, Ledger, Note, Twice
from .actors_town import desk, noted


@asynccontextmanager
async def exchange(
    url: str, name: str, options: RemoteOptions | None = None, **settings: Any
) -> AsyncIterator[ActorSystem]:
    transport = AmqpTransport(url, AmqpSettings(**settings))
    async with ActorSystem(name, transport=transport, options=options) as system:
        await system.spawn(Calculator, name="calculator")
        yield system


@pytest.mark.parametrize("sharing", ConnectionSharing)
@pytest.mark.parametrize("storage", Storage)
def test_asks_and_tells(
    server: Server,
    name: Callable[[str], str],
    sharing: ConnectionSharing,
    storage: Storage,
    tmp_path: Path,
) -> None:
    policy: dict[str, Any] = {"storage": storage, "client_sharing": sharing}

    @in_a_loop
    async def work() -> None:
        async with (
            exchange(server.url, node, server_sharing=sharing, storage=storage) as system,
            desk(server.url, node, **policy) as it,
        ):
            await system.spawn(partial(Ledger, tmp_path / "ledger"), name="ledger")
            for number in range(100):
                it.ledger.tell(Note(0, number))
            for number in range(100):
                assert await it.calculator.ask(Twice(number), timeout=5.0) == 2 * number
            await until(lambda: noted(tmp_path) == list(range(100)))
            with pytest.raises(ValueError, match="-1 is negative"):
                await it.calculator.ask(Twice(-1), timeout=5.0)
            assert await it.calculator.ask(Twice(1), timeout=5.0) == 2

    node = name("exchange")
    work()


def test_the_names_are_those_that_everybody_knows(
    server: Server, name: Callable[[str], str], channel: BlockingChannel
) -> None:
    @in_a_loop
    async def work() -> None:
        async with exchange(server.url, node), desk(server.url, node) as it:
            await it.calculator.ask(Twice(1), timeout=5.0)

    node = name("exchange")
    work()
    exchange_name, client = f"actor.exchange.in.{node}", f"desk of {node}"
    channel.exchange_declare(exchange_name, "direct", durable=True, passive=True)
    for queue, key in (
        (f"actor.queue.in.{node}", f"to.server.{node}"),
        (f"actor.queue.out.{node}.{client}", f"client.{node}.{client}"),
    ):
        channel.basic_publish(exchange_name, key, b"hello", mandatory=True)
        assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"
        channel.queue_delete(queue)
    channel.exchange_delete(exchange_name)


def test_what_others_put_into_a_queue_does_no_harm(
    server: Server, name: Callable[[str], str], channel: BlockingChannel
) -> None:
    @in_a_loop
    async def work() -> None:
        async with exchange(server.url, node), desk(server.url, node) as it:
            for body in (b"", b"x", bytes(1000), b"\x01" + bytes(200)):
                for properties in (None, pika.BasicProperties(reply_to="somebody")):
                    channel.basic_publish(
                        f"actor.exchange.in.{node}", f"to.server.{node}", body, properties
                    )
            assert await it.calculator.ask(Twice(1), timeout=5.0) == 2

    node = name("exchange")
    work()
    assert channel.queue_declare(f"actor.queue.in.{node}", passive=True).method.message_count == 0


def test_stopping_everybody_leaves_the_bridges(server: Server, name: Callable[[str], str]) -> None:
    @in_a_loop
    async def work() -> None:
        async with exchange(server.url, node) as system, desk(server.url, node) as it:
            assert await it.calculator.ask(Twice(1), timeout=5.0) == 2
            assert [ref.address.name for ref in system.registry] == ["calculator"]
            assert len(it.system.registry) == 0
            await system.stop_all()
            await it.system.stop_all()
            await system.spawn(Calculator, name="calculator")
            assert await it.calculator.ask(Twice(2), timeout=5.0) == 4

    node = name("exchange")
    work()


def test_a_node_that_is_nowhere_is_told_and_not_waited_for(
    server: Server, name: Callable[[str], str]
) -> None:
    @in_a_loop
    async def work() -> None:
        async with desk(server.url, node) as it:
            with pytest.raises((ActorError, RemoteError)) as caught:
                await it.calculator.ask(Twice(1), timeout=10.0)
            assert not isinstance(caught.value, AskTimeoutError)

    node = name("nowhere")
    work()


def test_who_has_not_the_cookie_is_told(server: Server, name: Callable[[str], str]) -> None:
    @in_a_loop
    async def work() -> None:
        demanding = RemoteOptions(cookie="sesame", require_cookie=True)
        async with exchange(server.url, node, demanding), desk(server.url, node) as it:
            with pytest.raises(RemoteError, match="cookie"):
                await it.calculator.ask(Twice(1), timeout=5.0)

    node = name("exchange")
    work()
