"""Connections to the two brokers that close themselves."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pika
import pytest
from kombu import pools
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from workshop.peers import Server


@pytest.fixture(scope="module", autouse=True)
def others_leftovers() -> Iterator[None]:
    """Other projects' clients leave sockets to the collector, which would complain in somebody else's test.

    Those in kombu's pools, which are one for all applications of a process, it would not even find before the
    pools forget them, and that is in somebody else's test, too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        pools.reset()  # type: ignore[no-untyped-call]
        gc.collect()


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
