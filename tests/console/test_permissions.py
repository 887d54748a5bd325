"""Every route against every tag: nothing is allowed or revealed beyond what the tag means."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pika
import pytest

import recado
from recado.broker.access import Permission, User
from recado.broker.broker import Broker
from recado.console.access import Access, find_refusal
from recado.console.management import RESOURCES
from recado.console.routes import API, ApiRoute, Content
from workshop.time_limit import scale

from .http import Api, segment

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
TAGS = ("", "management", "policymaker", "monitoring", "administrator")
# Which tags suffice in a vhost where the user has permissions, and in one where it has none.
INSIDE: dict[Access, set[str]] = {
    Access.PUBLIC: set(TAGS),
    Access.MANAGEMENT: {"management", "policymaker", "monitoring", "administrator"},
    Access.VHOST: {"management", "policymaker", "monitoring", "administrator"},
    Access.VISIBLE_VHOST: {"management", "policymaker", "monitoring", "administrator"},
    Access.MONITORING: {"monitoring", "administrator"},
    Access.POLICIES: {"policymaker", "administrator"},
    Access.GLOBAL_PARAMETERS: {"policymaker", "administrator"},
    Access.ADMINISTRATOR: {"administrator"},
}
OUTSIDE: dict[Access, set[str]] = {
    **INSIDE,
    Access.VHOST: {"administrator"},
    Access.VISIBLE_VHOST: {"monitoring", "administrator"},
    Access.POLICIES: {"administrator"},
}
assert RESOURCES  # their import registers the routes
VALUES = {
    "vhost": "/",
    "other": "closed",
    "user": "victim",
    "queue": "q",
    "exchange": "ex",
    "source": "ex",
    "destination": "q",
    "destination_type": "q",
    "properties": "k",
    "name": "n",
    "node": "n",
    "stream": "s",
    "component": "c",
    "connection": "c",
    "channel": "c",
    "port": "1",
    "protocol": "amqp",
    "within": "1",
    "unit": "days",
    "feed": "f",
    "subscriber": "s",
    "system": "n",
    "pipeline": "n",
}


@pytest.mark.parametrize("access", Access)
@pytest.mark.parametrize("tag", TAGS)
def test_tags(access: Access, tag: str) -> None:
    broker = Broker(lambda: "name", vhosts=("/", "closed"))
    user = User("u", tags=(tag,) if tag else (), permissions={"/": Permission(".*", ".*", ".*")})
    assert (find_refusal(access, user, "/", broker) is None) is (tag in INSIDE[access])
    assert (find_refusal(access, user, "closed", broker) is None) is (tag in OUTSIDE[access])
    assert (find_refusal(access, user, "missing", broker) is None) is (tag in INSIDE[access])


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Api]]:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        root = Api(broker.management_port)
        assert root.put("/api/vhosts/closed", {}) == 201
        assert root.put("/api/queues/closed/secret", {}) == 201
        apis = {}
        for tag in TAGS:
            name = f"user-{tag}"
            assert root.put(f"/api/users/{name}", {"password": "p", "tags": tag}) == 201
            assert root.put(f"/api/permissions/%2F/{name}", ALL) == 201
            apis[tag] = Api(broker.management_port, name, "p")
        yield apis


def path_of(route: ApiRoute, vhost: str) -> str:
    path = route.path
    for name, value in VALUES.items():
        path = path.replace("{" + name + "}", "%2F" if name == "vhost" else value)
    return path.replace("%2F", "%2F" if vhost == "/" else vhost)


@pytest.mark.parametrize("route", API.routes, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_whom_it_must(running: dict[str, Api], route: ApiRoute) -> None:
    outside = OUTSIDE if "{vhost}" in route.path else INSIDE
    for vhost, allowed in (("/", INSIDE), ("closed", outside)):
        for tag in TAGS:
            if tag in allowed[route.access] and route.method != "GET":
                continue  # what a change does is tested elsewhere
            is_allowed = tag in allowed[route.access]
            is_endless = is_allowed and route.content is Content.EVENTS
            method = "HEAD" if is_endless else route.method
            reply = running[tag].request(method, path_of(route, vhost), {})
            if is_allowed:
                assert reply.status < 500 or reply.status == 503, (tag, reply)
            else:
                assert reply.status == 401, (tag, vhost, reply)
                assert reply.body["error"] == "not_authorised"
                assert "secret" not in str(reply.body)


def names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows}


def test_lists_have_only_what_a_user_may_see(running: dict[str, Api]) -> None:
    for tag in ("management", "policymaker"):
        assert names(running[tag].get("/api/vhosts")) == {"/"}
        assert "secret" not in names(running[tag].get("/api/queues"))
        assert {row["vhost"] for row in running[tag].get("/api/exchanges")} == {"/"}
        visible = len(running[tag].get("/api/queues"))
        assert running[tag].get("/api/overview")["object_totals"]["queues"] == visible
    for tag, sees_queue in (("monitoring", False), ("administrator", True)):
        assert names(running[tag].get("/api/vhosts")) == {"/", "closed"}
        assert ("secret" in names(running[tag].get("/api/queues"))) is sees_queue


def test_amqp_permissions_hold_over_http(running: dict[str, Api]) -> None:
    root, ana = running["administrator"], running["management"]
    narrow = {"configure": "^mine", "write": "^mine", "read": "^mine"}
    assert root.put("/api/permissions/%2F/user-management", narrow) == 204
    try:
        assert root.put("/api/queues/%2F/yours", {}) == 201
        assert root.put("/api/queues/%2F/mine", {}) == 201
        assert ana.put("/api/queues/%2F/yours2", {}) == 401
        assert ana.delete("/api/queues/%2F/yours") == 401
        assert ana.delete("/api/queues/%2F/yours/contents") == 401
        assert ana.put("/api/exchanges/%2F/yours", {}) == 401
        get = {"count": 1, "encoding": "auto", "ackmode": "ack_requeue_true"}
        assert ana.post("/api/queues/%2F/yours/get", get).status == 401
        assert ana.post("/api/queues/%2F/yours/peek", {}).status == 401
        assert ana.post("/api/queues/%2F/missing/peek", {}).status == 401
        for source, destination in (("yours", "mine"), ("missing", "mine"), ("mine", "yours")):
            path, target = f"/api/queues/%2F/{source}/move", {"destination": destination}
            assert ana.post(path, target).status == 401
        for source in ("yours", "missing"):
            assert ana.post(f"/api/queues/%2F/{source}/replay", {}).status == 401
        message = {
            "properties": {},
            "routing_key": "yours",
            "payload": "",
            "payload_encoding": "string",
        }
        assert ana.post("/api/exchanges/%2F/amq.default/publish", message).status == 400
        assert ana.post("/api/bindings/%2F/e/amq.topic/q/yours", {}).status == 401
        assert ana.put("/api/queues/%2F/mine2", {}) == 201
    finally:
        assert root.put("/api/permissions/%2F/user-management", ALL) == 204


def test_totals_and_rates_of_the_overview_are_those_of_visible_vhosts() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        root = Api(broker.management_port)
        for vhost in ("open", "closed"):
            assert root.put(f"/api/vhosts/{vhost}", {}) == 201
            assert root.put(f"/api/queues/{vhost}/q", {}) == 201
        assert root.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
        assert root.put("/api/permissions/open/ana", ALL) == 201
        ana = Api(broker.management_port, "ana", "p")
        message = {
            "properties": {},
            "routing_key": "q",
            "payload": "",
            "payload_encoding": "string",
        }
        for _ in range(3):
            root.post("/api/exchanges/closed/amq.default/publish", message)
        root.post("/api/exchanges/open/amq.default/publish", message)
        series = "/api/overview?msg_rates_age=60&msg_rates_incr=5"
        deadline = time.monotonic() + scale(60)
        while root.get(series)["message_stats"]["publish_details"]["samples"][0]["sample"] < 4:
            assert time.monotonic() < deadline
            time.sleep(0.2)  # the counters are sampled every five seconds
        seen = ana.get(series)
        assert seen["message_stats"]["publish"] == seen["queue_totals"]["messages"] == 1
        assert seen["message_stats"]["publish_details"]["samples"][0]["sample"] == 1
        assert [each["messages"] for each in root.get("/api/vhosts")] == [0, 3, 1]


@pytest.fixture(scope="module")
def secretive() -> Iterator[tuple[Api, Api]]:
    """A user who may enter the vhost `/` only, and the administrator of a node with secrets.

    Every name that begins with `secret` belongs to another user or vhost.
    """
    with recado.Broker(config={"management": {"port": 0}}) as broker, ExitStack() as stack:
        assert broker.management_port is not None
        root = Api(broker.management_port)
        assert root.put("/api/users/ana", {"password": "p", "tags": "policymaker"}) == 201
        assert root.put("/api/permissions/%2F/ana", ALL) == 201
        assert root.put("/api/users/secret-user", {"password": "p", "tags": ""}) == 201
        assert root.put("/api/user-limits/secret-user/max-channels", {"value": 3}) == 204
        assert root.put("/api/vhosts/secret", {"description": "secret"}) == 201
        assert root.put("/api/vhost-limits/secret/max-queues", {"value": 30}) == 204
        for vhost in ("%2F", "secret"):
            assert root.put(f"/api/permissions/{vhost}/secret-user", ALL) == 201
        for path, body in (
            ("exchanges/secret/secret-exchange", {"type": "topic"}),
            ("queues/secret/secret-queue", {}),
            (
                "policies/secret/secret-policy",
                {"pattern": "secret", "definition": {"expires": 9**9}},
            ),
            (
                "operator-policies/secret/secret-policy",
                {"pattern": "secret", "definition": {"expires": 9**9}},
            ),
            ("topic-permissions/secret/secret-user", {"exchange": "x", "write": "", "read": ""}),
        ):
            assert root.put(f"/api/{path}", body) == 201, path
        assert root.put("/api/queues/%2F/shared", {}) == 201
        for vhost, queue in (("%2F", "shared"), ("secret", "secret-queue")):
            url = f"amqp://secret-user:p@127.0.0.1:{broker.port}/{vhost}"
            parameters = pika.URLParameters(url)
            parameters.client_properties = {"connection_name": "secret-connection"}
            connection = stack.enter_context(pika.BlockingConnection(parameters))
            channel = connection.channel()
            channel.basic_consume(queue, lambda *_: None, consumer_tag="secret-consumer")
        yield Api(broker.management_port, "ana", "p"), root


QUERIES = (
    "",
    "?page=1&page_size=5",
    "?page=1&name=secret",
    "?page=1&name=%5Esecret&use_regex=true",
    "?sort=name&sort_reverse=true&columns=name,vhost,user,client_properties",
    "?sort=messages",
)
READABLE = sorted(
    {route.path for route in API.routes if route.method == "GET"}
    - {"/api/aliveness-test/{vhost}"}  # creates a queue
    - {"/api/events"}  # has no end; see test_events.py
)


@pytest.mark.parametrize("path", READABLE)
def test_nothing_is_revealed_about_what_a_user_may_not_see(
    secretive: tuple[Api, Api], path: str
) -> None:
    ana, _ = secretive
    if "{vhost}" in path and "{queue}" in path:
        return  # consumers of a queue are shown to all who may enter its vhost, as in RabbitMQ
    for name, value in (VALUES | {"user": "secret-user"}).items():
        path = path.replace("{" + name + "}", "%2F" if name == "vhost" else value)
    for query in QUERIES:
        reply = ana.request("GET", path + query)
        assert reply.status < 500 or reply.status == 503
        assert "secret" not in str(reply.body), query
        if isinstance(reply.body, dict) and "filtered_count" in reply.body and "secret" in query:
            assert reply.body["filtered_count"] == 0


def test_numbers_of_pages_and_totals_leave_out_what_is_invisible(
    secretive: tuple[Api, Api],
) -> None:
    ana, root = secretive
    for path, visible, all_of_them in (
        ("queues", 1, 2),
        ("exchanges", 7, 15),
        ("connections", 0, 2),
        ("channels", 0, 2),
        ("vhosts", 1, 2),
    ):
        for api, count in ((ana, visible), (root, all_of_them)):
            page = api.get(f"/api/{path}?page=1&page_size=100")
            assert page["total_count"] == page["filtered_count"] == page["item_count"] == count
    assert len(ana.get("/api/consumers")) == 0
    assert len(root.get("/api/consumers")) == 2
    totals = ana.get("/api/overview")["object_totals"]
    assert totals == {"channels": 0, "connections": 0, "exchanges": 7, "queues": 1}


def test_connections_of_others_are_refused_by_name(secretive: tuple[Api, Api]) -> None:
    ana, root = secretive
    for row in root.get("/api/connections"):
        name = segment(row["name"])
        for path in (f"connections/{name}", f"connections/{name}/channels"):
            assert ana.request("GET", f"/api/{path}").status == 401
        assert ana.request("GET", f"/api/channels/{name}%20(1)").status == 401
        assert ana.delete(f"/api/connections/{name}") == 401
    assert ana.delete("/api/connections/username/secret-user") == 401
    assert ana.request("DELETE", "/api/connections/none").status == 404
