"""Reading the document with the keys: limits of size and time, and no redirects."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from recado.server.oauth import source
from recado.server.oauth.source import (
    DOCUMENT_MAX_BYTES,
    KeySourceError,
    read_from_file,
    read_from_url,
)

from ...certificate_folder import CertificateFolder
from .provider import Provider


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def fail(url: str) -> str:
    with pytest.raises(KeySourceError) as failure:
        read_from_url(url, None)()
    return str(failure.value)


def test_a_document_is_read_from_a_url() -> None:
    provider = Provider()
    with provider.serve() as url:
        assert read_from_url(url, None)() == provider.document()


def test_a_document_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(b"x" * DOCUMENT_MAX_BYTES)
    assert read_from_file(str(file))() == file.read_bytes()
    file.write_bytes(b"x" * (DOCUMENT_MAX_BYTES + 1))
    with pytest.raises(KeySourceError, match="more than 262144 bytes"):
        read_from_file(str(file))()
    file.unlink()
    with pytest.raises(KeySourceError, match="No such file or directory"):
        read_from_file(str(file))()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_refused(status: int) -> None:
    provider, other = Provider(), Provider()
    with provider.serve() as url, other.serve() as target:
        provider.answer = status, {"location": target}, b""
        assert fail(url) == f"status {status}, a redirect"
    assert other.requests == 0


def test_errors_of_the_provider() -> None:
    provider = Provider()
    with provider.serve() as url:
        provider.answer = 500, {}, b"secret"
        assert fail(url) == "HTTP Error 500: Internal Server Error"
        provider.answer = 200, {"content-encoding": "gzip"}, b"x" * (DOCUMENT_MAX_BYTES + 1)
        assert fail(url) == "more than 262144 bytes"
    assert "refused" in fail(url)


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200]
)
def test_malformed_answers(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        assert fail(f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()


def test_a_slow_provider_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "READ_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts, and does not answer
        assert "timed out" in fail(f"http://127.0.0.1:{server.getsockname()[1]}/")


def test_a_trickle_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of the socket begins again with each byte, that of the body does not."""
    monkeypatch.setattr(source, "READ_TIMEOUT_S", 0.3)
    read = Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client, suppress(OSError):
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                while not read.wait(0.05):
                    client.sendall(b"x")

        thread = Thread(target=serve)
        thread.start()
        assert fail(f"http://127.0.0.1:{server.getsockname()[1]}/") == "it took more than 0 s"
        read.set()
        thread.join()


def test_https_is_verified(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.certificate, folder.key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):
                client, _ = server.accept()
                with suppress(OSError), context.wrap_socket(client, server_side=True) as secure:
                    secure.recv(65536)
                    secure.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        thread = Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
        assert "CERTIFICATE_VERIFY_FAILED" in fail(url)
        assert read_from_url(url, str(folder.ca))() == b"{}"
        thread.join()
