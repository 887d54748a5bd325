"""Where a message would go, over HTTP."""

from __future__ import annotations

from typing import Any

import pika
import pytest

import recado

from .http import Api

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


def trace(api: Api, **body: Any) -> dict[str, Any]:
    reply = api.post("/api/route-test", {"vhost": "/", **body})
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.body
    return found


def bind(api: Api, source: str, destination: str, key: str = "", **arguments: Any) -> None:
    body = {"routing_key": key, "arguments": arguments}
    assert api.post(f"/api/bindings/%2F/e/{source}/{destination}", body).status == 201


@pytest.fixture
def queues(api: Api) -> None:
    for name in ("q", "r"):
        assert api.put(f"/api/queues/%2F/{name}", {}) == 201


@pytest.mark.usefixtures("queues")
def test_the_whole_route_is_told(api: Api) -> None:
    assert api.put("/api/exchanges/%2F/more", {"type": "headers"}) == 201
    bind(api, "amq.topic", "e/more", "a.#")
    bind(api, "amq.topic", "q/q", "a.b")
    bind(api, "more", "q/r", colour="red", **{"x-match": "all"})
    found = trace(api, exchange="amq.topic", routing_key="a.b", headers={"colour": "red"})
    assert found == {
        "routed": True,
        "unroutable_reason": None,
        "publish_refusal": None,
        "routing_keys": ["a.b"],
        "queues": [
            {"name": "q", "type": "classic", "refusal": None},
            {"name": "r", "type": "classic", "refusal": None},
        ],
        "queue_count": 2,
        "exchanges": [
            {
                "name": "amq.topic",
                "type": "topic",
                "is_alternate": False,
                "delay_ms": 0,
                "matches": [
                    {
                        "destination": "more",
                        "destination_type": "exchange",
                        "routing_key": "a.#",
                        "arguments": {},
                        "properties_key": found["exchanges"][0]["matches"][0]["properties_key"],
                        "matched_keys": ["a.b"],
                        "is_fallback": False,
                    },
                    {
                        "destination": "q",
                        "destination_type": "queue",
                        "routing_key": "a.b",
                        "arguments": {},
                        "properties_key": "a.b",
                        "matched_keys": ["a.b"],
                        "is_fallback": False,
                    },
                ],
                "match_count": 2,
                "alternate_exchange": None,
                "dead_end": None,
            },
            {
                "name": "more",
                "type": "headers",
                "is_alternate": False,
                "delay_ms": 0,
                "matches": [
                    {
                        "destination": "r",
                        "destination_type": "queue",
                        "routing_key": "",
                        "arguments": {"colour": "red", "x-match": "all"},
                        "properties_key": found["exchanges"][1]["matches"][0]["properties_key"],
                        "matched_keys": [],
                        "is_fallback": False,
                    }
                ],
                "match_count": 1,
                "alternate_exchange": None,
                "dead_end": None,
            },
        ],
    }
    found = trace(api, exchange="amq.topic", routing_key="b")
    assert (found["routed"], found["queues"]) == (False, [])
    assert "no binding matches" in found["unroutable_reason"]


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize("exchange", ["", "amq.default"])
def test_copies(api: Api, exchange: str) -> None:
    properties = {"headers": {"CC": ["r"], "BCC": ["none"]}}
    found = trace(api, exchange=exchange, routing_key="q", properties=properties)
    assert found["routing_keys"] == ["q", "r", "none"]
    assert [each["name"] for each in found["queues"]] == ["q", "r"]
    reply = api.post("/api/route-test", {"vhost": "/", "exchange": "", "headers": {"CC": "r"}})
    assert (reply.status, "CC" in reply.body["reason"]) == (400, True)


@pytest.mark.usefixtures("queues")
def test_the_answer_agrees_with_a_publish(broker: recado.Broker, api: Api) -> None:
    """Nothing is published by the test itself."""
    bind(api, "amq.fanout", "q/q")
    assert trace(api, exchange="amq.fanout")["routed"]
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        assert channel.basic_get("q")[0] is None
        channel.basic_publish("amq.fanout", "", b"x")
        assert channel.basic_get("q", auto_ack=True)[2] == b"x"


def test_why_the_user_could_not_publish(api: Api) -> None:
    assert api.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
    permission = {"configure": "", "write": "^amq.(topic|rabbitmq.trace)$", "read": ""}
    assert api.put("/api/permissions/%2F/ana", permission) == 201
    topic = {"exchange": "amq.topic", "write": "^a", "read": ""}
    assert api.put("/api/topic-permissions/%2F/ana", topic) == 201
    ana = Api(api.port, "ana", "p")
    for body, reason in (
        ({"exchange": "amq.direct"}, "access to exchange 'amq.direct'"),
        ({"exchange": ""}, "access to exchange 'amq.default'"),
        ({"exchange": "amq.rabbitmq.trace"}, "cannot publish to internal exchange"),
        ({"exchange": "amq.topic", "routing_key": "b"}, "access to topic 'b'"),
        ({"exchange": "amq.topic", "routing_key": "a", "headers": {"CC": ["c"]}}, "topic 'c'"),
        (
            {
                "exchange": "amq.topic",
                "routing_key": "a",
                "properties": {"user_id": "eve"},
            },
            "user_id property",
        ),
        (
            {"exchange": "amq.topic", "routing_key": "a", "properties": {"expiration": "soon"}},
            "invalid expiration",
        ),
    ):
        assert reason in trace(ana, **body)["publish_refusal"]
    assert trace(ana, exchange="amq.topic", routing_key="a")["publish_refusal"] is None


def test_vhosts_that_the_user_may_not_enter(api: Api) -> None:
    """An administrator may look everywhere, as in RabbitMQ."""
    assert api.put("/api/vhosts/other", {}) == 201
    assert api.put("/api/exchanges/other/secret", {}) == 201
    assert api.put("/api/users/ana", {"password": "p", "tags": "monitoring"}) == 201
    assert api.put("/api/permissions/%2F/ana", EVERYTHING) == 201
    assert api.put("/api/users/root", {"password": "p", "tags": "administrator"}) == 201
    body = {"vhost": "other", "exchange": "amq.topic"}
    for exchange in ("amq.topic", "secret", "missing"):
        reply = Api(api.port, "ana", "p").post("/api/route-test", {**body, "exchange": exchange})
        assert (reply.status, reply.body["reason"]) == (
            401,
            "User not authorised to access virtual host",
        )
    reply = Api(api.port, "root", "p").post("/api/route-test", body)
    assert (reply.status, "access to vhost" in reply.body["publish_refusal"]) == (200, True)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "vhost"),
        ({"vhost": "/"}, 400, "exchange"),
        ({"vhost": "none", "exchange": ""}, 404, "none"),
        ({"vhost": "/", "exchange": "none"}, 404, "none"),
        ({"vhost": "/", "exchange": "", "headers": []}, 400, "headers"),
        ({"vhost": "/", "exchange": "", "headers": {"x": 1 << 70}}, 400, "headers.x"),
        ({"vhost": "/", "exchange": "", "properties": {"priority": 256}}, 400, "priority"),
    ],
)
def test_wrong_fields_are_named(api: Api, body: dict[str, Any], status: int, field: str) -> None:
    reply = api.post("/api/route-test", body)
    assert (reply.status, field in reply.body["reason"]) == (status, True), reply
