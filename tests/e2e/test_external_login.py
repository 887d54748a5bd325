"""Logins with client certificates (EXTERNAL), by pika and aio-pika."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import amqp
import pika
import pytest
import trustme
from cryptography import x509
from pika.credentials import ExternalCredentials, PlainCredentials
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError

import recado
from recado.amqp.codec import decode_method
from recado.amqp.frames import PROTOCOL_HEADER
from recado.amqp.methods import ConnectionStart
from workshop.peers import Server

from ..certificate_folder import CertificateFolder
from ..console.http import Api

EVERYTHING = {"/": {"configure": ".*", "write": ".*", "read": ".*"}}
USERS: dict[str, dict[str, object]] = {
    "ana": {"permissions": EVERYTHING},
    "joe": {"password": "secret", "permissions": EVERYTHING, "tags": ["administrator"]},
}


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder(tmp_path)


def configure(
    folder: CertificateFolder, source: str | None = "common_name", **server: object
) -> dict[str, dict[str, object]]:
    login = {} if source is None else {"certificate_login_from": source}
    config = folder.config(ca=str(folder.ca), **login, **server)
    users = USERS if source is not None else {"joe": USERS["joe"]}
    return {**config, "access": {"users": users}}


@pytest.fixture
def broker(folder: CertificateFolder) -> Iterator[recado.Broker]:
    with recado.Broker(config=configure(folder)) as running:
        yield running


def present(folder: CertificateFolder, certificate: trustme.LeafCert | None) -> ssl.SSLContext:
    """Return a client's context with a certificate."""
    context = folder.client()
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def log_in(
    broker: recado.Broker,
    context: ssl.SSLContext | None,
    credentials: PlainCredentials | ExternalCredentials | None = None,
) -> pika.BlockingConnection:
    port = broker.port if context is None else broker.tls_port
    options = None if context is None else pika.SSLOptions(context, "127.0.0.1")
    parameters = pika.ConnectionParameters(
        "127.0.0.1", port, credentials=credentials or ExternalCredentials(), ssl_options=options
    )
    return pika.BlockingConnection(parameters)


def certificate_of(
    folder: CertificateFolder, name: str | None, authority: trustme.CA | None = None
) -> trustme.LeafCert:
    return (authority or folder.authority).issue_cert("client.test", common_name=name)


def read_mechanisms(broker: recado.Broker, context: ssl.SSLContext | None) -> bytes:
    """Return what connection.start offers to a client."""
    port = broker.port if context is None else broker.tls_port or 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        client = context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain
        client.sendall(PROTOCOL_HEADER)
        with client.makefile("rb") as stream:
            header = stream.read(7)
            method = decode_method(stream.read(int.from_bytes(header[3:7], "big")))
        client.close()
    assert isinstance(method, ConnectionStart)
    return method.mechanisms


def test_the_common_name_is_the_user(broker: recado.Broker, folder: CertificateFolder) -> None:
    """Without a password, in the configuration as on the wire."""
    connection = log_in(broker, present(folder, certificate_of(folder, "ana")))
    connection.channel().queue_declare("q")
    api = Api(broker.management_port or 0, "joe", "secret", folder.client())
    [found] = api.get("/api/connections")
    assert (found["user"], found["auth_mechanism"], found["ssl"]) == ("ana", "EXTERNAL", True)
    assert found["peer_cert_subject"].startswith("CN=ana,")
    assert "trustme" in found["peer_cert_issuer"]
    assert found["peer_cert_validity"].count("T") == 2
    connection.close()


def test_it_is_offered_to_verified_clients_only(
    broker: recado.Broker, folder: CertificateFolder
) -> None:
    known = present(folder, certificate_of(folder, "ana"))
    assert read_mechanisms(broker, known) == b"PLAIN AMQPLAIN EXTERNAL"
    assert read_mechanisms(broker, folder.client()) == b"PLAIN AMQPLAIN"
    assert read_mechanisms(broker, None) == b"PLAIN AMQPLAIN"
    for context in (folder.client(), None):
        with pytest.raises(AMQPConnectionError):
            log_in(broker, context)


def test_it_is_not_offered_unless_it_is_configured(folder: CertificateFolder) -> None:
    with recado.Broker(config=configure(folder, None)) as broker:
        known = present(folder, certificate_of(folder, "joe"))
        assert read_mechanisms(broker, known) == b"PLAIN AMQPLAIN"


def test_a_client_cannot_use_what_was_not_offered(
    broker: recado.Broker, folder: CertificateFolder
) -> None:
    class Insisting(ExternalCredentials):  # type: ignore[misc]
        def response_for(self, start: object) -> tuple[str, bytes]:
            return "EXTERNAL", b"joe"

    for context in (folder.client(), None):
        with pytest.raises(ProbableAuthenticationError, match="unknown authentication mechanism"):
            log_in(broker, context, Insisting())


def test_certificates_of_others_are_refused_by_tls(
    broker: recado.Broker, folder: CertificateFolder
) -> None:
    context = present(folder, certificate_of(folder, "ana", trustme.CA()))
    with pytest.raises((AMQPConnectionError, OSError)):
        log_in(broker, context)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("eve", "unknown user (peer=127.0.0.1 user='eve')"),
        ("guest", "unknown user (peer=127.0.0.1 user='guest')"),
        (None, "the client certificate has no common_name (peer=127.0.0.1 user=None)"),
    ],
)
def test_refused_certificates(
    broker: recado.Broker,
    folder: CertificateFolder,
    caplog: pytest.LogCaptureFixture,
    name: str | None,
    reason: str,
) -> None:
    with pytest.raises(ProbableAuthenticationError, match="mechanism EXTERNAL"):
        log_in(broker, present(folder, certificate_of(folder, name)))
    assert f"login refused: {reason}" in caplog.text


def test_passwords_stay_possible(broker: recado.Broker, folder: CertificateFolder) -> None:
    joe = PlainCredentials("joe", "secret")
    for context in (present(folder, certificate_of(folder, "ana")), folder.client(), None):
        log_in(broker, context, joe).close()


@pytest.mark.parametrize("password", ["", "ana", "x"])
def test_a_user_without_a_password_has_none(
    broker: recado.Broker, folder: CertificateFolder, password: str
) -> None:
    with pytest.raises(ProbableAuthenticationError):
        log_in(broker, None, PlainCredentials("ana", password))
    api = Api(broker.management_port or 0, "ana", password, folder.client())
    assert api.request("GET", "/api/whoami").status == 401


def test_verify_demands_a_certificate(folder: CertificateFolder) -> None:
    with recado.Broker(config=configure(folder, verify=True)) as broker:
        log_in(broker, present(folder, certificate_of(folder, "ana"))).close()
        with pytest.raises((AMQPConnectionError, OSError)):
            log_in(broker, folder.client(), PlainCredentials("joe", "secret"))


@pytest.mark.parametrize(
    ("source", "options", "user"),
    [
        ("distinguished_name", {}, ""),
        ("subject_alternative_name", {"certificate_login_san_index": 1}, "b.test"),
        ("subject_alternative_name", {"certificate_login_san_type": "ip"}, "10.0.0.1"),
    ],
)
def test_other_parts_of_the_certificate(
    folder: CertificateFolder, source: str, options: dict[str, object], user: str
) -> None:
    certificate = folder.authority.issue_cert("a.test", "b.test", "10.0.0.1", common_name="ana")
    if not user:
        pem = certificate.cert_chain_pems[0].bytes()
        user = x509.load_pem_x509_certificate(pem).subject.rfc4514_string()
    config = configure(folder, source, **options)
    config["access"] = {"users": {user: USERS["ana"]}}
    with recado.Broker(config=config) as broker:
        log_in(broker, present(folder, certificate)).close()


def test_a_deleted_user_cannot_log_in_any_more(
    broker: recado.Broker, folder: CertificateFolder
) -> None:
    context = present(folder, certificate_of(folder, "ana"))
    log_in(broker, context).close()
    api = Api(broker.management_port or 0, "joe", "secret", folder.client())
    assert api.delete("/api/users/ana") == 204
    with pytest.raises(ProbableAuthenticationError):
        log_in(broker, context)


def test_aio_pika(broker: recado.Broker, folder: CertificateFolder) -> None:
    context = present(folder, certificate_of(folder, "ana"))

    async def scenario() -> None:
        url = f"amqps://127.0.0.1:{broker.tls_port}/?auth=EXTERNAL"
        async with await aio_pika.connect(url, ssl_context=context) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), queue.name)
            assert (await queue.get(no_ack=True)).body == b"hello"

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
@pytest.mark.parametrize("password", ["guest", "wrong"])
def test_mechanisms_with_a_password(server: Server, mechanism: str, password: str) -> None:
    """py-amqp knows both; on recado and on RabbitMQ."""
    connection = amqp.Connection(
        f"{server.host}:{server.port}", "guest", password, login_method=mechanism
    )
    if password == "guest":
        connection.connect()
        connection.channel().queue_declare("", exclusive=True)
        connection.close()
    else:
        with pytest.raises(amqp.exceptions.AccessRefused, match=f"mechanism {mechanism}"):
            connection.connect()
