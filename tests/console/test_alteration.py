"""`POST /api/queues/{vhost}/{queue}/alter`."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

import recado
from recado.broker import alteration
from recado.broker.steps import Steps
from recado.broker.work_queue import WorkQueue
from recado.server.server import Server

from .http import Api
from .test_queue_operations import api_of, connected, drain, fill

ALTER = "/api/queues/%2F/q/alter"
CONFIG: dict[str, Any] = {"management": {"port": 0}}


@pytest.fixture
def channel(broker: recado.Broker) -> Any:
    with connected(broker) as opened:
        yield opened


def test_arguments(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q", arguments={"x-max-length": 5, "x-message-ttl": 60_000})
    channel.queue_bind("q", "amq.topic", "a.#")
    fill(channel, "q", b"1", b"2", b"3")
    wanted = {"arguments": {"x-max-length": 2, "x-overflow": "drop-head"}}
    changes = {
        "x-max-length": {"before": 5, "after": 2},
        "x-message-ttl": {"before": 60_000, "after": None},
        "x-overflow": {"before": None, "after": "drop-head"},
    }
    reply = api.post(f"{ALTER}?dry_run=true", wanted)
    assert (reply.status, reply.body) == (200, {"altered": False, "changes": changes})
    assert api.get("/api/queues/%2F/q")["arguments"]["x-max-length"] == 5
    reply = api.post(ALTER, wanted)
    assert (reply.status, reply.body) == (200, {"altered": True, "changes": changes})
    assert api.post(ALTER, wanted).body == {"altered": False, "changes": {}}
    assert api.get("/api/queues/%2F/q")["arguments"] == wanted["arguments"]
    (exported,) = api.get("/api/definitions/%2F")["queues"]
    assert exported["arguments"] == wanted["arguments"]
    assert len(api.get("/api/queues/%2F/q/bindings")) == 2
    channel.queue_declare("q", arguments=wanted["arguments"])
    assert drain(channel, "q") == [(b"2", False), (b"3", False)]
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare("q", arguments={"x-max-length": 5, "x-message-ttl": 60_000})
    assert refused.value.reply_code == 406


def test_consumers_stay(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q", durable=True)
    fill(channel, "q", *(b"%d" % i for i in range(6)))
    channel.basic_qos(prefetch_count=2)
    deliveries = channel.consume("q", inactivity_timeout=60)
    first, second = next(deliveries)[0], next(deliveries)[0]
    assert first is not None
    assert second is not None
    assert api.post(ALTER, {"type": "quorum"}).status == 200
    shown = api.get("/api/queues/%2F/q")
    assert (shown["type"], shown["consumers"]) == ("quorum", 1)
    channel.basic_ack(first.delivery_tag)
    assert next(deliveries)[2] == b"2"
    channel.basic_nack(second.delivery_tag)
    method, properties, body = next(deliveries)
    assert (body, method.redelivered, properties.headers) == (b"1", True, {"x-delivery-count": 1})
    channel.cancel()
    assert [body for body, _ in drain(channel, "q")] == [b"3", b"4", b"5"]


def test_it_survives_a_restart(tmp_path: Path) -> None:
    sent = [b"%04d" % i for i in range(500)]
    with recado.Broker(data=tmp_path, config=CONFIG) as broker, connected(broker) as channel:
        api = api_of(broker)
        channel.queue_declare("q")
        channel.queue_bind("q", "amq.fanout")
        fill(channel, "q", *sent)
        assert api.post(ALTER, {"durable": True, "type": "quorum"}).status == 200
        fill(channel, "q", b"later")
        got = channel.basic_get("q")[0]
        assert got is not None
        channel.basic_ack(got.delivery_tag)
        channel.basic_get("q")
    with recado.Broker(data=tmp_path, config=CONFIG) as broker, connected(broker) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        channel.basic_publish("amq.fanout", "", b"last")
        found = drain(channel, "q")
        assert found == [
            (sent[1], True),
            *((body, False) for body in sent[2:]),
            (b"later", False),
            (b"last", False),
        ]
        assert api_of(broker).post(ALTER, {"type": "classic", "durable": False}).status == 200
        fill(channel, "q", b"lost")
    with recado.Broker(data=tmp_path, config=CONFIG) as broker:
        assert api_of(broker).request("GET", "/api/queues/%2F/q").status == 404


def test_refusals_name_the_field(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q", durable=True)
    for body, reason in (
        ({"type": "stream"}, "type: a queue of type classic cannot become a queue of type stream"),
        ({"type": "other"}, "type: invalid enum value 'other'"),
        ({"type": "quorum", "durable": False}, "invalid property 'non-durable'"),
        ({"durable": 1}, "durable: expected bool"),
        ({"exclusive": True}, "exclusive: cannot be altered"),
        ({"arguments": {"x-max-length": -1}}, "invalid arg 'x-max-length'"),
        ({"arguments": {"x-max-length": 2**70}}, "arguments.x-max-length"),
    ):
        reply = api.post(ALTER, body)
        assert (reply.status, reply.body["error"]) == (400, "bad_request"), body
        assert reason in reply.body["reason"]
        assert api.post(f"{ALTER}?dry_run=true", body).status == 400
    channel.queue_declare("mine", exclusive=True)
    reply = api.post("/api/queues/%2F/mine/alter", {"auto_delete": True})
    assert (reply.status, "exclusive" in reply.body["reason"]) == (400, True)
    assert api.post("/api/queues/%2F/none/alter", {}).status == 404


def test_permissions(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    assert api.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
    for configure, arguments, status in (
        ("^$", {}, 401),
        ("^q$", {"x-max-length": 1}, 200),
        ("^q$", {"x-dead-letter-exchange": "amq.direct"}, 401),
    ):
        rights = {"configure": configure, "write": "^q$", "read": "^q$"}
        assert api.put("/api/permissions/%2F/ana", rights) in (201, 204)
        ana = Api(api.port, "ana", "p")
        assert ana.post(f"{ALTER}?dry_run=true", {"arguments": arguments}).status == status


def test_the_audit_log(
    channel: BlockingChannel, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    channel.queue_declare("q")
    with caplog.at_level("INFO", logger="recado.audit"):
        api.post(f"{ALTER}?dry_run=true", {"auto_delete": True})
        api.post(ALTER, {"auto_delete": True})
    lines = [json.loads(each.getMessage()) for each in caplog.records]
    assert [line["action"] for line in lines] == ["POST /api/queues/{vhost}/{queue}/alter"] * 2
    assert lines[1]["details"] == {
        "altered": True,
        "changes": {"auto_delete": {"before": False, "after": True}},
    }


def test_the_audit_log_tells_that_an_alteration_is_completed_without_its_client(
    channel: BlockingChannel,
    api: Api,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel.queue_declare("q")
    fill(channel, "q", b"1")
    has_started, may_end = threading.Event(), threading.Event()
    rebucket = WorkQueue.rebucket

    def slow(queue: WorkQueue, max_priority: int | None) -> Steps[None]:
        has_started.set()
        while not may_end.is_set():
            yield 1
        yield from rebucket(queue, max_priority)

    monkeypatch.setattr(WorkQueue, "rebucket", slow)
    deadline = time.monotonic() + 60
    with caplog.at_level("INFO", logger="recado.audit"):
        client = HTTPConnection("127.0.0.1", api.port, timeout=60)
        authorization = "Basic " + b64encode(b"guest:guest").decode()
        body = json.dumps({"arguments": {"x-max-priority": 2}})
        client.request("POST", ALTER, body, {"Authorization": authorization})
        try:
            assert has_started.wait(60)
            client.close()
            while len(caplog.records) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert api.post(ALTER, {"auto_delete": True}).status == 409
        finally:
            may_end.set()
    details = json.loads(caplog.records[1].getMessage())["details"]
    assert details == {"altered": True, "changes": {"x-max-priority": {"before": None, "after": 2}}}
    while api.post(ALTER, {"auto_delete": True}).status == 409:
        assert time.monotonic() < deadline
    assert api.get("/api/queues/%2F/q")["arguments"] == {"x-max-priority": 2}
    assert drain(channel, "q") == [(b"1", False)]


def test_one_alteration_at_a_time(
    channel: BlockingChannel, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.queue_declare("q")
    has_started, may_end = threading.Event(), threading.Event()
    prepare = alteration._prepare

    def slow(*args: Any) -> Steps[None]:
        has_started.set()
        while not may_end.is_set():
            yield 1
        yield from prepare(*args)

    monkeypatch.setattr(alteration, "_prepare", slow)
    replies: list[int] = []
    thread = threading.Thread(
        target=lambda: replies.append(api.post(ALTER, {"durable": True}).status)
    )
    thread.start()
    try:
        assert has_started.wait(60)
        reply = Api(api.port).post(ALTER, {"auto_delete": True})
        assert (reply.status, reply.body["error"]) == (409, "conflict")
        fill(channel, "q", b"meanwhile")
        assert drain(channel, "q") == [(b"meanwhile", False)]
    finally:
        may_end.set()
        thread.join(60)
    assert replies == [200]


def test_a_node_with_an_alarm_stores_no_further_queue(
    channel: BlockingChannel, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.queue_declare("q")
    monkeypatch.setattr(Server, "alarm", property(lambda server: "low on disk"), raising=False)
    monkeypatch.setattr(Server, "check_resources", lambda server: None)
    reply = api.post(ALTER, {"durable": True})
    assert (reply.status, reply.body["error"]) == (503, "alarm")
    assert api.post(ALTER, {"arguments": {"x-max-length": 1}}).status == 200


def test_clients_go_on_while_a_long_queue_is_altered(tmp_path: Path) -> None:
    """20,000 messages become durable while another client publishes and gets."""
    with recado.Broker(data=tmp_path, config=CONFIG) as broker, connected(broker) as channel:
        api = api_of(broker)
        channel.queue_declare("q")
        channel.queue_declare("other")
        unconfirmed = channel.connection.channel()
        for i in range(20_000):
            properties = pika.BasicProperties(delivery_mode=2, headers={"n": i})
            unconfirmed.basic_publish("", "q", b"%06d" % i, properties)
        unconfirmed.queue_declare("q", passive=True)
        replies: list[Any] = []
        thread = threading.Thread(
            target=lambda: replies.append(
                api.post(ALTER, {"durable": True, "arguments": {"x-max-length-bytes": 10**9}})
            )
        )
        thread.start()
        count = 0
        deadline = time.monotonic() + 120
        while thread.is_alive():
            assert time.monotonic() < deadline
            fill(channel, "other", b"x")
            assert drain(channel, "other") == [(b"x", False)]
            fill(channel, "q", b"new %d" % count, delivery_mode=2)
            count += 1
        thread.join()
        assert replies[0].status == 200, replies
        assert count >= 1
    with recado.Broker(data=tmp_path, config=CONFIG) as broker, connected(broker) as channel:
        declared = channel.queue_declare("q", durable=True, arguments={"x-max-length-bytes": 10**9})
        assert declared.method.message_count == 20_000 + count
        found = [body for body, _ in drain(channel, "q")]
        assert found[:20_000] == [b"%06d" % i for i in range(20_000)]
        assert found[20_000:] == [b"new %d" % i for i in range(count)]
