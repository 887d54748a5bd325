"""Import and dry run of definitions over HTTP, beside messages and other requests."""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pika
import pytest

import recado
from recado.broker.store import MessageStore
from recado.console.audit import log as audit_log
from recado.definitions.importer import DefinitionsImport
from tests.definitions.documents import binding, exchange, many, policy, queue

from .http import Api, Reply

DEADLINE_S = 60.0
DRY_RUN = "/api/definitions?dry_run=true"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


class Hold:
    """Holds imports before one of their turns."""

    def __init__(self) -> None:
        self.reached = Event()
        self.released = Event()
        self.turns = 0


@contextmanager
def held(
    monkeypatch: pytest.MonkeyPatch, is_due: Callable[[DefinitionsImport], bool]
) -> Iterator[Hold]:
    """Hold each import when it gets so far, until it is released."""
    hold, advance = Hold(), DefinitionsImport.advance

    def advance_or_wait(work: DefinitionsImport, budget: int, now: int) -> int:
        hold.turns += 1
        if not hold.released.is_set() and is_due(work):
            hold.reached.set()
            return 0
        return advance(work, 1, now)

    with monkeypatch.context() as patch:
        patch.setattr(DefinitionsImport, "advance", advance_or_wait)
        try:
            yield hold
        finally:
            hold.released.set()


def post(threads: ThreadPoolExecutor, api: Api, document: object) -> Future[Reply]:
    return threads.submit(api.post, "/api/definitions", document)


# ── dry run ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_tells_what_would_change(api: Api) -> None:
    api.put("/api/users/ana", {"password": "old", "tags": "monitoring"})
    api.put("/api/permissions/%2F/ana", {"configure": "", "write": "", "read": ""})
    api.put("/api/queues/%2F/known", {"durable": True})
    api.put("/api/queues/%2F/other", {"durable": False, "auto_delete": False})
    api.put("/api/global-parameters/motto", {"value": {"a": 1}})
    api.put("/api/policies/%2F/p", {"pattern": "^a", "definition": {"max-length": 1}})
    before = api.get("/api/definitions")
    document = {
        "users": [{"name": "ana", "password": "new", "tags": "administrator"}],
        "vhosts": [{"name": "/", "metadata": {"description": "d"}}, {"name": "new"}],
        "permissions": [
            {"user": "ana", "vhost": "/", "configure": "", "write": ".*", "read": ""},
            {"user": "bob", "vhost": "/", "configure": "", "write": "", "read": ""},
        ],
        "topic_permissions": [
            {"user": "ana", "vhost": "new", "exchange": "x", "write": "a", "read": "b"}
        ],
        "policies": [policy("p", "^b", priority=2)],
        "global_parameters": [{"name": "motto", "value": 2}, {"name": "cluster_name", "value": "c"}],
        "exchanges": [exchange("x", "regex"), exchange("amq.mine"), exchange("amq.topic")],
        "queues": [queue("known"), queue("other"), queue("q"), queue("q"), queue("w", durable=1)],
        "bindings": [
            binding("x", "q", routing_key="a", arguments={"n": 1}),
            binding("x", "q", routing_key="("),
            binding("", "q", routing_key="q"),
            binding("none", "q"),
        ],
        "gadgets": [],
    }  # fmt: skip
    reply = api.post(DRY_RUN, document)
    assert reply.status == 200
    assert reply.body["created"] == [
        {"kind": "global_parameter", "name": "cluster_name"},
        {"kind": "vhost", "name": "new"},
        {"kind": "topic_permission", "user": "ana", "vhost": "new", "exchange": "x"},
        {"kind": "exchange", "vhost": "/", "name": "x"},
        {"kind": "queue", "vhost": "/", "name": "q"},
        {
            "kind": "binding", "vhost": "/", "source": "x", "destination": "q", "destination_type": "queue",
            "routing_key": "a", "arguments": {"n": 1},
        },
    ]  # fmt: skip
    hidden = {"from": "(secret)", "to": "(secret)"}
    assert reply.body["changed"] == [
        {"kind": "global_parameter", "name": "motto", "changes": {"value": {"from": {"a": 1}, "to": 2}}},
        {
            "kind": "user", "name": "ana",
            "changes": {
                "password_hash": hidden, "tags": {"from": ["monitoring"], "to": ["administrator"]},
            },
        },
        {"kind": "vhost", "name": "/", "changes": {"description": {"from": "", "to": "d"}}},
        {"kind": "permission", "user": "ana", "vhost": "/", "changes": {"write": {"from": "", "to": ".*"}}},
        {
            "kind": "policy", "vhost": "/", "name": "p",
            "changes": {"pattern": {"from": "^a", "to": "^b"}, "priority": {"from": 0, "to": 2}},
        },
    ]  # fmt: skip
    assert reply.body["unchanged"] == {"exchange": 1, "queue": 2, "binding": 1}
    assert reply.body["skipped"] == [
        "gadgets: skipped, this key is not supported",
        "exchanges[1] ('amq.mine'): skipped, names with amq. are reserved",
        "bindings[3] ('q'): skipped, there is no 'none' in '/'",
    ]
    errors = reply.body["errors"]
    assert [error.partition(":")[0] for error in errors] == [
        "permissions[1] ('bob')", "queues[1] ('other')", "queues[4] ('w')", "bindings[1] ('q')",
    ]  # fmt: skip
    assert errors[0].endswith("there is no user 'bob'; add it to the users")
    assert api.get("/api/definitions") == before


def test_an_import_makes_what_its_dry_run_tells(api: Api) -> None:
    """DT2."""
    document = many(3, vhosts=[{"name": "v"}], policies=[policy("p")])
    told = api.post(DRY_RUN, document).body
    assert (len(told["created"]), told["changed"], told["unchanged"]) == (8, [], {})
    assert api.post("/api/definitions", document).status == 204
    again = api.post(DRY_RUN, document).body
    assert again == {
        "created": [],
        "changed": [],
        "unchanged": {"vhost": 1, "policy": 1, "queue": 3, "binding": 3},
        "skipped": [],
        "errors": [],
    }
    unchanged = api.post(DRY_RUN, api.get("/api/definitions")).body
    assert (unchanged["created"], unchanged["changed"], unchanged["errors"]) == ([], [], [])


def test_a_dry_run_for_one_vhost(api: Api) -> None:
    api.put("/api/vhosts/v", {})
    document = {"queues": [queue("q")], "description": "d"}
    told = api.post("/api/definitions/v?dry_run=true", document).body
    assert told["created"] == [{"kind": "queue", "vhost": "v", "name": "q"}]
    assert told["changed"][0]["changes"] == {"description": {"from": "", "to": "d"}}
    assert api.get("/api/queues") == []
    assert api.post("/api/definitions/none?dry_run=true", document).status == 404


def test_a_dry_run_counts_limits(api: Api) -> None:
    api.put("/api/vhost-limits/%2F/max-queues", {"value": 2})
    (error,) = api.post(DRY_RUN, many(3)).body["errors"]
    assert "adding 3 to vhost '/' would exceed its limit of 2" in error


@pytest.mark.parametrize("body", [b"{", b"[]", b"", b'{"vhosts":1}', b'{"a":1}'])
def test_a_dry_run_needs_definitions(api: Api, body: bytes) -> None:
    assert api.request("POST", DRY_RUN, body).status == 400
    assert api.request("POST", "/api/definitions", body).status == 400


def test_a_dry_run_needs_the_same_access_as_an_import(api: Api) -> None:
    for tag in ("management", "policymaker", "monitoring"):
        api.put(f"/api/users/{tag}", {"password": "p", "tags": tag})
        api.put(f"/api/permissions/%2F/{tag}", {"configure": ".*", "write": ".*", "read": ".*"})
        user = Api(api.port, tag, "p")
        for path in ("/api/definitions", DRY_RUN, "/api/definitions/%2F?dry_run=true"):
            assert user.post(path, many(1)).status == 401


def test_the_audit_log_has_imports_with_their_outcome(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, audit_log.name):
        api.post(DRY_RUN, many(1))
        assert not caplog.records
        api.post("/api/definitions", {"queues": [queue("q", durable="no")]})
        api.post("/api/definitions/%2F", many(1))
    entries = [json.loads(record.message) for record in caplog.records]
    assert [(entry["action"], entry.get("details")) for entry in entries] == [
        ("POST /api/definitions", None),
        ("POST /api/definitions", {"imported": False}),
        ("POST /api/definitions/{vhost}", None),
        ("POST /api/definitions/{vhost}", {"imported": True}),
    ]


# ── beside other work ─────────────────────────────────────────────────────────────────────────────────


def test_messages_flow_during_an_import(
    broker: recado.Broker, api: Api, threads: ThreadPoolExecutor
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("ping")
    document = json.dumps(many(3_000)).encode()
    replied, done = 0, post(threads, api, document)
    while not done.done():
        channel.basic_publish("", "ping", b"m")
        assert channel.basic_get("ping", auto_ack=True)[2] == b"m"
        replied += 1
    assert done.result().status == 204
    assert replied > 20
    assert len(api.get("/api/queues?page=1&page_size=1&name=q&columns=name")["items"]) == 1
    connection.close()


def test_a_second_import_is_refused_with_409(
    api: Api, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held(monkeypatch, lambda work: True) as hold:
        first = post(threads, api, many(1))
        assert hold.reached.wait(DEADLINE_S)
        for path in ("/api/definitions", DRY_RUN, "/api/definitions/%2F"):
            second = api.post(path, many(2))
            assert second.status == 409
            assert "another import of definitions is in progress" in second.body["reason"]
        hold.released.set()
        assert first.result().status == 204
    assert api.post("/api/definitions", many(2)).status == 204


def test_changes_of_definitions_wait_for_an_import(
    broker: recado.Broker,
    api: Api,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api.put("/api/queues/%2F/q", {"durable": True})
    with held(monkeypatch, lambda work: True) as hold:
        first = post(threads, api, {"queues": [queue("x", auto_delete=True)]})
        assert hold.reached.wait(DEADLINE_S)
        waiting = [
            threads.submit(api.put, "/api/queues/%2F/x", {"durable": True}),
            threads.submit(api.put, "/api/vhosts/v", {}),
            threads.submit(api.delete, "/api/queues/%2F/q"),
        ]
        message = {
            "properties": {},
            "routing_key": "q",
            "payload": "m",
            "payload_encoding": "string",
        }
        assert api.post("/api/exchanges/%2F/amq.default/publish", message).body == {"routed": True}
        taken = api.post(
            "/api/queues/%2F/q/get",
            {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"},
        )
        assert taken.body[0]["payload"] == "m"
        assert api.delete("/api/queues/%2F/q/contents") == 204
        assert [each["name"] for each in api.get("/api/queues")] == ["q"]
        seen = hold.turns
        while hold.turns < seen + 100:  # of the event loop
            api.get("/api/vhosts")
        assert not any(each.done() for each in waiting)
        hold.released.set()
        assert first.result().status == 204
    assert [each.result() for each in waiting] == [400, 201, 204]


def test_an_import_is_completed_if_its_client_disconnects(
    broker: recado.Broker, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = json.dumps(many(50)).encode()
    head = (
        "POST /api/definitions HTTP/1.1\r\nhost: x\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    with held(monkeypatch, lambda work: True) as hold:
        with socket.create_connection(("127.0.0.1", api.port)) as connection:
            connection.sendall(head.encode() + body)
            assert hold.reached.wait(DEADLINE_S)
        seen = hold.turns
        while hold.turns < seen + 100:
            api.get("/api/vhosts")
    assert api.put("/api/vhosts/v", {}) == 201, "it waits for the import"
    assert len(api.get("/api/queues")) == 50


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_node_that_stops_during_an_import_completes_it_at_its_next_start(
    tmp_path: Path, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    config = {"management": {"port": 0}}

    def is_due(work: DefinitionsImport) -> bool:
        if is_committed:
            return len(work._broker.vhosts["/"].queues) >= 30
        return len(work._broker.vhosts["/"].reserved) >= 30

    with held(monkeypatch, is_due) as hold:
        with recado.Broker(config=config, data=tmp_path) as broker:
            first = post(threads, Api(broker.management_port or 0), many(100))
            assert hold.reached.wait(DEADLINE_S)
        with pytest.raises(OSError, match="closed"):
            first.result()
    with recado.Broker(config=config, data=tmp_path) as broker:
        exported: dict[str, Any] = broker.export_definitions()
    counts = len(exported["queues"]), len(exported["bindings"])
    assert counts == ((100, 100) if is_committed else (0, 0))


# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [(errno.ENOSPC, 507, "insufficient_storage"), (errno.EIO, 500, "internal_error")],
)
def test_a_change_that_the_disk_refuses_is_answered_with_the_reason(
    api: Api, monkeypatch: pytest.MonkeyPatch, code: int, status: int, error: str
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(code, "the words of the system", "/secret/path")

    monkeypatch.setattr(MessageStore, "prepare_stream", refuse)
    monkeypatch.setattr(MessageStore, "queue_declared", refuse)
    stream = queue("s", type="stream")
    expected = {"error": error, "reason": "the change cannot be stored: the words of the system"}
    reply = api.post("/api/definitions", {"vhosts": [{"name": "v"}], "queues": [stream]})
    assert (reply.status, reply.body) == (status, expected)
    reply = api.request("PUT", "/api/queues/%2F/s", {"durable": True})
    assert (reply.status, reply.body) == (status, expected)
    assert [each["name"] for each in api.get("/api/vhosts")] == ["/"]
    assert api.get("/api/queues") == []
    monkeypatch.undo()
    assert api.post("/api/definitions", {"queues": [stream]}).status == 204
