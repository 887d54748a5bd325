"""Users, permissions and vhosts at run time, as AMQP clients see them."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

import recado

from .http import Api

ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def connect(broker: recado.Broker, user: str, password: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, "/", credentials)
    )


@pytest.fixture
def ana(api: Api) -> str:
    assert api.put("/api/users/ana", {"password": "secret", "tags": "management"}) == 201
    assert api.put("/api/permissions/%2F/ana", ALL) == 201
    return "ana"


def test_a_new_user_can_log_in_and_a_changed_password_counts(
    broker: recado.Broker, api: Api, ana: str
) -> None:
    connect(broker, ana, "secret").close()
    assert api.put("/api/users/ana", {"password": "other", "tags": ""}) == 204
    with pytest.raises(ProbableAuthenticationError):
        connect(broker, ana, "secret")
    connect(broker, ana, "other").close()


def test_permissions_apply_to_open_connections_at_once(
    broker: recado.Broker, api: Api, ana: str
) -> None:
    connection = connect(broker, ana, "secret")
    connection.channel().queue_declare("orders")
    assert api.put("/api/permissions/%2F/ana", {**ALL, "configure": "^mine"}) == 204
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        connection.channel().queue_declare("yours")
    connection.channel().queue_declare("mine")
    assert api.delete("/api/permissions/%2F/ana") == 204
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        connection.channel().queue_declare("mine")
    connection.close()


def test_cached_routes_do_not_outlive_a_permission(
    broker: recado.Broker, api: Api, ana: str
) -> None:
    connection = connect(broker, ana, "secret")
    channel = connection.channel()
    channel.queue_declare("orders")
    channel.confirm_delivery()
    channel.basic_publish("", "orders", b"1")
    assert api.put("/api/permissions/%2F/ana", {**ALL, "write": "^$"}) == 204
    with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
        channel.basic_publish("", "orders", b"2")
    connection.close()


def test_deleting_a_user_closes_its_connections(broker: recado.Broker, api: Api, ana: str) -> None:
    connection = connect(broker, ana, "secret")
    assert api.delete("/api/users/ana") == 204
    with pytest.raises(ConnectionClosedByBroker, match="user 'ana' is deleted"):
        connection.channel()
    with pytest.raises(ProbableAuthenticationError):
        connect(broker, ana, "secret")


def test_deleting_a_vhost_closes_its_connections_and_deletes_what_is_in_it(
    broker: recado.Broker, api: Api
) -> None:
    assert api.put("/api/vhosts/shop", {"description": "d", "tags": "a,b"}) == 201
    assert api.get("/api/permissions/shop/guest") == {"user": "guest", "vhost": "shop", **ALL}
    for name in ("orders", "bills"):
        assert api.put(f"/api/queues/shop/{name}", {"durable": True}) == 201
    assert api.put("/api/exchanges/shop/ex", {"type": "topic"}) == 201
    assert (
        api.put("/api/policies/shop/p", {"pattern": ".*", "definition": {"max-length": 1}}) == 201
    )
    parameters = pika.URLParameters(broker.url.replace("%2F", "shop"))
    connection = pika.BlockingConnection(parameters)
    assert api.delete("/api/vhosts/shop") == 204
    with pytest.raises(ConnectionClosedByBroker, match="vhost 'shop' is deleted"):
        connection.channel()
    assert [each["name"] for each in api.get("/api/vhosts")] == ["/"]
    assert [each["vhost"] for each in api.get("/api/permissions")] == ["/"]
    assert api.request("GET", "/api/queues/shop").status == 404
    assert api.put("/api/vhosts/shop", {}) == 201
    assert api.get("/api/queues/shop") == []
    assert api.get("/api/policies/shop") == []


def test_limits_apply_at_once(broker: recado.Broker, api: Api, ana: str) -> None:
    assert api.put("/api/user-limits/ana/max-connections", {"value": 1}) == 204
    first = connect(broker, ana, "secret")
    with pytest.raises(ProbableAccessDeniedError, match="limit"):
        connect(broker, ana, "secret")
    assert api.delete("/api/user-limits/ana/max-connections") == 204
    connect(broker, ana, "secret").close()
    first.close()
    assert api.put("/api/vhost-limits/%2F/max-queues", {"value": 0}) == 204
    assert api.put("/api/queues/%2F/q", {}) == 400
    assert api.put("/api/vhost-limits/%2F/max-consumers", {"value": 7}) == 204
    assert api.put("/api/vhost-limits/%2F/max-bindings", {"value": 0}) == 204
    assert api.request("POST", "/api/bindings/%2F/e/amq.fanout/e/amq.topic", {}).status == 400
    (limits,) = api.get("/api/vhost-limits/%2F")
    assert limits["value"] == {"max-queues": 0, "max-bindings": 0, "max-consumers": 7}
    assert api.put("/api/vhost-limits/%2F/no-such", {"value": 0}) == 400
    assert api.put("/api/user-limits/ana/no-such", {"value": 0}) == 400


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    config = {"management": {"port": 0}}
    with recado.Broker(data=tmp_path, config=config) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        assert api.put("/api/users/ana", {"password": "secret", "tags": "monitoring"}) == 201
        assert api.put("/api/users/eva", {"password": "x", "tags": ""}) == 201
        assert api.put("/api/vhosts/shop", {"description": "the shop"}) == 201
        assert api.put("/api/vhosts/gone", {}) == 201
        assert api.put("/api/permissions/shop/ana", ALL) == 201
        topic = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
        assert api.put("/api/topic-permissions/shop/ana", topic) == 201
        assert api.put("/api/global-parameters/gp", {"value": {"a": [1]}}) == 201
        assert api.delete("/api/users/eva") == 204
        assert api.delete("/api/vhosts/gone") == 204
    with recado.Broker(data=tmp_path, config=config) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        assert {each["name"] for each in api.get("/api/users")} == {"guest", "ana"}
        assert api.get("/api/users/ana")["tags"] == ["monitoring"]
        assert api.get("/api/vhosts/shop")["description"] == "the shop"
        assert api.request("GET", "/api/vhosts/gone").status == 404
        assert api.get("/api/permissions/shop/ana") == {"user": "ana", "vhost": "shop", **ALL}
        assert api.get("/api/topic-permissions/shop/ana")[0]["write"] == "^a"
        assert api.get("/api/global-parameters/gp")["value"] == {"a": [1]}


def test_passwords_are_throttled_per_address_and_user(api: Api, ana: str) -> None:
    guesser = Api(api.port, "ana", "guess")
    statuses = [guesser.request("GET", "/api/whoami").status for _ in range(20)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert api.get("/api/whoami") == {"name": "guest", "tags": ["administrator"]}


def test_bad_input_names_the_field(api: Api) -> None:
    for path, body, words in (
        ("/api/users/x", {"tags": 3}, "tags"),
        ("/api/users/x", {"tags": "", "password": 7}, "password"),
        ("/api/users/x", {"tags": "", "password_hash": "short"}, "password_hash"),
        ("/api/permissions/%2F/guest", {"configure": "[", "write": "", "read": ""}, "configure"),
        ("/api/vhosts/x", {"default_queue_type": "lazy"}, "default_queue_type"),
        ("/api/queues/%2F/x", {"durable": "yes"}, "durable"),
        ("/api/queues/%2F/x", {"arguments": {"n": 2**70}}, "arguments.n"),
    ):
        reply = api.request("PUT", path, body)
        assert reply.status == 400, (path, reply)
        assert words in reply.body["reason"], reply.body


def test_limits_of_a_vhost_are_a_parameter(api: Api) -> None:
    path = "/api/parameters/vhost-limits/%2F/limits"
    assert api.delete(path) == 404
    assert api.put(path, {"value": {"max-queues": 5}}) == 201
    assert api.put(path, {"value": {"max-connections": 7}}) == 204
    assert api.get(path)["value"] == {"max-connections": 7}
    assert api.get("/api/vhost-limits") == [{"vhost": "/", "value": {"max-connections": 7}}]
    for other, body, words in (
        (path, {"value": 7}, "value"),
        (path, {"value": {"max-queues": "x"}}, "max-queues"),
        (path, {"value": {"nope": 1}}, "nope"),
        (path.replace("/limits", "/other"), {"value": {}}, "name"),
    ):
        reply = api.request("PUT", other, body)
        assert (reply.status, words in reply.body["reason"]) == (400, True), reply
    assert api.delete(path) == 204
    assert api.get("/api/parameters") == []


def test_a_policymaker_cannot_change_limits(api: Api) -> None:
    path = "/api/parameters/vhost-limits/%2F/limits"
    assert api.put("/api/users/pat", {"password": "p", "tags": "policymaker"}) == 201
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.put("/api/permissions/%2F/pat", permission) == 201
    assert api.put(path, {"value": {"max-queues": 5}}) == 201
    pat = Api(api.port, "pat", "p")
    assert pat.put(path, {"value": {}}) == 401
    assert pat.delete(path) == 401
    assert pat.get(path)["value"] == {"max-queues": 5}


def test_booleans_may_be_strings(api: Api) -> None:
    assert api.put("/api/queues/%2F/x", {"durable": "true", "auto_delete": "false"}) == 201
    queue = api.get("/api/queues/%2F/x")
    assert (queue["durable"], queue["auto_delete"]) == (True, False)
