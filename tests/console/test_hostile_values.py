"""Hostile values in all fields, users that change while a request arrives, and the length of one step."""

from __future__ import annotations

import base64
import random
import re
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec
import pika
import pytest

import recado
from recado.broker.broker import Broker
from recado.console import console as console_module
from recado.console import management, site
from recado.console.history import read_series_request
from recado.console.query import Listing, ListQuery, arrange
from recado.console.routes import API, Content
from recado.definitions.document import DefinitionsError
from recado.definitions.exporter import export_definitions, stream_definitions
from recado.definitions.importer import import_definitions
from recado.server import server

from .http import Api

assert management.RESOURCES  # the import registers the routes

REQUESTS_COUNT = 1_500
HUGE = 2**70
NAMES = ["q", "x", "amq.topic", "guest", "ana", "a" * 300, "é" * 200, "\x00", " ", "max-queues"]
VALUES: list[Any] = [
    *(None, True, 1, -1, 1.5, 1e300, 2**63, HUGE, -HUGE),
    *("", "x", "a" * 300, "é" * 200, "((", "\x00", "classic", "stream", "queues"),
    *([], [1], ["x"], [[]], [None], {}, {"x": 1}, {"x": HUGE}, {"k" * 300: 1}, {"": None}),
    *({"headers": {"k" * 300: 1}}, {"priority": 256}, {"max-length": HUGE}, {"x-expires": 1.5}),
]
FIELDS = [
    "arguments",
    "durable",
    "auto_delete",
    "internal",
    "type",
    "routing_key",
    "properties",
    "payload",
    "payload_encoding",
    "count",
    "ackmode",
    "encoding",
    "truncate",
    "skip",
    "destination",
    "destination_vhost",
    "max_replays",
    "vhost",
    "headers",
    "selector",
    "offset",
    "action",
    "tags",
    "password",
    "password_hash",
    "users",
    "configure",
    "write",
    "read",
    "exchange",
    "value",
    "description",
    "default_queue_type",
    "pattern",
    "definition",
    "apply-to",
    "priority",
    "name",
    "vhosts",
    "permissions",
    "policies",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "exchanges",
    "queues",
    "bindings",
]
VALID: dict[str, Any] = {
    "routing_key": "q",
    "properties": {},
    "payload": "x",
    "payload_encoding": "string",
    "count": 1,
    "ackmode": "ack_requeue_true",
    "encoding": "auto",
    "destination": "q",
    "vhost": "/",
    "pattern": ".*",
    "definition": {"max-length": 5},
    "configure": ".*",
    "write": ".*",
    "read": ".*",
    "exchange": "amq.topic",
    "tags": "management",
    "value": 1,
    "name": "n",
}
QUERY = [
    "page",
    "page_size",
    "name",
    "use_regex",
    "sort",
    "columns",
    "msg_rates_age",
    "msg_rates_incr",
    "queue",
    "family",
    "types",
    "watch",
    "last_event_id",
]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_value_is_an_internal_error(
    api: Api, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    choose = random.Random(seed)
    assert api.put("/api/queues/%2F/q", {}) == 201

    def fill(match: re.Match[str]) -> str:
        return "%2F" if match[1] == "vhost" else quote(choose.choice(NAMES), safe="")

    routes = [route for route in API.routes if route.method != "DELETE"]
    for _ in range(REQUESTS_COUNT):
        route = choose.choice(routes)
        path = re.sub(r"\{(\w+)\}", fill, route.path)
        if path.startswith(("/api/users/guest", "/api/permissions/%2F/guest")):
            continue
        if choose.random() < 0.3:
            values = ["1", "²", "-1", "true", "((", "name", "a..b", "99999999999"]
            path += f"?{choose.choice(QUERY)}={quote(choose.choice(values))}"
        body = None
        if route.method != "GET":
            wrong = {choose.choice(FIELDS): choose.choice(VALUES)}
            body = {key: each for key, each in (VALID | wrong).items() if choose.random() < 0.98}
        is_endless = route.content is Content.EVENTS
        reply = api.request("HEAD" if is_endless else route.method, path, body)
        assert reply.status < 500 or reply.status == 503, (route.method, path, body, reply)
    assert "error while handling a request" not in caplog.text
    assert api.request("POST", "/api/definitions", api.get("/api/definitions")).status == 204


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/api/vhosts/x", b'{"description":"\xff"}'),
        ("PUT", "/api/user-limits/guest/max-channels", {"value": HUGE}),
        ("PUT", "/api/vhost-limits/%2F/max-queues", {"value": HUGE}),
        ("POST", "/api/exchanges/%2F/amq.default/publish", {**VALID, "routing_key": "k" * 300}),
        ("POST", f"/api/exchanges/%2F/{'e' * 300}/publish", VALID),
        ("POST", "/api/exchanges/%2F/amq.default/publish", [VALID]),
        ("POST", "/api/exchanges/%2F/amq.default/publish", b'{"payload":"\xff"}'),
        ("POST", "/api/exchanges/%2F/amq.default/publish", {**VALID, "payload": [[]] * 9}),
        ("POST", "/api/exchanges/%2F/amq.default/publish", {**VALID, "properties": [[]] * 99_999}),
        ("POST", "/api/exchanges/%2F/amq.default/publish", {"routing_key": "q", "payload": "x"}),
        (
            "POST",
            "/api/exchanges/%2F/amq.default/publish",
            {**VALID, "properties": {"headers": {"k" * 300: 1}}},
        ),
        ("POST", "/api/queues/%2F/q/get", {**VALID, "ackmode": []}),
        ("POST", "/api/bindings/%2F/e/amq.topic/q/q", {"routing_key": "k" * 300}),
        ("POST", "/api/bindings/%2F/e/amq.headers/q/q", {"arguments": {"k" * 300: 1}}),
        ("PUT", f"/api/queues/%2F/{'q' * 300}", {"durable": True}),
        ("PUT", f"/api/exchanges/%2F/{'x' * 300}", {"durable": True}),
        ("PUT", f"/api/users/{'u' * 300}", {"tags": ""}),
        ("PUT", "/api/topic-permissions/%2F/guest", {**VALID, "exchange": "x" * 300}),
        ("POST", "/api/definitions", {"users": [{"name": "u", "limits": {"max-channels": HUGE}}]}),
        (
            "POST",
            "/api/definitions/%2F",
            {
                "queues": [
                    {
                        "name": "n",
                        "durable": True,
                        "auto_delete": False,
                        "arguments": {"x": {"k" * 300: 1}},
                    }
                ]
            },
        ),
        ("PUT", "/api/global-parameters/x", {"value": "v" * site.SHORT_BODY_MAX_BYTES}),
    ],
)
def test_values_that_amqp_cannot_carry_are_refused(
    api: Api, method: str, path: str, body: object
) -> None:
    api.put("/api/queues/%2F/q", {})
    assert api.request(method, path, body).status == 400


def test_a_limit_of_definitions_has_at_most_64_bits() -> None:
    user = {"name": "u", "password_hash": "", "tags": "", "limits": {"max-channels": HUGE}}
    with pytest.raises(DefinitionsError, match="'max-channels' does not fit into 64 bits"):
        import_definitions(Broker(lambda: "name"), {"users": [user]}, 0)


def test_a_step_of_a_series_is_an_ascii_number() -> None:
    assert read_series_request("60", "²") is None
    assert read_series_request("²", "5") is None
    assert read_series_request("60", "x") is None


def test_a_user_can_be_named_twice_in_a_bulk_delete(api: Api) -> None:
    assert api.put("/api/users/ana", {"tags": ""}) == 201
    assert api.post("/api/users/bulk-delete", {"users": ["ana", "ana", "eva"]}).status == 204


def test_an_exclusive_queue_can_only_be_changed_by_its_connection(
    broker: recado.Broker, api: Api
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.channel().queue_declare("mine", exclusive=True)
    assert api.delete("/api/queues/%2F/mine/contents") == 400
    assert api.delete("/api/queues/%2F/mine") == 400
    connection.close()


# ── users ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda api: api.delete("/api/users/eve"), b"401"),
        (lambda api: api.put("/api/users/eve", {"password": "p", "tags": "management"}), b"401"),
        (lambda api: api.put("/api/users/eve", {"password": "q", "tags": "administrator"}), b"401"),
        (lambda api: api.put("/api/user-limits/eve/max-channels", {"value": 5}), b"201"),
    ],
)
def test_a_user_that_changes_while_the_body_arrives(
    api: Api, change: Callable[[Api], object], status: bytes
) -> None:
    api.put("/api/users/eve", {"password": "p", "tags": "administrator"})
    token = base64.b64encode(b"eve:p").decode()
    head = f"PUT /api/vhosts/new HTTP/1.1\r\nhost: x\r\nauthorization: Basic {token}\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as peer:
        peer.sendall(f"{head}content-length: 2\r\n\r\n{{".encode())
        api.get("/api/whoami")
        change(api)
        peer.sendall(b"}")
        reply = peer.recv(65536)
    assert reply.split(b" ", 2)[1] == status
    assert ("new" in {each["name"] for each in api.get("/api/vhosts")}) is (status == b"201")


def test_users_limited_to_localhost_stay_so(broker: recado.Broker, api: Api) -> None:
    def is_limited() -> bool:
        return broker._run_on_broker(lambda core, _: core.users["guest"].loopback_only)

    assert is_limited()
    assert api.post("/api/definitions", api.get("/api/definitions")).status == 204
    assert is_limited()
    api.put("/api/users/root", {"password": "p", "tags": "administrator"})
    root = Api(api.port, "root", "p")
    assert root.delete("/api/users/guest") == 204
    assert root.put("/api/users/guest", {"password": "p", "tags": ""}) == 201
    assert is_limited()


def test_waiting_password_checks_are_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "PENDING_LOGINS_MAX_COUNT", 0)
    assert api.request("GET", "/api/whoami").status == 429


# ── definitions ─────────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_changes_nothing(api: Api) -> None:
    document = {"vhosts": [{"name": "new"}]}
    assert api.post("/api/definitions?dry_run=true", document).status == 200
    assert api.post("/api/definitions?dry_run=true", {"vhosts": 1}).status == 400
    assert [each["name"] for each in api.get("/api/vhosts")] == ["/"]
    assert api.post("/api/definitions", document).status == 204
    assert [each["name"] for each in api.get("/api/vhosts")] == ["/", "new"]


def test_a_vhost_that_is_being_deleted_is_not_imported() -> None:
    broker = Broker(lambda: "name")
    broker.deleting_vhosts.add("v")
    with pytest.raises(DefinitionsError, match="'v' is being deleted"):
        import_definitions(broker, {"vhosts": [{"name": "v"}]}, 0)
    assert "v" not in broker.vhosts


@pytest.mark.parametrize("vhost", [None, "/"])
def test_streamed_definitions_are_those_at_the_start(vhost: str | None) -> None:
    broker = Broker(lambda: "name")
    queues = [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False} for name in ("a", "b")
    ]
    binding = {"source": "amq.topic", "vhost": "/", "destination": "a", "arguments": {}}
    bindings = [
        {**binding, "destination_type": "queue", "routing_key": key} for key in ("k1", "k2")
    ]
    vhosts = [{"name": "/"}]
    import_definitions(broker, {"vhosts": vhosts, "queues": queues, "bindings": bindings}, 0)
    expected = export_definitions(broker, vhost)
    parts = stream_definitions(broker, vhost)
    first = next(parts)
    import_definitions(
        broker, {"queues": [{**queues[0], "name": f"later{n}"} for n in range(9)]}, 0
    )
    assert msgspec.json.decode(first + b"".join(parts)) == expected


# ── steps ───────────────────────────────────────────────────────────────────────────────────────────


def test_sorting_by_a_built_column_builds_one_object_in_a_step() -> None:
    built = []

    def build(entry: int) -> dict[str, int]:
        built.append(entry)
        return {"value": -entry}

    steps = arrange(Listing(range(50), build, str), ListQuery(sort=("value",)))
    next(steps)
    assert built == [0]
    next(steps)
    assert built == [0, 1]


def test_many_messages_are_got_in_order(api: Api) -> None:
    assert api.put("/api/queues/%2F/q", {}) == 201
    for number in range(5):
        api.post("/api/exchanges/%2F/amq.default/publish", {**VALID, "payload": str(number)})
    reply = api.post("/api/queues/%2F/q/get", {**VALID, "count": 10})
    assert [each["payload"] for each in reply.body] == list("01234")


def test_publishing_is_refused_during_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAINTENANCE_INTERVAL_S", 0.01)
    settings: dict[str, dict[str, object]] = {
        "management": {"port": 0},
        "broker": {"memory_watermark": 0.000001},
    }
    with recado.Broker(config=settings) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        while api.request("GET", "/health/alarms").status != 503:
            pass  # until memory is checked for the first time
        reply = api.post("/api/exchanges/%2F/amq.default/publish", VALID)
        assert (reply.status, reply.body["error"]) == (503, "alarm")
        for path, status in (
            ("/health/live", 200),
            ("/health/ready", 200),
            ("/health/alarms", 503),
        ):
            assert api.request("GET", path).status == status
