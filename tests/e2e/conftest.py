"""The two brokers that every end-to-end test talks to, and connections that close themselves.

`server` stands for recado and for Debian's RabbitMQ in turn, one process each for the whole run. A
test of what only recado does says so with `@only_recado`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pika
import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from workshop import peers
from workshop.peers import Server


@pytest.fixture(scope="session", params=["recado", "rabbitmq"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running broker."""
    start = {"recado": peers.recado, "rabbitmq": peers.rabbitmq}[request.param]
    with start() as running:
        yield running


@pytest.fixture
def name() -> Callable[[str], str]:
    """Names that no other test uses: `name("orders")` is `orders-1f0c9a2b`."""
    return lambda stem: f"{stem}-{secrets.token_hex(4)}"


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., BlockingConnection]]:
    """Opens pika connections to the server; they are closed with the test."""
    with ExitStack() as stack:

        def open_connection(**options: object) -> BlockingConnection:
            parameters = pika.URLParameters(server.url)
            for option, value in options.items():
                setattr(parameters, option, value)
            connection = BlockingConnection(parameters)
            stack.callback(lambda: connection.is_open and connection.close())
            return connection

        yield open_connection


@pytest.fixture
def connection(connect: Callable[..., BlockingConnection]) -> BlockingConnection:
    """One connection of its own for the test."""
    return connect()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    """One channel on that connection, with confirms: a message published on it has arrived.

    Without them nothing could be said of a queue after a publish: RabbitMQ lets a declare overtake it.
    """
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def queue(channel: BlockingChannel, name: Callable[[str], str]) -> str:
    """An empty exclusive queue."""
    queue = name("queue")
    channel.queue_declare(queue, exclusive=True)
    return queue
