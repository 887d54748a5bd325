"""Each endpoint of RabbitMQ 3.13 is there, or answers as a RabbitMQ without the feature does."""

from __future__ import annotations

import pika

import recado
from tests.console.http import Api, segment

from .rabbitmq_api import ENDPOINTS, PARAMETERS


def test_every_endpoint_of_rabbitmq_answers() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel().queue_declare("q")
        (channel,) = api.get("/api/channels")
        parameters = {
            **PARAMETERS,
            "node": segment(api.get("/api/overview")["node"]),
            "connection": segment(channel["connection_details"]["name"]),
            "channel": segment(channel["name"]),
            "port": str(pika.URLParameters(broker.url).port),
        }
        wrong = []
        for each in ENDPOINTS:
            path = each.path.format(**{**parameters, **each.parameters})
            reply = api.request(each.method, path, each.body)
            if reply.status != each.status:
                wrong.append((each, reply))
    assert wrong == []


def test_logins_are_counted_by_protocol() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        path = f"/api/auth/attempts/{segment(api.get('/api/overview')['node'])}"
        assert Api(broker.management_port, "guest", "wrong").request("GET", path).status == 401
        pika.BlockingConnection(pika.URLParameters(broker.url)).close()
        found = {each.pop("protocol"): each for each in api.get(path)}
        assert found["amqp091"] == {
            "auth_attempts": 1,
            "auth_attempts_failed": 0,
            "auth_attempts_succeeded": 1,
        }
        assert found["http"]["auth_attempts_failed"] == 1
        assert api.delete(path) == 204
        assert [each["protocol"] for each in api.get(path)] == ["http"]


def test_a_form_is_checked_without_a_cookie() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        anonymous = Api(broker.management_port, user="")
        reply = anonymous.request("POST", "/api/login", b"username=guest&password=guest")
        assert (reply.status, reply.body) == (200, "ok")
        assert "set-cookie" not in reply.headers
        for wrong in (b"username=guest&password=x", b"password=guest", b"", b"\xff"):
            assert anonymous.request("POST", "/api/login", wrong).status in (400, 401)


def test_a_password_hash_can_be_used() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        hashed = api.get("/api/auth/hash_password/a%2Fb")["ok"]
        assert api.put("/api/users/ana", {"password_hash": hashed, "tags": "management"}) == 201
        assert Api(broker.management_port, "ana", "a/b").get("/api/whoami")["name"] == "ana"
