"""The description of the API agrees with what the API does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import recado
from recado.console.resources.openapi import describe
from recado.console.routes import API

from .events import EventStream
from .http import Api

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
POLICY = {"pattern": "^p", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
MESSAGE = {
    "properties": {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"n": 1},
        "delivery_mode": 2,
        "priority": 1,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 1,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "c",
    },
    "routing_key": "q",
    "payload": "x",
    "payload_encoding": "string",
}
# A path and a body with every documented field, for each route that has a body.
BODIES: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("PUT", "/api/exchanges/{vhost}/{exchange}"): (
        "/api/exchanges/%2F/e",
        {"type": "topic", "durable": True, "auto_delete": True, "internal": True, "arguments": {}},
    ),
    ("PUT", "/api/queues/{vhost}/{queue}"): (
        "/api/queues/%2F/new",
        {"durable": True, "auto_delete": True, "arguments": {"x-max-length": 1}},
    ),
    ("POST", "/api/queues/{vhost}/{queue}/actions"): (
        "/api/queues/%2F/q/actions",
        {"action": "sync"},
    ),
    ("POST", "/api/queues/{vhost}/{queue}/alter"): (
        "/api/queues/%2F/q/alter",
        {"type": "classic", "durable": False, "auto_delete": False, "arguments": {}},
    ),
    ("POST", "/api/bindings/{vhost}/e/{source}/{destination_type}/{destination}"): (
        "/api/bindings/%2F/e/amq.topic/q/q",
        {"routing_key": "k", "arguments": {"a": 1}},
    ),
    ("POST", "/api/exchanges/{vhost}/{exchange}/publish"): (
        "/api/exchanges/%2F/amq.default/publish",
        MESSAGE,
    ),
    ("POST", "/api/queues/{vhost}/{queue}/get"): (
        "/api/queues/%2F/q/get",
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 5},
    ),
    ("POST", "/api/queues/{vhost}/{queue}/peek"): (
        "/api/queues/%2F/s/peek",
        {
            "count": 1,
            "skip": 0,
            "selector": "priority > 3",
            "offset": "first",
            "encoding": "auto",
            "truncate": 5,
        },
    ),
    ("POST", "/api/queues/{vhost}/{queue}/reveal"): (
        "/api/queues/%2F/q/reveal",
        {"offset": 0, "encoding": "auto", "truncate": 5},
    ),
    ("POST", "/api/queues/{vhost}/{queue}/requeue"): (
        "/api/queues/%2F/q/requeue",
        {"deliveries": [{"channel": "none (1)", "delivery_tag": 1, "offset": 0}]},
    ),
    ("POST", "/api/queues/{vhost}/{queue}/move"): (
        "/api/queues/%2F/q/move",
        {
            "destination": "to",
            "destination_vhost": "/",
            "count": 1,
            "selector": "priority > 3",
        },
    ),
    ("POST", "/api/queues/{vhost}/{queue}/delete-messages"): (
        "/api/queues/%2F/q/delete-messages",
        {"count": 1, "selector": "priority > 3"},
    ),
    ("POST", "/api/feeds/{vhost}/{feed}/search"): (
        "/api/feeds/%2F/f/search",
        {"archive": "a", "selector": "key = 'x'", "since": 1, "rows": 5, "count": 1, "truncate": 5},
    ),
    ("POST", "/api/snapshots"): ("/api/snapshots", {"vhost": "/", "name_contains": "none"}),
    ("POST", "/api/snapshots/{snapshot}/run"): (
        "/api/snapshots/SNAPSHOT/run",
        {"action": "replay", "max_replays": 3},
    ),
    ("POST", "/api/queues/{vhost}/{queue}/tap"): (
        "/api/queues/%2F/q/tap",
        {"selector": "priority > 3"},
    ),
    ("POST", "/api/traces"): (
        "/api/traces",
        {
            "vhost": "/",
            "message_id": "m",
            "correlation_id": "c",
            "selector": "priority > 3",
            "duration": 5,
        },
    ),
    ("POST", "/api/queues/{vhost}/{queue}/replay"): (
        "/api/queues/%2F/q/replay",
        {"count": 1, "max_replays": 3, "selector": "priority > 3"},
    ),
    ("POST", "/api/route-test"): (
        "/api/route-test",
        {
            "vhost": "/",
            "exchange": "amq.headers",
            "routing_key": "k",
            "headers": {"n": 1},
            "properties": MESSAGE["properties"],
        },
    ),
    ("POST", "/api/session"): ("/api/session", {"username": "guest", "password": "guest"}),
    ("PUT", "/api/cluster-name"): ("/api/cluster-name", {"name": "n"}),
    ("PUT", "/api/vhosts/{vhost}"): (
        "/api/vhosts/v",
        {"description": "d", "tags": ["t"], "default_queue_type": "quorum"},
    ),
    ("PUT", "/api/vhost-limits/{vhost}/{name}"): (
        "/api/vhost-limits/%2F/max-queues",
        {"value": 100},
    ),
    ("PUT", "/api/users/{user}"): (
        "/api/users/ana",
        {"tags": "management", "password": "p", "password_hash": ""},
    ),
    ("POST", "/api/users/bulk-delete"): ("/api/users/bulk-delete", {"users": ["eva"]}),
    ("PUT", "/api/permissions/{vhost}/{user}"): ("/api/permissions/%2F/guest", ALL),
    ("PUT", "/api/topic-permissions/{vhost}/{user}"): (
        "/api/topic-permissions/%2F/guest",
        {"exchange": "amq.topic", "write": ".*", "read": ".*"},
    ),
    ("PUT", "/api/topic-permissions/{vhost}/{user}/{exchange}"): (
        "/api/topic-permissions/%2F/guest/amq.topic",
        {"exchange": "amq.topic", "write": ".*", "read": ".*"},
    ),
    ("PUT", "/api/user-limits/{user}/{name}"): (
        "/api/user-limits/guest/max-channels",
        {"value": 100},
    ),
    ("PUT", "/api/policies/{vhost}/{name}"): ("/api/policies/%2F/p", POLICY),
    ("PUT", "/api/operator-policies/{vhost}/{name}"): ("/api/operator-policies/%2F/p", POLICY),
    ("PUT", "/api/parameters/{component}/{vhost}/{name}"): (
        "/api/parameters/vhost-limits/%2F/limits",
        {"value": {"max-queues": 100}},
    ),
    ("PUT", "/api/global-parameters/{name}"): ("/api/global-parameters/g", {"value": [1]}),
    ("PUT", "/api/events/{stream}/watch"): (
        "/api/events/STREAM/watch",
        {"queues": [{"vhost": "/", "name": "q"}]},
    ),
}
# Fields that exclude others in the body above.
ALTERNATIVES = {
    ("POST", "/api/queues/{vhost}/{queue}/delete-messages"): {"snapshot"},
    ("POST", "/api/queues/{vhost}/{queue}/move"): {"snapshot"},
    ("POST", "/api/queues/{vhost}/{queue}/replay"): {"snapshot"},
    ("POST", "/api/snapshots"): {"queues", "queue", "selector"},
    ("POST", "/api/snapshots/{snapshot}/run"): {"destination"},
}
ANY_OBJECT = {
    ("POST", "/api/all-configuration"),
    ("POST", "/api/definitions"),
    ("POST", "/api/definitions/{vhost}"),
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    config: dict[str, dict[str, Any]] = {
        "management": {"port": 0},
        "node": {"data": str(tmp_path_factory.mktemp("data"))},
        "feeds": {"archives": {"a": {"feed": "f"}}},
    }
    with recado.Broker(config=config) as broker:
        assert broker.management_port is not None
        running = Api(broker.management_port)
        for name in ("q", "to"):
            assert running.put(f"/api/queues/%2F/{name}", {}) == 201
        stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
        assert running.put("/api/queues/%2F/s", stream) == 201
        yield running


@pytest.fixture(scope="module")
def stream(api: Api) -> Iterator[str]:
    """The name of an open event stream."""
    with EventStream(api.port) as opened:
        yield opened.name


@pytest.fixture
def fill_path(api: Api, stream: str) -> Callable[[str], str]:
    """Replace the places of ids in a path."""

    def fill(path: str) -> str:
        if "SNAPSHOT" in path:
            taken = api.post("/api/snapshots", {"name_contains": "none"}).body
            path = path.replace("SNAPSHOT", taken["id"])
        return path.replace("STREAM", stream)

    return fill


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(json.dumps(describe(API.routes)))
    return decoded


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def body_schema(document: dict[str, Any], route: tuple[str, str]) -> dict[str, Any]:
    content = operations(document)[route]["requestBody"]["content"]
    name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
    schema: dict[str, Any] = document["components"]["schemas"][name]
    return schema


def test_the_description_is_valid(api: Api, document: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(document).validate()
    assert api.get("/api/openapi.json") == document
    assert Api(api.port, "").request("GET", "/api/openapi.json").status == 401


def test_every_route_is_described(document: dict[str, Any]) -> None:
    described = operations(document)
    assert described.keys() == {(route.method, route.path) for route in API.routes}
    for route in API.routes:
        operation = described[route.method, route.path]
        assert operation["summary"].endswith("."), route
        assert ("security" in operation) is (route.access.name == "PUBLIC")
        parameters = {each["$ref"].rpartition("/")[2] for each in operation["parameters"]}
        assert {f"path.{name}" for name in re.findall(r"{(\w+)}", route.path)} <= parameters
        assert {f"query.{each.name}" for each in route.query} <= parameters
    identifiers = [operation["operationId"] for operation in described.values()]
    assert len(set(identifiers)) == len(identifiers)


def test_a_query_parameter_means_the_same_everywhere() -> None:
    meanings = {(each.name, each) for route in API.routes for each in route.query}
    assert len(meanings) == len({name for name, _ in meanings})


def test_every_body_is_described(document: dict[str, Any]) -> None:
    with_body = {key for key, each in operations(document).items() if "requestBody" in each}
    assert with_body == BODIES.keys() | ANY_OBJECT


@pytest.mark.parametrize("route", BODIES, ids=" ".join)
def test_documented_fields_are_accepted(
    api: Api,
    fill_path: Callable[[str], str],
    document: dict[str, Any],
    route: tuple[str, str],
) -> None:
    path, body = BODIES[route]
    path = fill_path(path)
    schema = body_schema(document, route)
    assert body.keys() | ALTERNATIVES.get(route, set()) == schema["properties"].keys()
    reply = api.request(route[0], path, body)
    assert str(reply.status) in operations(document)[route]["responses"]
    assert reply.status < 300, reply


@pytest.mark.parametrize("route", BODIES, ids=" ".join)
def test_documented_fields_are_checked(
    api: Api,
    fill_path: Callable[[str], str],
    document: dict[str, Any],
    route: tuple[str, str],
) -> None:
    path, body = BODIES[route]
    path = fill_path(path)
    schema = body_schema(document, route)
    for name, field in schema["properties"].items():
        if not field:
            continue  # any value
        reply = api.request(route[0], path, body | {name: [[1]]})
        assert (reply.status, name in reply.body["reason"]) == (400, True), (name, reply)
    for name in schema["required"]:
        reply = api.request(route[0], path, {key: body[key] for key in body.keys() - {name}})
        assert (reply.status, name in reply.body["reason"]) == (400, True), (name, reply)


def test_documented_properties_are_checked(api: Api, document: dict[str, Any]) -> None:
    path = BODIES["POST", "/api/exchanges/{vhost}/{exchange}/publish"][0]
    properties = document["components"]["schemas"]["MessageProperties"]["properties"]
    assert properties.keys() == MESSAGE["properties"].keys()  # type: ignore[attr-defined]
    for name in [*properties, "unknown"]:
        body = {**MESSAGE, "properties": {name: [1]}}
        reply = api.post(path, body)
        assert (reply.status, name in reply.body["reason"]) == (400, True), reply
