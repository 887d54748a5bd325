"""Certificates of the listeners: loaded again when their files change; broken files change nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pika
import pytest
import trustme
from cryptography import x509

import recado
from recado.node.certificates import Certificates
from recado.node.settings import ServerSettings

from ..certificate_folder import CertificateFolder
from ..console.http import Api
from ..feeds.io.loop import until

TIMEOUT_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> CertificateFolder:
    return CertificateFolder(tmp_path)


@pytest.fixture
def broker(folder: CertificateFolder) -> Iterator[recado.Broker]:
    with recado.Broker(config=folder.config()) as running:
        yield running


def load(folder: CertificateFolder, ca: str | None = None) -> Certificates:
    certificate, key = str(folder.certificate), str(folder.key)
    return Certificates(ServerSettings(tls_port=0, certificate=certificate, key=key, ca=ca))


def connect(port: int | None, context: ssl.SSLContext) -> ssl.SSLSocket:
    assert port is not None
    plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def serial(port: int | None, folder: CertificateFolder) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    with connect(port, folder.client()) as secure:
        der = secure.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ── what is spoken ────────────────────────────────────────────────────────────────────────────────────────


def test_both_listeners_speak_tls_1_2_and_newer_only(
    broker: recado.Broker, folder: CertificateFolder
) -> None:
    for port in (broker.tls_port, broker.management_port):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = folder.client(minimum_version=version, maximum_version=version)
            connect(port, context).close()
        with warnings.catch_warnings(action="ignore"):  # both are deprecated
            first, last = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
            old = folder.client(minimum_version=first, maximum_version=last)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError, match=r"EOF|protocol version"):
            connect(port, old)


def test_the_oldest_version_does_not_depend_on_the_system(folder: CertificateFolder) -> None:
    certificates = load(folder)
    for context in (certificates.amqps.loaded, certificates.https.loaded):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_https_without_a_port_for_amqps(folder: CertificateFolder) -> None:
    with recado.Broker(config=folder.config(tls_port=None)) as broker:
        assert broker.tls_port is None
        assert serial(broker.management_port, folder) == folder.serial
        with pytest.raises(OSError):  # noqa: PT011 - it depends on the system
            Api(broker.management_port or 0).get("/api/overview")


def test_https_asks_for_no_client_certificate(folder: CertificateFolder) -> None:
    with recado.Broker(config=folder.config(ca=str(folder.ca), verify=True)) as broker:
        with connect(broker.management_port, folder.client()) as secure:
            secure.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
            assert secure.recv(15) == b"HTTP/1.0 200 OK"
        with connect(broker.tls_port, folder.client()) as secure:
            secure.sendall(b"AMQP\x00\x00\x09\x01")
            assert secure.recv(1) == b""


# ── new files ─────────────────────────────────────────────────────────────────────────────────────────────


def test_new_connections_get_the_new_certificate_and_old_ones_stay(
    broker: recado.Broker, folder: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "recado.node")
    ports = broker.tls_port, broker.management_port
    assert [serial(port, folder) for port in ports] == [folder.serial] * 2
    parameters = pika.ConnectionParameters(
        port=broker.tls_port, ssl_options=pika.SSLOptions(folder.client(), "127.0.0.1")
    )
    old = pika.BlockingConnection(parameters)
    new = folder.issue()
    broker.reload_certificates()
    wait_for(lambda: "TLS certificate reloaded" in caplog.text)
    assert [serial(port, folder) for port in ports] == [new] * 2
    old.channel().queue_declare("q")
    old.close()


def test_changes_are_found_without_a_request(folder: CertificateFolder) -> None:
    async def scenario() -> None:
        certificates = load(folder)
        before = certificates.certificate_expiry
        certificates.start(interval_s=0.01)
        folder.issue(days=60)
        async with asyncio.timeout(TIMEOUT_S):
            await until(lambda: certificates.certificate_expiry != before)
        await certificates.stop()

    asyncio.run(scenario())


def test_unchanged_files_are_loaded_only_on_request(
    folder: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "recado.node")
    certificates = load(folder)
    context = certificates.amqps.loaded
    certificates.reload()
    assert certificates.amqps.loaded is context
    assert caplog.text == ""
    certificates.reload(is_forced=True)
    assert certificates.amqps.loaded is not context
    assert "TLS certificate reloaded (file=" in caplog.text


@pytest.mark.parametrize("change", ["touched", "rewritten", "replaced"])
def test_every_kind_of_change_is_seen(folder: CertificateFolder, change: str) -> None:
    certificates = load(folder)
    context, data = certificates.amqps.loaded, folder.certificate.read_bytes()
    found = folder.certificate.stat()
    if change == "touched":
        os.utime(folder.certificate, ns=(0, 0))
    elif change == "rewritten":
        folder.certificate.write_bytes(data + b"\n")
        os.utime(folder.certificate, ns=(found.st_atime_ns, found.st_mtime_ns))
    else:
        folder.write(folder.certificate, data)
        os.utime(folder.certificate, ns=(found.st_atime_ns, found.st_mtime_ns))
    certificates.reload()
    assert certificates.amqps.loaded is not context


def test_broken_files_keep_the_old_certificate_and_are_logged_once(
    folder: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = load(folder)
    contexts = certificates.amqps.loaded, certificates.https.loaded
    good = folder.key.read_bytes()
    for broken, fault in (
        (b"", "has no valid private key in PEM format"),
        (folder.authority.issue_cert("a").private_key_pem.bytes(), "do not match"),
        (None, "No such file or directory"),
    ):
        if broken is None:
            folder.key.unlink()
        else:
            folder.write(folder.key, broken)
        for _ in range(3):
            certificates.reload()
        [line] = caplog.messages
        assert line.startswith(
            "TLS certificate not reloaded, the current one stays in use: server."
        )
        assert fault in line
        caplog.clear()
        assert (certificates.amqps.loaded, certificates.https.loaded) == contexts
    folder.write(folder.key, good)
    certificates.reload()
    assert certificates.amqps.loaded is not contexts[0]


def test_a_certificate_is_not_used_with_another_key(folder: CertificateFolder) -> None:
    """Both files are replaced one after the other, and the node may look in between."""
    certificates = load(folder)
    context = certificates.amqps.loaded
    issued = folder.authority.issue_cert("127.0.0.1")
    folder.write(folder.certificate, issued.cert_chain_pems[0].bytes())
    certificates.reload()
    assert certificates.amqps.loaded is context
    folder.write(folder.key, issued.private_key_pem.bytes())
    certificates.reload()
    assert certificates.amqps.loaded is not context


def test_new_authorities_of_clients_are_loaded(folder: CertificateFolder) -> None:
    certificates = load(folder, ca=str(folder.ca))
    before = certificates.amqps.loaded.get_ca_certs()
    folder.write(folder.ca, trustme.CA().cert_pem.bytes())
    certificates.reload()
    assert certificates.amqps.loaded.get_ca_certs() != before


# ── expiry ────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_expired_certificate_is_logged(
    folder: CertificateFolder, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = load(folder)
    assert "expired" not in caplog.text
    folder.issue(days=-1)
    certificates.reload()
    assert "TLS certificate has expired (file=" in caplog.text
    assert certificates.certificate_expiry[0] < datetime.now(UTC)
