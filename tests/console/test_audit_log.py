"""The audit log: its lines, those that are kept in memory, and who may read them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

import recado
from recado.console import audit
from recado.console.audit import AuditLog
from recado.console.routes import API

from .http import Api

FULL = {"configure": ".*", "write": ".*", "read": ".*"}


def lines(api: Api, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/api/audit{query}")
    return found


def test_the_newest_changes_are_first(
    broker: recado.Broker, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="recado.audit")
    assert api.put("/api/users/ana", {"password": "secret!", "tags": "administrator"}) == 201
    assert api.put("/api/permissions/%2F/ana", FULL) == 201
    assert broker.management_port is not None
    ana = Api(broker.management_port, "ana", "secret!")
    assert ana.put("/api/queues/%2F/Orders", {}) == 201
    ana.post("/api/queues/%2F/Orders/replay", {})
    assert ana.request("PUT", "/api/queues/%2F/other", {"arguments": {"x-max-length": -1}}).status
    found = lines(api)
    assert [(each["user"], each["summary"]) for each in found] == [
        ("ana", found[0]["summary"]),
        ("ana", found[0]["summary"]),
        ("ana", "Declare a queue."),
        ("guest", "Set the permission of a user in a vhost."),
        ("guest", found[4]["summary"]),
    ]
    assert found[0]["summary"].startswith("Return dead letters to the queues")
    assert found[0]["details"] == {"replayed": 0, "kept": {}}
    assert "details" not in found[1]
    assert [each["number"] for each in found] == [5, 4, 3, 2, 1]
    declared = found[2]
    assert declared.pop("at").endswith("+00:00")
    assert declared == {
        "number": 3,
        "user": "ana",
        "address": "127.0.0.1",
        "action": "PUT /api/queues/{vhost}/{queue}",
        "summary": "Declare a queue.",
        "object": {"vhost": "/", "queue": "Orders"},
    }
    assert "secret!" not in json.dumps(found)
    written = [json.loads(each.message) for each in caplog.records]
    assert [each["action"] for each in reversed(written)] == [each["action"] for each in found]


def test_filters(api: Api) -> None:
    for name in ("orders", "Orders.new", "invoices"):
        assert api.put(f"/api/queues/%2F/{name}", {}) == 201
    assert api.put("/api/exchanges/%2F/orders", {"type": "fanout"}) == 201
    assert api.delete("/api/queues/%2F/invoices") == 204
    assert len(lines(api)) == 5
    for query, numbers in {
        "?object=ORDERS": [4, 2, 1],
        "?object=orders&action=declare%20a%20queue": [2, 1],
        "?action=delete": [5],
        "?action=/api/queues": [5, 3, 2, 1],
        "?user=guest&count=2": [5, 4],
        "?user=gues": [],
        "?user=Guest": [5, 4, 3, 2, 1],
        "?before=3": [2, 1],
        "?before=3&count=1": [2],
        "?before=1": [],
        "?before=999": [5, 4, 3, 2, 1],
        "?sort=number&columns=number": [1, 2, 3, 4, 5],
    }.items():
        assert [each["number"] for each in lines(api, query)] == numbers, query
    for wrong in (
        "count=0",
        "count=1001",
        "count=x",
        "before=0",
        "before=-1",
        "before=" + "9" * 20,
    ):
        assert api.request("GET", f"/api/audit?{wrong}").status == 400, wrong


def test_it_is_for_administrators_only(broker: recado.Broker, api: Api) -> None:
    assert broker.management_port is not None
    for tag in ("management", "policymaker", "monitoring", ""):
        assert api.put("/api/users/ana", {"password": "ana", "tags": tag}) in (201, 204)
        ana = Api(broker.management_port, "ana", "ana")
        assert ana.request("GET", "/api/audit").status == 401


def record(log: AuditLog, name: str) -> None:
    route = next(each for each in API.routes if each.method == "PUT")
    log.record("ana", "::1", route, {"name": name})


def test_au1_few_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "KEPT_LINES_MAX", 3)
    log = AuditLog()
    for number in range(1, 6):
        record(log, str(number))
    assert [(number, each.object["name"]) for number, each in log.read()] == [
        (5, "5"),
        (4, "4"),
        (3, "3"),
    ]
    assert [number for number, _ in log.read(before=4)] == [3]
    assert [number for number, _ in log.read(before=2)] == []


def test_au1_they_are_small_together(monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog()
    record(log, "x" * 200)
    size = log._kept_bytes
    monkeypatch.setattr(audit, "KEPT_MAX_BYTES", 4 * size)
    for _ in range(9):
        record(log, "x" * 200)
    assert len(list(log.read())) == 4
    record(log, "x" * 4 * size)
    assert len(list(log.read())) == 0, "a line that is longer than the limit is only written"
    record(log, "y")
    assert [number for number, _ in log.read()] == [12]
