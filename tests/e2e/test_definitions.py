"""Definitions and policies beside a real RabbitMQ: what one exports the other imports, and it returns equal."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError

import recado
from recado.broker.errors import InvalidPolicyError
from recado.broker.policy import Policy
from workshop import peers, system
from workshop.peers import HOST, Server
from workshop.time_limit import scale

ARGON2 = "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHRzb21l$aGFzaGhhc2hoYXNoaGFzaA"
PATIENCE = 30.0

OURS: dict[str, Any] = {
    "users": [
        {"name": "ana", "password": "secret", "tags": "administrator,monitoring"},
        {"name": "bob", "password_hash": "", "tags": [], "limits": {"max-connections": 5}},
        {"name": "eve", "recado_password_hash": ARGON2},
        {
            "name": "sam",
            "password_hash": base64.b64encode(bytes(68)).decode(),
            "hashing_algorithm": "rabbit_password_hashing_sha512",
        },
    ],
    "vhosts": [{"name": "orders"}],
    "permissions": [
        {"user": "ana", "vhost": "orders", "configure": "^(?!amq)", "write": ".*", "read": ""},
        {"user": "bob", "vhost": "/", "configure": "", "write": "", "read": ""},
    ],
    "topic_permissions": [
        {"user": "ana", "vhost": "orders", "exchange": "amq.topic", "write": "^a", "read": ".*"}
    ],
    "parameters": [
        {
            "vhost": "orders",
            "component": "operator_policy",
            "name": "most",
            "value": {"pattern": "", "definition": {"max-length": 9}, "apply-to": "queues"},
        },
        {
            "vhost": "orders",
            "component": "vhost-limits",
            "name": "limits",
            "value": {"max-connections": 100, "max-queues": 50},
        },
    ],
    "global_parameters": [
        {"name": "cluster_name", "value": "shop"},
        {"name": "own", "value": {"list": [1, "a", {"b": True}], "float": 1.5}},
    ],
    "policies": [
        {
            "vhost": "orders",
            "name": "both",
            "pattern": r"^(?!amq\.).*",
            "priority": 3,
            "definition": {"message-ttl": 100_000, "dead-letter-exchange": "dead"},
        },
        {
            "vhost": "/",
            "name": "mirrored",
            "pattern": "",
            "apply-to": "queues",
            "definition": {"ha-mode": "exactly", "ha-params": 1, "queue-mode": "lazy"},
        },
    ],
    "exchanges": [
        {
            "name": name,
            "vhost": "orders",
            "type": kind,
            "durable": True,
            "auto_delete": False,
            "internal": internal,
            "arguments": arguments,
        }
        for name, kind, internal, arguments in (
            ("dead", "fanout", False, {}),
            ("inner", "headers", True, {}),
            ("first", "topic", False, {"alternate-exchange": "dead"}),
        )
    ],
    "queues": [
        {
            "name": name,
            "vhost": "orders",
            "durable": True,
            "auto_delete": False,
            "arguments": arguments,
        }
        for name, arguments in (
            ("plain", {}),
            ("limited", {"x-max-length": 5, "x-max-priority": 3, "x-overflow": "reject-publish"}),
            ("odd", {"list": [1, "a", {"b": True}], "float": 1.5}),
            ("safe", {"x-queue-type": "quorum", "x-delivery-limit": 3}),
            ("log", {"x-queue-type": "stream", "x-max-age": "1D"}),
        )
    ],
    "bindings": [
        {
            "source": source,
            "vhost": "orders",
            "destination": end,
            "destination_type": kind,
            "routing_key": key,
            "arguments": arguments,
        }
        for source, end, kind, key, arguments in (
            ("first", "plain", "queue", "a.#", {}),
            ("first", "inner", "exchange", "b", {}),
            ("inner", "limited", "queue", "", {"x-match": "any", "size": 5, "blue": True}),
            ("amq.direct", "log", "queue", "é", {}),
        )
    ],
}


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Server]:
    """One of our own: definitions concern everybody in it."""
    with peers.rabbitmq(management=True) as server:
        yield server


def ask(server: Server, method: str, path: str, body: object = None) -> Any:
    """RabbitMQ's HTTP API, as soon as it listens. A refusal gives its reason."""
    request = urllib.request.Request(
        f"http://{HOST}:{server.http_port}/api/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "content-type": "application/json",
            "authorization": f"Basic {base64.b64encode(b'guest:guest').decode()}",
        },
    )
    deadline = time.monotonic() + scale(PATIENCE)
    while True:
        try:
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            return json.loads(error.read())["reason"]
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "its HTTP API does not listen"


def by_content(document: dict[str, Any]) -> dict[str, list[str]]:
    """Without order, and without what is each broker's own."""
    sections = {key: entries for key, entries in document.items() if isinstance(entries, list)}
    found = {}
    for section, entries in sections.items():
        for entry in entries:
            entry.pop("recado_password_hash", None)
        texts = (json.dumps(entry, sort_keys=True) for entry in entries)
        own = ('"guest"', '"internal_cluster_id"')
        found[section] = sorted(text for text in texts if not any(each in text for each in own))
    return found


def test_our_export_comes_back_equal(rabbit: Server) -> None:
    with recado.Broker() as broker:
        broker.import_definitions(OURS)
        ours = broker.export_definitions()
    assert ask(rabbit, "POST", "definitions", ours) is None
    theirs = ask(rabbit, "GET", "definitions")
    assert by_content(theirs) == by_content(ours)
    with recado.Broker() as broker:
        assert broker.import_definitions(theirs) == []
        assert by_content(broker.export_definitions()) == by_content(ours)


def test_an_export_of_one_vhost_comes_back_equal(rabbit: Server) -> None:
    with recado.Broker() as broker:
        broker.import_definitions(OURS)
        ours = broker.export_definitions("orders")
    ask(rabbit, "PUT", "vhosts/again", {})
    assert ask(rabbit, "POST", "definitions/again", ours) is None
    theirs = ask(rabbit, "GET", "definitions/again")
    ask(rabbit, "DELETE", "vhosts/again")
    with recado.Broker(config={"access": {"vhosts": ["/", "again"]}}) as broker:
        assert broker.import_definitions(theirs, vhost="again") == []
        back = broker.export_definitions("again")
    assert by_content(back) == by_content(ours)


def test_an_export_by_rabbitmqctl(rabbit: Server, tmp_path: Path) -> None:
    """It has lists of pairs in place of some tables, and bindings of exchanges that it leaves out."""
    with recado.Broker() as broker:
        broker.import_definitions(OURS)
        ours = broker.export_definitions()
    ask(rabbit, "POST", "definitions", ours)
    (server,) = system.need(system.RABBITMQ)
    tool = Path(server).with_name("rabbitmqctl")
    variables = Path(f"/proc/{rabbit.pid}/environ").read_text().split("\0")
    environment = dict(os.environ) | dict(each.split("=", 1) for each in variables if each)
    file = tmp_path / "definitions.json"
    subprocess.run([tool, "export_definitions", file], env=environment, check=True, timeout=60)
    theirs = json.loads(file.read_text())
    with recado.Broker() as broker:
        notes = broker.import_definitions(theirs)
        back = broker.export_definitions()
    assert all("there is no 'inner'" in note for note in notes)
    wanted, found = by_content(ours), by_content(back)
    for section in ("users", "permissions", "topic_permissions", "parameters", "policies"):
        assert found[section] == wanted[section]
    assert found["queues"] == wanted["queues"]


LIMITED: dict[str, Any] = {
    "users": [
        {
            "name": "few",
            "password": "few",
            "tags": "",
            "limits": {"max-connections": 1, "max-channels": 1},
        },
        {"name": "none", "password": "none", "tags": "", "limits": {"max-connections": 0}},
        {
            "name": "any",
            "password": "any",
            "tags": "",
            "limits": {"max-connections": -1, "max-channels": -1},
        },
    ],
    "vhosts": [{"name": "small"}, {"name": "closed"}, {"name": "open"}],
    "permissions": [
        {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        for user in ("few", "none", "any")
        for vhost in ("small", "closed", "open")
    ],
    "parameters": [
        {"vhost": vhost, "component": "vhost-limits", "name": "limits", "value": value}
        for vhost, value in (
            ("small", {"max-connections": 1, "max-queues": 2}),
            ("closed", {"max-connections": 0}),
            ("open", {"max-connections": -1, "max-queues": -1}),
        )
    ],
}


def answers_at_limits(port: int) -> list[str]:
    """What a broker with these limits answers, one text for each attempt that it refuses."""

    def connect(user: str, vhost: str) -> pika.BlockingConnection:
        login = pika.PlainCredentials(user, user)
        return pika.BlockingConnection(pika.ConnectionParameters(HOST, port, vhost, login))

    def refusal(attempt: Callable[..., Any], *arguments: object) -> str:
        """RabbitMQ counts connections and channels a moment after it has let them in."""
        deadline = time.monotonic() + scale(PATIENCE)
        while time.monotonic() < deadline:
            try:
                attempt(*arguments).close()
            except AMQPError as refused:
                return re.sub(r"amq\.gen-[\w-]+", "amq.gen", str(refused))
        pytest.fail(f"it was never refused: {arguments}")

    small, few = connect("any", "small"), connect("few", "open")
    answers = [
        refusal(connect, user, vhost)
        for user, vhost in (
            ("any", "small"),
            ("any", "closed"),
            ("few", "open"),
            ("none", "open"),
            ("none", "closed"),
        )
    ]
    channel = small.channel()
    channel.queue_declare("one", durable=True)
    channel.queue_declare("two", exclusive=True)
    channel.queue_declare("one", durable=True)
    channel.queue_declare("one", passive=True)
    for name in ("three", "", "amq.three"):
        answers.append(refusal(small.channel().queue_declare, name))
    few.channel()
    answers.append(refusal(few.channel))
    small.close()
    return answers


def test_limits_are_enforced_in_the_same_words(rabbit: Server) -> None:
    assert ask(rabbit, "POST", "definitions", LIMITED) is None
    theirs = answers_at_limits(rabbit.port)
    for vhost in ("small", "closed", "open"):
        ask(rabbit, "DELETE", f"vhosts/{vhost}")
    with recado.Broker() as broker:
        assert broker.import_definitions(LIMITED) == []
        ours = answers_at_limits(broker.port)
    assert ours == theirs


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": -1},
        {"message-ttl": 1.5},
        {"message-ttl": "x"},
        {"message-ttl": True},
        {"message-ttl": 10**15},
        {"expires": 0},
        {"max-length": -1},
        {"max-length-bytes": "a"},
        {"max-in-memory-length": -1},
        {"overflow": 3},
        {"dead-letter-exchange": 3},
        {"dead-letter-routing-key": 3},
        {"dead-letter-strategy": "x"},
        {"dead-letter-strategy": "at-least-once"},
        {"delivery-limit": -1},
        {"alternate-exchange": 3},
        {"max-age": "1x"},
        {"max-age": "1Y"},
        {"stream-max-segment-size-bytes": -1},
        {"queue-mode": "x"},
        {"queue-version": 3},
        {"queue-leader-locator": "x"},
        {"initial-cluster-size": "x"},
        {"queue-master-locator": "min-masters"},
        {"ha-mode": "all", "ha-sync-mode": "automatic"},
        {"foo": "bar"},
        {"foo": {"a": 1}},
        {"foo": 1, "bar": "x", "message-ttl": 3},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("operator", [False, True])
def test_policies_are_refused_in_the_same_words(
    rabbit: Server, definition: dict[str, Any], operator: bool
) -> None:
    kind = "operator-policies" if operator else "policies"
    wanted = {"pattern": "^nothing$", "definition": definition, "apply-to": "queues"}
    answer = ask(rabbit, "PUT", f"{kind}/%2F/refused", wanted)
    theirs = answer and answer.replace("&lt;", "<").replace("&gt;", ">").split("\n\n")[1].strip()
    ours = None
    try:
        Policy(name="p", pattern="", definition=definition, operator=operator)
    except InvalidPolicyError as refusal:
        ours = str(refusal)
    assert ours == theirs
