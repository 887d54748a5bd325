"""Readers of events that do not read, too many of them, and too many events: nobody else notices."""

from __future__ import annotations

import base64
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pika
import pytest

import recado
from bench.processes import allow_many_open_files, resident_megabytes
from recado.console.events import log, recorder, streams
from recado.console.events.streams import EventStreams
from workshop import peers
from workshop.time_limit import scale

from .events import EventStream
from .http import Api

LONG = "n" * 200
# The kernel drops connections that exceed the backlog of the listener, and clients retry after a second.
CONNECTIONS_AT_ONCE = 50


@pytest.fixture
def node() -> Iterator[tuple[recado.Broker, Api, EventStreams]]:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        management = broker._require_running().management
        assert management is not None
        yield broker, Api(management.port), management.console.events


def open_unread(port: int, user: str = "guest", password: str = "guest") -> socket.socket:
    """Request the stream with a small receive buffer, and read nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    peer.settimeout(scale(60))
    peer.connect(("127.0.0.1", port))
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    head = (
        f"GET /api/events?types=queue HTTP/1.1\r\nhost: x\r\nauthorization: Basic {token}\r\n\r\n"
    )
    peer.sendall(head.encode())
    return peer


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + scale(60)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def make_queues(broker: recado.Broker, start: int, count: int) -> None:
    """Declare many queues at once, in one turn of the event loop."""
    queues = [
        {"name": f"{LONG}{number}", "durable": False, "auto_delete": False, "arguments": {}}
        for number in range(start, start + count)
    ]
    broker.import_definitions({"queues": queues}, vhost="/")


def is_blocked(open_streams: EventStreams) -> bool:
    return any(stream.is_blocked for stream in list(open_streams._streams))


def block(node: tuple[recado.Broker, Api, EventStreams]) -> int:
    """Make changes until a reader is blocked; return the number of new queues."""
    broker, _, open_streams = node
    count = 0
    deadline = time.monotonic() + scale(60)
    while not is_blocked(open_streams):
        assert time.monotonic() < deadline
        make_queues(broker, count, 200)
        count += 200
        wait_until(lambda: open_streams._flush_timer is None)
        time.sleep(0.01)  # a write that does not block has ended then
    return count


def test_a_slow_reader_is_told_how_many_events_it_missed(
    node: tuple[recado.Broker, Api, EventStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, api, _ = node
    monkeypatch.setattr(streams, "FLUSH_INTERVAL_S", 0.0)
    monkeypatch.setattr(log, "PAYLOADS_MAX_COUNT", 100)
    monkeypatch.setattr(recorder, "NOTED_MAX_COUNT", 1_000)
    with EventStream(api.port, types="queue", receive_buffer_bytes=4_096) as stream:
        count = block(node)
        make_queues(broker, count, 200)  # more than the log keeps
        broker.import_definitions({"queues": [queue("last")]}, vhost="/")
        found = stream.find_all("queue.created", name="last")
    skipped = [event.data["count"] for event in found if event.type == "stream.skipped"]
    created = [event for event in found if event.type == "queue.created"]
    assert skipped
    assert len(created) + len(skipped) == len(found)
    assert len(created) + sum(skipped) == count + 200


def queue(name: str) -> dict[str, Any]:
    return {"name": name, "durable": False, "auto_delete": False, "arguments": {}}


def test_a_reader_that_never_reads_is_disconnected(
    node: tuple[recado.Broker, Api, EventStreams],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, _, open_streams = node
    caplog.set_level("INFO", logger="recado.console")
    monkeypatch.setattr(streams, "FLUSH_INTERVAL_S", 0.0)
    with open_unread(broker.management_port or 0):
        wait_until(lambda: open_streams.count == 1)
        monkeypatch.setattr(streams, "UNREAD_TIMEOUT_S", 0.05)
        count = 0
        while open_streams.count:
            make_queues(broker, count, 200)
            count += 200
    assert "closing event stream: the client does not read (user='guest'" in caplog.text


def test_a_deleted_user_is_disconnected_although_it_does_not_read(
    node: tuple[recado.Broker, Api, EventStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, api, open_streams = node
    monkeypatch.setattr(streams, "FLUSH_INTERVAL_S", 0.0)
    assert api.put("/api/users/eva", {"password": "p", "tags": "administrator"}) == 201
    with open_unread(api.port, "eva", "p"):
        wait_until(lambda: open_streams.count == 1)
        block(node)
        assert api.delete("/api/users/eva") == 204
        wait_until(lambda: open_streams.count == 0)


def test_a_burst_of_changes_is_counted(node: tuple[recado.Broker, Api, EventStreams]) -> None:
    broker, api, open_streams = node
    count = 3_000
    with EventStream(api.port, types="queue") as stream, EventStream(api.port) as other:
        entries = [queue(f"b{number}") for number in range(count)]
        broker.import_definitions({"queues": entries}, vhost="/")
        seen = 0
        while seen < count:
            event = stream.read()
            if event.type == "stream.burst":
                assert (event.data["type"], event.data["vhost"]) == ("queue.created", "/")
                seen += event.data["count"]
            else:
                assert event.type == "queue.created"
                seen += 1
        assert seen == count
        assert open_streams.log.end - open_streams.log.first <= recorder.NOTED_MAX_COUNT + 1
        other.find("stream.burst")
    open_streams.log.check()


def test_too_many_kinds_of_changes_reset_the_readers(
    node: tuple[recado.Broker, Api, EventStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, api, _ = node
    monkeypatch.setattr(recorder, "NOTED_MAX_COUNT", 1)
    monkeypatch.setattr(recorder, "COUNTED_KEYS_MAX_COUNT", 1)
    with EventStream(api.port, types="vhost") as stream:
        broker.import_definitions({"vhosts": [{"name": f"v{n}"} for n in range(4)]})
        types = [stream.read().type for _ in range(3)]
    assert types == ["vhost.created", "stream.burst", "stream.reset"]


def test_hundreds_of_readers_that_do_not_read_harm_nobody(
    node: tuple[recado.Broker, Api, EventStreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, api, open_streams = node
    monkeypatch.setattr(streams, "STREAMS_MAX_COUNT", 40)
    for number in range(4):
        api.put(f"/api/users/u{number}", {"password": "p", "tags": "administrator"})
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    with ExitStack() as stack:
        peers = [
            stack.enter_context(open_unread(api.port, f"u{number % 4}", "p"))
            for number in range(150)
        ]
        statuses = [peer.recv(12, socket.MSG_WAITALL)[9:] for peer in peers]
        assert statuses.count(b"200") == open_streams.count == 40
        assert statuses.count(b"503") == 110
        for start in range(0, 2_000, 200):
            make_queues(broker, start, 200)
            channel.queue_declare("ping")
            assert api.get("/api/whoami")["name"] == "guest"
        assert open_streams.count == 40
        assert open_streams.log.size <= log.PAYLOADS_MAX_BYTES
        writers: list[Any] = list(open_streams._streams.values())
        unread = [each._request.transport.get_write_buffer_size() for each in writers]
        assert max(unread) < 256 * 1024
    wait_until(lambda: open_streams.count == 0)
    connection.close()


def test_two_thousand_readers_that_do_not_read_harm_nobody() -> None:
    """With the limits as they are; the node is a process of its own."""
    readers_count, users_count, memory_max_megabytes = 2_000, 10, 64
    allow_many_open_files()
    (port,) = peers.free_ports(1)
    with peers.recado(arguments=("--management-port", str(port))) as server, ExitStack() as stack:
        api = Api(port)
        for number in range(users_count):
            api.put(f"/api/users/u{number}", {"password": "p", "tags": "administrator"})
        before = resident_megabytes(server.pid)
        statuses: Counter[bytes] = Counter()
        for _ in range(0, readers_count, CONNECTIONS_AT_ONCE):
            readers = [
                stack.enter_context(open_unread(port, f"u{number % users_count}", "p"))
                for number in range(CONNECTIONS_AT_ONCE)
            ]
            statuses.update(peer.recv(12, socket.MSG_WAITALL)[9:] for peer in readers)
        assert statuses[b"200"] == streams.STREAMS_MAX_COUNT
        assert statuses.total() - statuses[b"200"] == statuses[b"503"] + statuses[b"429"]
        connection = pika.BlockingConnection(pika.URLParameters(server.url))
        channel = connection.channel()
        for number in range(20):
            queues = [
                {"name": f"{LONG}{number}.{n}", "durable": False, "auto_delete": False}
                for n in range(100)
            ]
            assert api.post("/api/definitions/%2F", {"queues": queues}).status == 204
            channel.queue_declare("ping")
            assert api.get("/api/whoami")["name"] == "guest"
        assert resident_megabytes(server.pid) - before < memory_max_megabytes
        connection.close()
