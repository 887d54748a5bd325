"""Hostile HTTP: the broker keeps serving, and nobody else notices."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack

import pika
import pytest

import recado
from recado.console import site

from .http import Api

AUTHORIZATION = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"


def raw(port: int, text: str) -> bytes:
    """Send bytes and return the head of the first reply."""
    reply = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        peer.sendall(text.encode())
        while b"\r\n\r\n" not in reply and (part := peer.recv(65536)):
            reply += part
    return reply


@pytest.mark.parametrize(
    "path",
    [
        "/api/../api/users",
        "/api//users",
        "/api/queues/%2F/%00",
        "/api/queues/%ff/x",
        "/api/queues/%2F/" + "a" * 5_000,
        "/api/queues/%252F/x",
        "/%2e%2e/etc/passwd",
        "/api/users;x",
        "/api/queues/%2F/x?columns=" + "a." * 3_000,
        "/api/queues?sort=" + "a." * 3_000 + "&page=1&name=%28%28&use_regex=true",
    ],
)
def test_odd_paths_are_answered_with_4xx(api: Api, path: str) -> None:
    reply = raw(
        api.port, f"GET {path} HTTP/1.1\r\nhost: x\r\n{AUTHORIZATION}connection: close\r\n\r\n"
    )
    status = int(reply.split(b" ", 2)[1])
    assert status in (200, 400, 401, 404, 414, 431), reply[:200]
    assert status != 200 or path.startswith(("/api/queues?", "/api/queues/%2F/x?"))
    assert api.get("/api/whoami")["name"] == "guest"


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/9.9\r\n\r\n",
        "\x00\x01\x02\x03\r\n\r\n",
        "GET /api/whoami HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        (
            "POST /api/definitions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"
            "transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /api/users HTTP/1.1\r\n\r\n"
        ),
        "GET /api/whoami HTTP/1.1\r\nhost: x\r\nauthorization: Basic %%%\r\n\r\n",
        # Smuggling: a proxy in front might take the length of the request from another field.
        *(
            f"GET /api/whoami HTTP/1.1\r\nhost: x\r\n{AUTHORIZATION}{fields}\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            for fields in (
                "content-length: 4\r\ncontent-length: 5\r\n",
                "content-length: 5, 5\r\n",
                "content-length: +5\r\n",
                "content-length : 5\r\n",
                "transfer-encoding : chunked\r\n",
                "transfer-encoding: xchunked\r\n",
                "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
                "x: a\x00b\r\n",
                "x: a\rcontent-length: 5\r\n",
            )
        ),
        "GET /api/whoami HTTP/1.1\r\nhost: x\r\n" + "x: y\r\n" * 50_000 + "\r\n",
    ],
)
def test_malformed_requests_harm_nobody(api: Api, text: str) -> None:
    try:
        reply = raw(api.port, text)
    except ConnectionError:
        reply = b""
    assert b" 200 " not in reply.split(b"\r\n", 1)[0]
    assert api.get("/api/whoami")["name"] == "guest"


@pytest.mark.parametrize("line", ["GET /{} HTTP/1.1", "GET / HTTP/1.1\r\nauthorization: {}"])
def test_a_line_that_is_too_long_is_refused_with_a_reason(api: Api, line: str) -> None:
    secret = "aGk" * site.LINE_MAX_BYTES
    head, _, body = raw(api.port, line.format(secret) + "\r\nhost: x\r\n\r\n").partition(
        b"\r\n\r\n"
    )
    assert head.split(b" ", 2)[1] == b"400"
    assert b"application/json" in head
    assert secret[:20].encode() not in body


def test_huge_and_deep_bodies_are_refused(api: Api) -> None:
    deep = b"[" * 200_000 + b"]" * 200_000
    assert api.request("PUT", "/api/queues/%2F/q", deep).status == 400
    nested = ('{"a":' * 5_000 + "1" + "}" * 5_000).encode()
    assert api.request("PUT", "/api/queues/%2F/q", b'{"arguments":' + nested + b"}").status == 400
    length = site.BODY_MAX_BYTES + 1
    head = f"PUT /api/queues/%2F/q HTTP/1.1\r\nhost: x\r\n{AUTHORIZATION}content-length: {length}\r\n\r\n"
    assert raw(api.port, head).split(b" ", 2)[1] == b"400"


def test_other_sites_cannot_make_a_browser_change_anything(api: Api) -> None:
    for headers in (
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "null"},
    ):
        assert api.request("PUT", "/api/vhosts/x", {}, headers).status == 403
        assert api.request("GET", "/api/vhosts", None, headers).status == 200
    same = {"origin": f"http://127.0.0.1:{api.port}", "sec-fetch-site": "same-origin"}
    assert api.request("PUT", "/api/vhosts/x", {}, same).status == 201


def test_slow_requests_do_not_hold_up_others(broker: recado.Broker, api: Api) -> None:
    with ExitStack() as stack:
        for _ in range(200):
            peer = stack.enter_context(
                socket.create_connection(("127.0.0.1", api.port), timeout=60)
            )
            peer.sendall(b"GET /api/overview HTTP/1.1\r\nhost: x\r\nx-")
        assert api.get("/api/whoami")["name"] == "guest"
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel().queue_declare("q")
        connection.close()


def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "REQUEST_TIMEOUT_S", 0.2)
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        address = ("127.0.0.1", broker.management_port)
        with socket.create_connection(address, timeout=60) as peer:
            peer.sendall(b"GET /api/overview HTTP/1.1\r\nhost: x\r\nx-")
            assert peer.recv(65536) == b"" or b"408" in peer.recv(65536)


def test_secrets_are_not_in_the_audit_log(
    broker: recado.Broker, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="recado.audit")
    assert api.put("/api/users/ana", {"password": "hunter2", "tags": ""}) == 201
    assert api.put("/api/users/eva", {"tags": 1}) == 400
    entries = [
        json.loads(record.message) for record in caplog.records if record.name == "recado.audit"
    ]
    assert [entry["action"] for entry in entries] == ["PUT /api/users/{user}"]
    assert (entries[0]["user"], entries[0]["object"]) == ("guest", {"user": "ana"})
    assert entries[0]["address"] == "127.0.0.1"
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"authorization: Basic \xff\xfe\r\n", b"401"),
        (f"{AUTHORIZATION}origin: http://[::\r\n".encode(), b"403"),
        (f"{AUTHORIZATION}content-encoding: gzip\r\n".encode(), b"415"),
        (f"{AUTHORIZATION}content-encoding: Identity\r\n".encode(), b"201"),
    ],
)
def test_odd_headers_are_no_internal_errors(api: Api, fields: bytes, status: bytes) -> None:
    head = b"PUT /api/vhosts/x HTTP/1.1\r\nhost: x\r\n" + fields + b"content-length: 2\r\n\r\n{}"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as peer:
        peer.sendall(head)
        assert peer.recv(65536).split(b" ", 2)[1] == status


def test_malformed_requests_are_logged_without_their_headers(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    raw(api.port, f"PUT /api/vhosts/x HTTP/1.1\n{AUTHORIZATION}\r\n")
    assert "HTTP request failed: BadStatusLine (peer=127.0.0.1)" in caplog.text
    assert "Traceback" not in caplog.text
    assert "Z3Vlc3Q6Z3Vlc3Q" not in caplog.text
