"""The two brokers that clients are tested with, one process each for the whole run.

`server` stands for recado and for Debian's RabbitMQ in turn. A module about what only recado does says so:
`pytestmark = parametrize("server", ["recado"], indirect)`. `tests/conftest.py` gives the fixtures to all tests.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import trustme

from tests.e2e import people
from workshop import peers
from workshop.peers import HOST, Certificates, Server

BROKERS = ("recado", "rabbitmq")

Start = Callable[[str], AbstractContextManager[Server]]


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
def start(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Start:
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


@pytest.fixture(scope="session")
def recado_server(start: Start) -> Iterator[Server]:
    with start("recado") as running:
        yield running


@pytest.fixture(scope="session")
def rabbitmq_server(start: Start) -> Iterator[Server]:
    with start("rabbitmq") as running:
        yield running


@pytest.fixture(scope="session", params=BROKERS)
def server(request: pytest.FixtureRequest) -> Server:
    """A running broker, shared by all tests that do it no harm.

    It is made elsewhere: what has parameters ends whenever the next test wants another one, that is with each
    file twice, and RabbitMQ takes many seconds to start.
    """
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def name() -> Callable[[str], str]:
    """Names that no other test uses: `name("orders")` is `orders-1f0c9a2b`."""
    return lambda stem: f"{stem}-{secrets.token_hex(4)}"
