"""The two brokers that every end-to-end test talks to, and connections that close themselves.

`server` stands for recado and for Debian's RabbitMQ in turn, one process each for the whole run. A
module about what only recado does says so: `pytestmark = parametrize("server", ["recado"], indirect)`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pika
import pytest
import trustme
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from workshop import peers
from workshop.peers import HOST, Certificates, Server

from . import people

BROKERS = ("recado", "rabbitmq")


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """The certificate authority of this run."""
    return trustme.CA()


@pytest.fixture(scope="session")
def certificates(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The certificate of the brokers."""
    folder = tmp_path_factory.mktemp("certificates")
    ours = authority.issue_cert(HOST, "localhost")
    files = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    authority.cert_pem.write_to_path(files.ca)
    ours.cert_chain_pems[0].write_to_path(files.certificate)
    ours.private_key_pem.write_to_path(files.key)
    return files


@pytest.fixture(scope="session")
def start(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], AbstractContextManager[Server]]:
    """Starts a broker with TLS and with the users of `people`: `with start("recado") as server`."""
    definitions = tmp_path_factory.mktemp("rabbitmq") / "definitions.json"
    definitions.write_text(people.as_definitions())

    def starting(broker: str) -> AbstractContextManager[Server]:
        if broker == "recado":
            data = tmp_path_factory.mktemp("data")
            return peers.recado(data=data, certificates=certificates, config=people.as_toml())
        settings = {"load_definitions": str(definitions)}
        return peers.rabbitmq(certificates=certificates, settings=settings)

    return starting


@pytest.fixture(scope="session", params=BROKERS)
def server(
    request: pytest.FixtureRequest, start: Callable[[str], AbstractContextManager[Server]]
) -> Iterator[Server]:
    """A running broker, shared by all tests that do it no harm."""
    with start(request.param) as running:
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
