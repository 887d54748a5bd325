"""`rabbitmqadmin`, RabbitMQ's command line tool for its management API: every subcommand, on recado."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado
from workshop import system
from workshop.time_limit import scale

from .traffic import PATIENCE


class Admin:
    """Runs `rabbitmqadmin` against a broker; a status other than 0 is an error."""

    def __init__(self, broker: recado.Broker) -> None:
        assert broker.management_port is not None
        (program,) = system.need(system.RABBITMQADMIN)
        self._command = [program, "--host=127.0.0.1", f"--port={broker.management_port}"]

    def run(self, *arguments: str, feed: str = "") -> str:
        done = subprocess.run(
            [*self._command, *arguments],
            input=feed,
            capture_output=True,
            text=True,
            timeout=scale(PATIENCE),
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def read(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the JSON that a subcommand prints."""
        rows: list[dict[str, Any]] = json.loads(self.run("--format=raw_json", *arguments))
        return rows

    def has(self, plural: str, expected: dict[str, Any]) -> bool:
        """Return whether `list` prints an object with these fields."""
        return any(expected.items() <= row.items() for row in rows_of(self.read("list", plural)))


def rows_of(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows whose nested values are JSON texts, so that they can be compared as sets of items."""
    for row in rows:
        yield {
            key: json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value
            for key, value in row.items()
        }


class Kind(NamedTuple):
    """A kind of object that can be declared, listed and deleted."""

    plural: str
    declare: tuple[str, ...]
    delete: tuple[str, ...]
    row: dict[str, Any]
    """Fields of the declared object in a listing."""


KINDS = {
    "exchange": Kind(
        "exchanges",
        ("name=shop/orders", "type=topic", "internal=true", 'arguments={"x-a": 1}'),
        ("name=shop/orders",),
        {
            "name": "shop/orders",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": True,
            "arguments": '{"x-a": 1}',
        },
    ),
    "queue": Kind(
        "queues",
        ("name=new q", "durable=true", "queue_type=quorum", 'arguments={"x-max-length": 9}'),
        ("name=new q",),
        {
            "name": "new q",
            "type": "quorum",
            "durable": True,
            "auto_delete": False,
            "arguments": '{"x-max-length": 9, "x-queue-type": "quorum"}',
        },
    ),
    "binding": Kind(
        "bindings",
        ("source=amq.topic", "destination=kept", "routing_key=a/b.#"),
        (
            "source=amq.topic",
            "destination_type=queue",
            "destination=kept",
            "properties_key=a%2Fb.%23",
        ),
        {"source": "amq.topic", "destination": "kept", "routing_key": "a/b.#"},
    ),
    "vhost": Kind("vhosts", ("name=a/b", "tracing=false"), ("name=a/b",), {"name": "a/b"}),
    "user": Kind(
        "users",
        ("name=ana", "password=p", "tags=monitoring,policymaker"),
        ("name=ana",),
        {"name": "ana", "tags": '["monitoring", "policymaker"]'},
    ),
    "permission": Kind(
        "permissions",
        ("vhost=kept", "user=kept", "configure=^a", "write=^b", "read=.*"),
        ("vhost=kept", "user=kept"),
        {"vhost": "kept", "user": "kept", "configure": "^a", "write": "^b", "read": ".*"},
    ),
    "parameter": Kind(
        "parameters",
        ("component=vhost-limits", "name=limits", 'value={"max-queues": 99}'),
        ("component=vhost-limits", "name=limits"),
        {"vhost": "/", "component": "vhost-limits", "value": '{"max-queues": 99}'},
    ),
    "policy": Kind(
        "policies",
        ("name=p", "pattern=^x", 'definition={"max-length": 3}', "priority=4", "apply-to=queues"),
        ("name=p",),
        {"name": "p", "pattern": "^x", "priority": 4, "definition": '{"max-length": 3}'},
    ),
    "operator_policy": Kind(
        "operator_policies",
        ("name=o", "pattern=^x", 'definition={"max-length": 3}', "apply-to=queues"),
        ("name=o",),
        {"name": "o", "pattern": "^x", "priority": 0, "definition": '{"max-length": 3}'},
    ),
    "vhost_limit": Kind(
        "vhost_limits",
        ("vhost=kept", "name=max-queues", "value=8"),
        ("vhost=kept", "name=max-queues"),
        {"vhost": "kept", "value": '{"max-queues": 8}'},
    ),
}

# What `list` prints of the objects that the fixture `channel` makes, beside the kinds above.
LISTED = {
    "connections": {"user": "guest", "channels": 1, "vhost": "/"},
    "channels": {"user": "guest", "number": 1, "consumer_count": 1},
    "consumers": {"consumer_tag": "reader", "ack_required": True},
    "nodes": {"type": "disc", "running": True},
}
OTHERS = {"show overview", "close connection", "purge queue", "export", "import", "publish", "get"}


@pytest.fixture(scope="module")
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0}}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: recado.Broker) -> Admin:
    """The tool, with a queue, a vhost and a user named `kept`, which no test deletes."""
    admin = Admin(broker)
    admin.run("declare", "queue", "name=kept")
    admin.run("declare", "vhost", "name=kept")
    admin.run("declare", "user", "name=kept", "password=p", "tags=")
    return admin


@pytest.fixture
def queue(admin: Admin) -> Iterator[str]:
    """An empty queue."""
    admin.run("declare", "queue", "name=letters")
    yield "letters"
    admin.run("delete", "queue", "name=letters")


@contextmanager
def consume(broker: recado.Broker) -> Iterator[BlockingChannel]:
    """A connection whose channel consumes from the queue `kept`."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.basic_consume("kept", lambda *_: None, consumer_tag="reader")
        yield channel


def test_no_subcommand_is_without_a_test(admin: Admin) -> None:
    tested = {
        *(f"list {plural}" for plural in LISTED),
        *(f"list {kind.plural}" for kind in KINDS.values()),
        *(f"{verb} {name}" for name in KINDS for verb in ("declare", "delete")),
        *OTHERS,
    }
    assert {*subcommands(admin.run("help", "subcommands"))} == tested


def subcommands(usage: str) -> Iterator[str]:
    """Yield the words before the arguments on each indented line after `where subcommand is one of`."""
    _, _, lines = usage.partition("where subcommand is one of")
    for line in lines.splitlines():
        words = line.split()
        if line.startswith("  ") and words and words[0] not in ("*", "standard"):
            yield " ".join(word for word in words[:2] if word.replace("_", "").isalpha())


@pytest.mark.parametrize("name", KINDS)
def test_declare_list_delete(admin: Admin, name: str) -> None:
    kind = KINDS[name]
    assert not admin.has(kind.plural, kind.row)
    for _ in range(2):  # the second one changes nothing
        assert admin.run("declare", name, *kind.declare) == f"{name} declared\n"
    assert admin.has(kind.plural, kind.row), admin.read("list", kind.plural)
    assert admin.run("delete", name, *kind.delete) == f"{name} deleted\n"
    assert not admin.has(kind.plural, kind.row)


@pytest.mark.parametrize("plural", LISTED)
def test_list(broker: recado.Broker, admin: Admin, plural: str) -> None:
    with consume(broker):
        assert admin.has(plural, LISTED[plural]), admin.read("list", plural)


@pytest.mark.parametrize(
    ("form", "depth"),
    [("table", ()), ("tsv", ()), *((form, ("--depth=3",)) for form in ("long", "kvp", "bash"))],
)
def test_forms_of_lists(
    broker: recado.Broker, admin: Admin, form: str, depth: tuple[str, ...]
) -> None:
    """Beside the default columns, all fields down to a depth; tables cannot have them, as they have nulls."""
    with consume(broker):
        assert "kept" in admin.run(f"--format={form}", *depth, "list", "queues")


def test_columns_and_order(admin: Admin) -> None:
    listed = admin.run(
        "--format=tsv", "--sort=name", "--sort-reverse", "list", "exchanges", "name", "type"
    )
    rows = [tuple(line.split("\t")) for line in listed.splitlines()]
    assert rows[0] == ("name", "type")
    assert rows[1:] == sorted(rows[1:], reverse=True)
    assert ("amq.topic", "topic") in rows
    assert admin.read("--vhost=kept", "list", "queues") == []


def test_show_overview(admin: Admin) -> None:
    (overview,) = admin.read("show", "overview")
    table = admin.run("show", "overview")
    assert overview["object_totals"]["queues"] == 1
    assert overview["cluster_name"] in table
    assert overview["rabbitmq_version"] in table


def test_publish_and_get(admin: Admin, queue: str, tmp_path: Path) -> None:
    published = admin.run(
        "publish", f"routing_key={queue}", "payload=olá", 'properties={"delivery_mode": 2}'
    )
    assert published == "Message published\n"
    assert admin.run("publish", f"routing_key={queue}", feed="from standard input")
    unrouted = admin.run("publish", "exchange=amq.fanout", "routing_key=", "payload=x")
    assert unrouted == "Message published but NOT routed\n"

    both = admin.read("get", f"queue={queue}", "count=5")
    assert [message["payload"] for message in both] == ["olá", "from standard input"]
    assert both[0]["properties"] == {"delivery_mode": 2}
    assert "from standard input" in admin.run("get", f"queue={queue}", "count=5")

    payload = tmp_path / "payload"
    admin.run("get", f"queue={queue}", "ackmode=ack_requeue_false", f"payload_file={payload}")
    assert payload.read_text() == "olá"
    assert len(admin.read("get", f"queue={queue}", "count=5")) == 1


def test_purge_queue(admin: Admin, queue: str) -> None:
    admin.run("publish", f"routing_key={queue}", "payload=x")
    assert admin.run("purge", "queue", f"name={queue}") == "queue purged\n"
    assert admin.read("get", f"queue={queue}") == []


def test_close_connection(broker: recado.Broker, admin: Admin) -> None:
    with consume(broker) as channel:
        (connection,) = admin.read("list", "connections")
        closed = admin.run("close", "connection", f"name={connection['name']}")
        assert closed == "connection closed\n"
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            channel.connection.process_data_events(time_limit=scale(PATIENCE))
        assert admin.read("list", "connections") == []


@pytest.mark.parametrize("vhost", [(), ("--vhost=kept",)])
def test_export_and_import(
    admin: Admin, tmp_path: Path, vhost: tuple[str, ...], name: Callable[[str], str]
) -> None:
    queue, file = name("exported"), tmp_path / "definitions.json"
    admin.run(*vhost, "declare", "queue", f"name={queue}")
    assert "Exported definitions" in admin.run(*vhost, "export", str(file))
    assert queue in {entry["name"] for entry in json.loads(file.read_text())["queues"]}
    admin.run(*vhost, "delete", "queue", f"name={queue}")
    assert not admin.has("queues", {"name": queue})
    assert "Uploaded definitions" in admin.run(*vhost, "import", str(file))
    assert admin.has("queues", {"name": queue})
    admin.run(*vhost, "delete", "queue", f"name={queue}")
