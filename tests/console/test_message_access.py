"""Who sees bodies and masked fields over HTTP, and who may reveal them."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from typing import Any

import pika
import pytest

import recado
from recado.node.config import ConfigError

from .http import Api, Reply

CARD = {"card": {"number": "4111", "name": "Ana"}, "price": 7}
TAGS = {"ana": "management", "bia": "management,bodies", "rui": "management,bodies,auditor"}
FULL = {"configure": ".*", "write": ".*", "read": ".*"}
MANAGEMENT = {
    "port": 0,
    "body_tag": "bodies",
    "masked_fields": ["json.card.number", "headers.authorization"],
    "reveal_tag": "auditor",
}


@pytest.fixture
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": MANAGEMENT}) as running:
        yield running


@pytest.fixture
def users(broker: recado.Broker) -> dict[str, Api]:
    """One user for each set of tags, who may do everything in the vhost, and a queue and a stream."""
    port = broker.management_port
    assert port is not None
    guest = Api(port)
    for name, tags in TAGS.items():
        assert guest.put(f"/api/users/{name}", {"password": name, "tags": tags}) == 201
        assert guest.put(f"/api/permissions/%2F/{name}", FULL) == 201
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q")
        stream = {"x-queue-type": "stream"}
        channel.queue_declare("s", durable=True, arguments=stream)
        for queue in ("q", "s"):
            headers = {"authorization": "Bearer x", "n": 1}
            properties = pika.BasicProperties(headers=headers, content_type="application/json")
            channel.basic_publish("", queue, json.dumps(CARD).encode(), properties)
            channel.basic_publish("", queue, b"\xff\x00 bytes")
            compressed = pika.BasicProperties(headers={"compression": "application/x-gzip"})
            channel.basic_publish("", queue, gzip.compress(b'{"card": 1}'), compressed)
    return {"guest": guest, **{name: Api(port, name, name) for name in TAGS}}


def peek(api: Api, queue: str = "q", **body: Any) -> Reply:
    return api.post(f"/api/queues/%2F/{queue}/peek", body)


def get(api: Api, mode: str = "ack_requeue_true", **body: Any) -> Reply:
    wanted = {"count": 9, "ackmode": mode, "encoding": "auto", **body}
    return api.post("/api/queues/%2F/q/get", wanted)


@pytest.mark.parametrize("ask", [peek, get])
def test_bodies_are_shown_to_users_with_the_tag_only(users: dict[str, Api], ask: Any) -> None:
    for name in ("ana", "guest"):
        messages = ask(users[name]).body
        assert [each["payload"] for each in messages] == ["", "", ""]
        assert [each["masked"] for each in messages] == [
            ["headers.authorization", "body"],
            ["body"],
            ["body"],
        ]
        assert messages[0]["payload_bytes"] == len(json.dumps(CARD))
        assert messages[0]["properties"]["headers"] == {"authorization": "***", "n": 1}
    card, plain, compressed = ask(users["bia"]).body
    assert card["payload"] == '{"card":{"number":"***","name":"Ana"},"price":7}'
    assert card["masked"] == ["headers.authorization", "json.card.number"]
    assert card["payload_bytes"] == len(json.dumps(CARD))
    assert (plain["payload"], plain["payload_encoding"]) == ("/wAgYnl0ZXM=", "base64")
    assert "masked" not in plain
    assert (compressed["payload"], compressed["masked"]) == ("", ["body"])


@pytest.mark.parametrize("ask", [peek, get])
def test_bodies_are_shortened_after_masking(users: dict[str, Api], ask: Any) -> None:
    card = ask(users["bia"], truncate=22, encoding="auto").body[0]
    assert card["payload"] == '{"card":{"number":"***"'[:22]
    assert card["masked"] == ["headers.authorization", "json.card.number"]


def test_a_stream_is_masked_as_well(users: dict[str, Api]) -> None:
    card = peek(users["bia"], "s").body[0]
    assert card["payload"] == '{"card":{"number":"***","name":"Ana"},"price":7}'
    assert peek(users["ana"], "s", encoding="base64").body[0]["payload"] == ""


@pytest.mark.parametrize("action", ["peek", "move", "replay"])
def test_cma1_a_selector_tells_no_masked_value(users: dict[str, Api], action: str) -> None:
    path = f"/api/queues/%2F/q/{action}"
    for user, selector, field in [
        ("rui", "json.card.number LIKE '4%'", "json.card.number"),
        ("bia", "body LIKE '%4111%'", "json.card.number"),
        ("bia", "headers.authorization = 'x'", "headers.authorization"),
        ("ana", "json.price = 7", "body"),
    ]:
        reply = users[user].post(path, {"selector": selector, "destination": "s"})
        assert (reply.status, reply.body["error"]) == (401, "not_authorised")
        assert reply.body["reason"] == f"selector: {field} is not shown to this user"
    reply = users["bia"].post(path, {"selector": "json.price = 8", "destination": "s"})
    assert reply.status == 200
    assert users["ana"].post(path, {"selector": "headers.n = 2", "destination": "s"}).status == 200


def test_a_message_is_revealed_by_its_offset(
    users: dict[str, Api], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="recado.audit")
    for queue in ("q", "s"):
        caplog.clear()
        reply = users["rui"].post(f"/api/queues/%2F/{queue}/reveal", {"offset": 0})
        assert reply.status == 200
        assert json.loads(reply.body["payload"]) == CARD
        assert reply.body["properties"]["headers"]["authorization"] == "Bearer x"
        assert reply.body["offset"] == 0
        assert "masked" not in reply.body
        (line,) = [json.loads(each.message) for each in caplog.records]
        assert line["user"] == "rui"
        assert line["action"] == "POST /api/queues/{vhost}/{queue}/reveal"
        assert line["object"] == {"vhost": "/", "queue": queue}
        assert line["details"] == {"offset": 0, "revealed": True}
        assert "4111" not in caplog.text
        caplog.clear()
        reply = users["rui"].post(f"/api/queues/%2F/{queue}/reveal", {"offset": 99})
        assert reply.status == 404
        (line,) = [json.loads(each.message) for each in caplog.records]
        assert line["details"] == {"offset": 99, "revealed": False}
    assert [each["redelivered"] for each in peek(users["bia"]).body] == [False] * 3


def test_revealing_needs_both_tags_and_the_permission_to_read(users: dict[str, Api]) -> None:
    path = "/api/queues/%2F/q/reveal"
    for name in ("ana", "bia", "guest"):
        reply = users[name].post(path, {"offset": 0})
        assert (reply.status, reply.body["reason"]) == (
            401,
            "the user may not reveal masked fields",
        )
    limited = {"configure": ".*", "write": ".*", "read": "^other"}
    assert users["guest"].put("/api/permissions/%2F/rui", limited) == 204
    assert users["rui"].post(path, {"offset": 0}).status == 401
    assert users["rui"].post(path, {"offset": -1}).status == 401
    assert users["guest"].put("/api/users/guest", {"password": "guest", "tags": "auditor"}) == 204
    assert users["guest"].post(path, {"offset": 0}).status == 401


def test_without_settings_bodies_are_as_in_rabbitmq() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        api.put("/api/queues/%2F/q", {})
        message = {
            "properties": {"headers": {"authorization": "x"}},
            "routing_key": "q",
            "payload": '{"card": {"number": 1}}',
            "payload_encoding": "string",
        }
        api.post("/api/exchanges/%2F/amq.default/publish", message)
        (found,) = get(api).body
        assert found["payload"] == message["payload"]
        assert found["properties"] == message["properties"]
        assert "masked" not in found
        assert peek(api, selector="body LIKE '%card%'").body[0]["payload"] == message["payload"]
        # An administrator may reveal, though nothing is masked.
        assert api.post("/api/queues/%2F/q/reveal", {"offset": 0}).status == 200


def test_a_wrong_path_is_told_at_the_start() -> None:
    config = {"management": {"port": 0, "masked_fields": ["json.card", "card"]}}
    with pytest.raises(ConfigError, match=r"management.masked_fields .*'card': unknown field card"):
        recado.Broker(config=config).__enter__()
