"""Operations on queues over HTTP that RabbitMQ does not have."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado
from recado.broker.move import BATCH_LIMITS
from recado.console import broker_steps
from recado.server.server import Server

from .http import Api

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def connected(broker: recado.Broker) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    with connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def channel(broker: recado.Broker) -> Iterator[BlockingChannel]:
    with connected(broker) as opened:
        yield opened


def api_of(broker: recado.Broker) -> Api:
    assert broker.management_port is not None
    return Api(broker.management_port)


def drain(channel: BlockingChannel, queue: str) -> list[tuple[bytes, bool]]:
    """Return all messages, each with its redelivered flag."""
    found: list[tuple[bytes, bool]] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None or body is None:
            return found
        found.append((body, method.redelivered))


# ── peek ────────────────────────────────────────────────────────────────────────────────────────────


def payloads(api: Api, queue: str, **body: Any) -> list[str]:
    reply = api.post(f"/api/queues/%2F/{queue}/peek", body)
    assert reply.status == 200, reply
    return [message["payload"] for message in reply.body]


def test_offsets_of_a_stream(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for _ in range(5):
        channel.basic_publish("", "s", b"x")
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("s", print, arguments={"x-stream-offset": 1})
    found = api.get("/api/queues/%2F/s/offsets")
    assert (found["first_offset"], found["durable_offset"], found["next_offset"]) == (0, 5, 5)
    (consumer,) = found["consumers"]
    assert (consumer["next_offset"], consumer["lag"]) == (3, 2)
    assert consumer["channel_details"]["user"] == "guest"
    channel.queue_declare("q")
    assert api.request("GET", "/api/queues/%2F/q/offsets").status == 400


def test_a_text_is_cut_between_characters(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    channel.basic_publish("", "q", "añejo €".encode())
    for truncate, text in ((2, "a"), (3, "añ"), (8, "añejo "), (9, "añejo "), (10, "añejo €")):
        (message,) = api.post("/api/queues/%2F/q/peek", {"truncate": truncate}).body
        assert (message["payload"], message["payload_encoding"]) == (text, "string")
    channel.basic_publish("", "q", b"\xffa")
    assert (
        api.post("/api/queues/%2F/q/peek", {"truncate": 1, "skip": 1}).body[0]["payload"] == "/w=="
    )


def test_peek_changes_nothing(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    headers = {"n": 1, "nested": {"x": [True, None]}}
    for body in (b"one", b"\xff\x00", b"three"):
        properties = pika.BasicProperties(headers=headers, message_id="m", priority=3)
        channel.basic_publish("", "q", body, properties)
    for _ in range(3):
        reply = api.post("/api/queues/%2F/q/peek", {"count": 2})
        assert reply.status == 200
        assert reply.body == [
            {
                "offset": 0,
                "payload_bytes": 3,
                "redelivered": False,
                "exchange": "",
                "routing_key": "q",
                "properties": {"headers": headers, "message_id": "m", "priority": 3},
                "payload": "one",
                "payload_encoding": "string",
            },
            {**reply.body[1], "offset": 1, "payload": "/wA=", "payload_encoding": "base64"},
        ]
    assert payloads(api, "q", encoding="base64", count=1) == ["b25l"]
    assert drain(channel, "q") == [(b"one", False), (b"\xff\x00", False), (b"three", False)]


def test_peek_sees_what_the_next_get_would_return(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q", arguments={"x-max-priority": 5})
    for priority in (1, 4, 2):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", "q", b"%d" % priority, properties)
    assert payloads(api, "q") == ["4", "2", "1"]
    method, _, _ = channel.basic_get("q")
    assert payloads(api, "q") == ["2", "1"]
    channel.basic_nack(method.delivery_tag)
    assert payloads(api, "q", skip=1, count=1) == ["2"]
    (first, *_) = api.post("/api/queues/%2F/q/peek", {}).body
    assert (first["payload"], first["redelivered"]) == ("4", True)
    get = {"count": 3, "encoding": "auto", "ackmode": "ack_requeue_false"}
    got = api.post("/api/queues/%2F/q/get", get).body
    assert [(each["payload"], each["redelivered"]) for each in got] == [
        ("4", True),
        ("2", False),
        ("1", False),
    ]


def test_peek_with_a_selector(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    for i in range(20):
        channel.basic_publish("", "q", b'{"price": %d}' % i)
    assert payloads(api, "q", selector="json.price > 17") == ['{"price": 18}', '{"price": 19}']
    assert payloads(api, "q", selector="offset = 4", truncate=3) == ['{"p']
    reply = api.post("/api/queues/%2F/q/peek", {"selector": "priority >"})
    assert reply.status == 400
    assert reply.body["reason"] == "selector: line 1, column 11: expected a value, found the end"


def test_peek_at_a_stream(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for i in range(5):
        channel.basic_publish("", "s", b"%d" % i)
    assert payloads(api, "s") == ["0", "1", "2", "3", "4"]
    assert payloads(api, "s", offset=3) == ["3", "4"]
    assert payloads(api, "s", offset="last") == ["4"]
    assert payloads(api, "s", offset="1h", skip=1, count=2) == ["1", "2"]
    assert payloads(api, "s", offset="next") == []
    assert payloads(api, "s", selector="offset > 2") == ["3", "4"]
    for wrong in ("soon", -1, True, 1.5):
        reply = api.post("/api/queues/%2F/s/peek", {"offset": wrong})
        assert (reply.status, "offset" in reply.body["reason"]) == (400, True), reply
    channel.queue_declare("q")
    reply = api.post("/api/queues/%2F/q/peek", {"offset": 3})
    assert (reply.status, "only a stream" in reply.body["reason"]) == (400, True)


def test_peek_at_messages_on_disk(tmp_path: Path) -> None:
    """After a restart all messages are paged out, and stay so."""
    config: dict[str, Any] = {"management": {"port": 0}}
    sent = [b"%06d" % i for i in range(3_000)]
    with recado.Broker(data=tmp_path, config=config) as broker, connected(broker) as channel:
        channel.queue_declare("q", durable=True)
        unconfirmed = channel.connection.channel()
        for body in sent:
            unconfirmed.basic_publish("", "q", body, PERSISTENT)
        unconfirmed.close()
    with recado.Broker(data=tmp_path, config=config) as broker, connected(broker) as channel:
        api = api_of(broker)
        assert payloads(api, "q", count=3, skip=2_500) == ["002500", "002501", "002502"]
        assert payloads(api, "q", selector="body LIKE '%999'") == ["000999", "001999", "002999"]
        assert drain(channel, "q") == [(body, False) for body in sent]


def test_peek_needs_an_accessible_queue(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("mine", exclusive=True)
    assert api.post("/api/queues/%2F/none/peek", {}).status == 404
    assert api.post("/api/queues/none/none/peek", {}).status == 404
    reply = api.post("/api/queues/%2F/mine/peek", {})
    assert (reply.status, "exclusive" in reply.body["reason"]) == (400, True)


@pytest.mark.parametrize("name", ["count", "skip", "selector", "encoding", "truncate"])
def test_wrong_fields_are_named(channel: BlockingChannel, api: Api, name: str) -> None:
    channel.queue_declare("q")
    wrong: tuple[object, ...] = ({}, [1], True, None)
    for value in wrong:
        reply = api.post("/api/queues/%2F/q/peek", {name: value})
        assert (reply.status, name in reply.body["reason"]) == (400, True), reply


# ── move ────────────────────────────────────────────────────────────────────────────────────────────


def fill(channel: BlockingChannel, queue: str, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def test_move(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    channel.queue_declare("to")
    sent = [b"%d" % i for i in range(700)]
    fill(channel, "q", *sent, headers={"n": 1})
    channel.basic_get("q")
    channel.basic_recover(requeue=True)  # the first message is marked as redelivered
    path = "/api/queues/%2F/q/move"
    reply = api.post(path, {"destination": "to", "selector": "offset = 3"})
    assert (reply.status, reply.body) == (200, {"moved": 1, "left": 699, "reason": None})
    reply = api.post(path, {"destination": "to", "count": 500})
    assert reply.body == {"moved": 500, "left": 199, "reason": None}
    assert drain(channel, "to") == [(b"3", False), *((b, False) for b in sent[:501] if b != b"3")]
    assert drain(channel, "q") == [(body, False) for body in sent[501:]]


def test_move_stops_at_a_full_queue(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    channel.queue_declare("to", arguments={"x-max-length": 2})
    fill(channel, "q", b"1", b"2", b"3")
    reply = api.post("/api/queues/%2F/q/move", {"destination": "to"})
    assert reply.status == 200
    assert (reply.body["moved"], reply.body["left"]) == (2, 1)
    assert "max-length" in reply.body["reason"]


def test_move_to_another_vhost(broker: recado.Broker, api: Api) -> None:
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.put("/api/vhosts/other", {}) == 201
    assert api.put("/api/vhosts/secret", {}) == 201
    assert api.put("/api/queues/%2F/q", {}) == 201
    assert api.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
    assert api.put("/api/permissions/%2F/ana", everything) == 201
    ana, path = Api(api.port, "ana", "p"), "/api/queues/%2F/q/move"
    for vhost in ("secret", "missing"):
        reply = ana.post(path, {"destination": "to", "destination_vhost": vhost})
        assert (reply.status, reply.body["reason"]) == (401, "destination_vhost: access refused")
    assert api.put("/api/permissions/other/ana", {**everything, "write": "^to$"}) == 201
    message = {"routing_key": "q", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert api.post("/api/exchanges/%2F/amq.default/publish", message).body == {"routed": True}
    target = {"destination": "to", "destination_vhost": "other"}
    assert ana.post(path, target).status == 404
    assert api.put("/api/permissions/other/guest", everything) in (201, 204)
    assert api.put("/api/queues/other/to", {}) == 201
    assert ana.post(path, {**target, "destination": "more"}).status == 401
    assert ana.post(path, target).body["moved"] == 1
    assert [each["payload"] for each in api.post("/api/queues/other/to/peek", {}).body] == ["x"]


def test_what_cannot_be_moved(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    channel.queue_declare("mine", exclusive=True)
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for queue, body, status, reason in (
        ("q", {"destination": "q"}, 400, "the queue itself"),
        ("q", {"destination": "none"}, 404, "no queue 'none'"),
        ("q", {"destination": "mine"}, 400, "exclusive"),
        ("q", {"destination": ""}, 400, "destination"),
        ("q", {}, 400, "destination"),
        ("q", {"destination": "s", "count": 0}, 400, "count"),
        ("q", {"destination": "s", "selector": "x"}, 400, "selector"),
        ("s", {"destination": "q"}, 400, "stream"),
        ("none", {"destination": "q"}, 404, "Not Found"),
    ):
        reply = api.post(f"/api/queues/%2F/{queue}/move", body)
        assert (reply.status, reason in reply.body["reason"]) == (status, True), reply


def test_a_move_to_a_stream(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    fill(channel, "q", b"1", b"2")
    assert api.post("/api/queues/%2F/q/move", {"destination": "s"}).body["moved"] == 2
    assert payloads(api, "s") == ["1", "2"]
    assert drain(channel, "q") == []


def test_a_move_is_in_the_audit_log(
    channel: BlockingChannel, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    channel.queue_declare("q")
    channel.queue_declare("to")
    fill(channel, "q", b"1", b"2")
    with caplog.at_level("INFO", logger="recado.audit"):
        assert api.post("/api/queues/%2F/q/move", {"destination": "to"}).status == 200
    start, end = (json.loads(record.getMessage()) for record in caplog.records)
    assert start["action"] == end["action"] == "POST /api/queues/{vhost}/{queue}/move"
    assert end["object"] == {"vhost": "/", "queue": "q"}
    assert "details" not in start
    assert end["details"] == {"destination": "to", "destination_vhost": "/", "moved": 2}


def test_a_move_stops_when_publishers_are_blocked(
    broker: recado.Broker, channel: BlockingChannel, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.queue_declare("q")
    channel.queue_declare("to")
    fill(channel, "q", *(b"%d" % i for i in range(300)))
    alarms = iter((None, "low on disk"))
    changing = property(lambda server: next(alarms, "low on disk"))
    monkeypatch.setattr(Server, "alarm", changing, raising=False)
    monkeypatch.setattr(Server, "check_resources", lambda server: None)
    reply = api.post("/api/queues/%2F/q/move", {"destination": "to"})
    assert (reply.status, reply.body["moved"]) == (200, BATCH_LIMITS.message_count)
    assert reply.body["reason"] == "publishers are blocked: low on disk"
    reply = api.post("/api/queues/%2F/q/move", {"destination": "to"})
    assert (reply.status, reply.body["error"]) == (503, "alarm")


def test_moved_messages_survive_a_restart(tmp_path: Path) -> None:
    config: dict[str, Any] = {"management": {"port": 0}}
    sent = [b"%04d" % i for i in range(600)]
    with recado.Broker(data=tmp_path, config=config) as broker, connected(broker) as channel:
        for name in ("q", "to"):
            channel.queue_declare(name, durable=True)
        unconfirmed = channel.connection.channel()
        fill(unconfirmed, "q", *sent, delivery_mode=2)
        unconfirmed.close()
    with recado.Broker(data=tmp_path, config=config) as broker:
        path, selector = "/api/queues/%2F/q/move", "body LIKE '%5'"
        reply = api_of(broker).post(path, {"destination": "to", "selector": selector})
        assert reply.body == {"moved": 60, "left": 540, "reason": None}
    with recado.Broker(data=tmp_path, config=config) as broker, connected(broker) as channel:
        assert drain(channel, "to") == [(body, False) for body in sent[5::10]]
        assert drain(channel, "q") == [(body, False) for body in sent if body[-1:] != b"5"]


def test_a_move_stops_when_the_client_disconnects(
    broker: recado.Broker,
    channel: BlockingChannel,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At the end of a batch: no message is lost, and the audit log says how many were moved."""
    has_started, has_closed, sleep = threading.Event(), threading.Event(), asyncio.sleep

    async def wait_until_closed(_delay: float) -> None:
        has_started.set()
        while not has_closed.is_set():
            await sleep(0.001)
        await sleep(0.01)

    for name in ("q", "to"):
        channel.queue_declare(name)
    fill(channel, "q", *(b"%d" % i for i in range(1_000)))
    monkeypatch.setattr(broker_steps, "asyncio", SimpleNamespace(sleep=wait_until_closed))
    monkeypatch.setattr(broker_steps, "SLICE_S", 0)
    with caplog.at_level("INFO", logger="recado.audit"):
        with socket.create_connection(("127.0.0.1", api.port)) as client:
            body = b'{"destination": "to"}'
            head = f"POST /api/queues/%2F/q/move HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}"
            token = base64.b64encode(b"guest:guest").decode()
            client.sendall(f"{head}\r\nauthorization: Basic {token}\r\n\r\n".encode() + body)
            assert has_started.wait(60)
        has_closed.set()
        deadline = time.monotonic() + 60
        while len(caplog.records) < 2:
            assert time.monotonic() < deadline
            channel.connection.process_data_events(0.01)
    moved = json.loads(caplog.records[1].getMessage())["details"]["moved"]
    assert 0 < moved < 1_000
    assert [int(body) for body, _ in drain(channel, "to")] == list(range(moved))
    assert [int(body) for body, _ in drain(channel, "q")] == list(range(moved, 1_000))


# ── replay ──────────────────────────────────────────────────────────────────────────────────────────


def declare_with_dead_letters(channel: BlockingChannel, *queues: str) -> None:
    channel.queue_declare("dead", durable=True)
    for queue in queues:
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare(queue, durable=True, arguments=arguments)


def reject_all(channel: BlockingChannel, queue: str) -> None:
    while True:
        method, _, _ = channel.basic_get(queue)
        if method is None:
            return
        channel.basic_reject(method.delivery_tag, requeue=False)


def test_replay(channel: BlockingChannel, api: Api) -> None:
    declare_with_dead_letters(channel, "a", "b")
    channel.queue_bind("a", "amq.topic", "jobs.#")
    channel.basic_publish("amq.topic", "jobs.new", b"1", pika.BasicProperties(type="job"))
    fill(channel, "b", b"2", b"3")
    fill(channel, "dead", b"never died")
    for queue in ("a", "b"):
        reject_all(channel, queue)
    path = "/api/queues/%2F/dead/replay"
    reply = api.post(path, {"selector": "type = 'job' OR body = '3' OR body LIKE 'never%'"})
    assert reply.status == 200
    assert reply.body == {"replayed": 2, "kept": {"no_x_death": 1}, "left": 2, "reason": None}
    method, properties, body = channel.basic_get("a", auto_ack=True)
    assert (method.exchange, method.routing_key, method.redelivered, body) == (
        "amq.topic",
        "jobs.new",
        False,
        b"1",
    )
    assert properties.headers["x-replay-count"] == 1
    assert properties.headers["x-death"][0]["count"] == 1
    assert drain(channel, "b") == [(b"3", False)]


def test_cycles_of_replays_end(channel: BlockingChannel, api: Api) -> None:
    declare_with_dead_letters(channel, "a")
    fill(channel, "a", b"poison")
    path, body = "/api/queues/%2F/dead/replay", {"max_replays": 2}
    for replayed in (1, 1, 0):
        reject_all(channel, "a")
        reply = api.post(path, body)
        assert reply.body["replayed"] == replayed
    assert reply.body["kept"] == {"replayed_too_often": 1}
    (message,) = api.post("/api/queues/%2F/dead/peek", {}).body
    headers = message["properties"]["headers"]
    assert (headers["x-replay-count"], headers["x-death"][0]["count"]) == (2, 3)


def test_replay_needs_permission_to_write(channel: BlockingChannel, api: Api) -> None:
    """Whether the queue exists is not revealed."""
    declare_with_dead_letters(channel, "a", "gone")
    fill(channel, "a", b"1")
    fill(channel, "gone", b"2")
    for queue in ("a", "gone"):
        reject_all(channel, queue)
    channel.queue_delete("gone")
    assert api.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
    permission = {"configure": "", "write": "^b$", "read": "^dead$"}
    assert api.put("/api/permissions/%2F/ana", permission) == 201
    path = "/api/queues/%2F/dead/replay"
    assert Api(api.port, "ana", "p").post(path, {}).body["kept"] == {"not_permitted": 2}
    assert api.post(path, {}).body["kept"] == {"queue_gone": 1}


def test_replay_of_a_stream_is_refused(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    reply = api.post("/api/queues/%2F/s/replay", {})
    assert (reply.status, "stream" in reply.body["reason"]) == (400, True)


def test_a_replay_is_in_the_audit_log(
    channel: BlockingChannel, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    declare_with_dead_letters(channel, "a")
    fill(channel, "a", b"1")
    reject_all(channel, "a")
    with caplog.at_level("INFO", logger="recado.audit"):
        assert api.post("/api/queues/%2F/dead/replay", {}).status == 200
    end = json.loads(caplog.records[-1].getMessage())
    assert end["action"] == "POST /api/queues/{vhost}/{queue}/replay"
    assert end["details"] == {"replayed": 1, "kept": {}}


def test_a_transient_queue_of_a_node_with_a_data_folder(tmp_path: Path) -> None:
    """The store does not know the queue."""
    with recado.Broker(data=tmp_path, config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        for name in ("transient", "other"):
            assert api.put(f"/api/queues/%2F/{name}", {"durable": False}) == 201
        message = {
            "properties": {},
            "routing_key": "transient",
            "payload": "x",
            "payload_encoding": "string",
        }
        assert api.post("/api/exchanges/%2F/amq.default/publish", message).status == 200
        peeked = api.post("/api/queues/%2F/transient/peek", {}).body
        assert [each["payload"] for each in peeked] == ["x"]
        moved = api.post("/api/queues/%2F/transient/move", {"destination": "other"}).body
        assert moved == {"moved": 1, "left": 0, "reason": None}
