"""The commands that administer a server: the same tables and JSON on recado and on RabbitMQ 3.10.

The expected outputs are in the folder `golden`, one for both servers. After a change on purpose,
`GOLDEN_TABLES=write` rewrites them: read the difference.
"""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest

from bench.migration.scene import amqp_url, http_port
from recado.cli.management import (
    bindings,
    channels,
    connections,
    consumers,
    exchanges,
    permissions,
    policies,
    queues,
    streams,
    users,
    vhosts,
)
from tests.tmux import Tmux, start_tmux
from workshop import peers
from workshop.peers import Server
from workshop.time_limit import scale

GOLDEN = Path(__file__).parent / "golden"
VHOST = "golden/eu"
TIME_LIMIT_S = 60.0
MESSAGES_COUNT = 3

SETUP = (
    ("vhosts", "declare", VHOST, "--description", "tests", "--tags", "a,b"),
    ("permissions", "declare", "guest", "-V", VHOST, "--configure", ".*", "--write", ".*", "--read", ".*"),
    ("users", "declare", "ana", "--tags", "monitoring", "--password-hash", ""),
    ("permissions", "declare", "ana", "-V", VHOST, "--configure", "^ana-", "--read", ".*"),
    ("exchanges", "declare", "orders", "--type", "topic", "-V", VHOST, "-a", "alternate-exchange=rest"),
    ("exchanges", "declare", "rest", "--type", "fanout", "--internal", "-V", VHOST),
    ("queues", "declare", "jobs", "-V", VHOST, "-a", "x-max-length=5"),
    ("queues", "declare", "payments", "--type", "quorum", "-V", VHOST),
    ("queues", "declare", "short", "--transient", "--auto-delete", "-V", VHOST),
    ("streams", "declare", "log", "-V", VHOST, "--max-age", "7D"),
    ("bindings", "declare", "orders", "jobs", "order.*", "-V", VHOST),
    ("bindings", "declare", "orders", "rest", "#", "--to-exchange", "-V", VHOST, "-a", "x=1"),
    ("policies", "declare", "brief", "^short", "max-length=10", "message-ttl=60000", "-V", VHOST),
    ("policies", "declare", "cap", "^jobs", "max-length=7", "--operator", "-V", VHOST, "--apply-to", "queues"),
)  # fmt: skip
TABLES = {
    "queues": ("queues", "list", "-V", VHOST, "--sort", "name"),
    "streams": ("streams", "list", "-V", VHOST),
    "exchanges": ("exchanges", "list", "-V", VHOST, "--sort", "name"),
    "bindings": ("bindings", "list", "-V", VHOST, "--sort", "destination"),
    "users": ("users", "list", "--name", "ana"),
    "vhosts": ("vhosts", "list", "--name", VHOST),
    "permissions": ("permissions", "list", "--sort", "user"),
    "policies": ("policies", "list", "-V", VHOST),
    "operator-policies": ("policies", "list", "-V", VHOST, "--operator"),
    "bindings-plain": ("bindings", "list", "-V", VHOST, "--sort", "destination"),
}

# The fields that do not depend on the server, the moment, or the machine.
JSON_FIELDS = {
    "queues": (
        *("name", "vhost", "type", "durable", "auto_delete", "exclusive", "arguments"),
        *("messages", "messages_ready", "messages_unacknowledged", "consumers"),
    ),
    "exchanges": ("name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"),
    "bindings": ("source", "vhost", "destination", "destination_type", "routing_key", "arguments"),
    "users": ("name", "tags", "limits", "password_hash", "hashing_algorithm"),
    "vhosts": (
        *("name", "description", "tags", "tracing", "default_queue_type", "metadata"),
        *("messages", "messages_ready", "messages_unacknowledged"),
    ),
    "permissions": ("user", "vhost", "configure", "write", "read"),
    "policies": ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
    "operator-policies": ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
}
RATE_COLUMNS = ("in", "out")

COLUMNS_OF = {
    "queues": queues.COLUMNS,
    "streams": streams.COLUMNS,
    "exchanges": exchanges.COLUMNS,
    "bindings": bindings.COLUMNS,
    "connections": connections.COLUMNS,
    "channels": channels.COLUMNS,
    "consumers": consumers.COLUMNS,
    "users": users.COLUMNS,
    "vhosts": vhosts.COLUMNS,
    "permissions": permissions.COLUMNS,
    "policies": policies.COLUMNS,
}

START_LIMIT_S = 0.150


class Shell:
    """Runs commands against one server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.environment = {
            **os.environ,
            "RECADO_URL": f"http://guest:guest@{server.host}:{http_port(server)}",
            "XDG_CONFIG_HOME": str(folder),
            "NO_COLOR": "1",
            "COLUMNS": "110",
        }

    def run(self, *words: str, status: int = 0) -> str:
        """Run a command in a pipe and return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "recado", *words],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=scale(TIME_LIMIT_S),
            env=self.environment,
            check=False,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def show(self, *words: str) -> str:
        """Run a command in a terminal and return what it shows."""
        control, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "recado", *words],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=self.environment,
        )
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(control, 65_536):
                shown += data
        except OSError:  # the program has ended
            pass
        finally:
            os.close(control)
        assert process.wait(scale(TIME_LIMIT_S)) == 0, shown
        return shown.decode().replace("\r\n", "\n")

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for statistics, which RabbitMQ publishes once a second here."""
        end_at = time.monotonic() + scale(TIME_LIMIT_S)
        while not condition():
            assert time.monotonic() < end_at


@pytest.fixture(scope="module", params=["recado", "rabbitmq"])
def shell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    with ExitStack() as stack:
        server = stack.enter_context(
            peers.recado(arguments=("--management-port", "0"))
            if request.param == "recado"
            else peers.rabbitmq(management=True, settings={"collect_statistics_interval": "1000"})
        )
        shell = Shell(server, tmp_path_factory.mktemp("contexts"))
        for words in SETUP:
            shell.run(*words)
        connection = pika.BlockingConnection(pika.URLParameters(amqp_url(server, VHOST)))
        stack.callback(connection.close)
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(MESSAGES_COUNT):
            properties = pika.BasicProperties(delivery_mode=2, headers={"n": number})
            channel.basic_publish("orders", "order.new", b"body %d" % number, properties)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("jobs", lambda *_: None, consumer_tag="worker")
        expected = {"messages_ready": MESSAGES_COUNT - 1, "messages_unacknowledged": 1}

        def is_counted() -> bool:
            queue = shell.read("queues", "show", "jobs", "-V", VHOST)
            queues = shell.read("queues", "list", "-V", VHOST)
            vhost = shell.read("vhosts", "show", VHOST)
            return (
                queue.get("consumers") == 1
                and expected.items() <= queue.items()
                and expected.items() <= vhost.items()
                and all("messages_ready" in each for each in queues)
            )

        shell.wait_for(is_counted)
        yield shell


def without_rates(table: str) -> str:
    """Cut the columns of rates, which are the last ones and depend on the moment of the sample."""
    lines = [re.sub(r"(\s+[\d.,]+/s)+$|\s+in(\s+out)?$", "", line) for line in table.splitlines()]
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize("name", TABLES)
def test_tables(shell: Shell, name: str) -> None:
    words = TABLES[name]
    shown = shell.run(*words) if name.endswith("-plain") else without_rates(shell.show(*words))
    compare_with_golden(f"{name}.txt", shown)


def compare_with_golden(name: str, shown: str) -> None:
    file = GOLDEN / name
    if os.environ.get("GOLDEN_TABLES") == "write":
        file.write_text(shown)
    assert shown == file.read_text()


@pytest.mark.parametrize("name", JSON_FIELDS)
def test_json(shell: Shell, name: str) -> None:
    items = shell.read(*TABLES[name])
    chosen = [
        {field: each[field] for field in JSON_FIELDS[name] if field in each} for each in items
    ]
    compare_with_golden(f"{name}.json", f"{json.dumps(chosen, indent=2, sort_keys=True)}\n")


@pytest.mark.parametrize("kind", COLUMNS_OF)
def test_json_has_every_cell_of_the_table(shell: Shell, kind: str) -> None:
    shell.wait_for(lambda: shell.read(kind, "list") != [])
    columns = [each for each in COLUMNS_OF[kind] if each.title not in RATE_COLUMNS]
    rows = [line.split("\t") for line in shell.run(kind, "list").splitlines()]
    items = shell.read(kind, "list")
    if kind == "streams":
        items = [each for each in items if each["type"] == "stream"]
    assert len(rows) == len(items) > 0
    for row, item in zip(rows, items, strict=True):
        for cell, column in zip(row, columns, strict=False):
            value = column.read(item)
            assert cell == ("" if value is None else value) or json.loads(cell) == value


def test_json_of_a_queue(shell: Shell) -> None:
    (queue,) = [
        each for each in shell.read("queues", "list", "-V", VHOST) if each["name"] == "jobs"
    ]
    shown = ("vhost", "type", "durable", "messages_ready", "messages_unacknowledged", "consumers")
    assert [queue[field] for field in shown] == [VHOST, "classic", True, 2, 1, 1]
    assert queue["arguments"] == {"x-max-length": 5}
    (consumer,) = shell.read("consumers", "list", "-V", VHOST)
    assert (consumer["consumer_tag"], consumer["queue"]["name"]) == ("worker", "jobs")


def test_connections_and_channels(shell: Shell) -> None:
    shell.wait_for(lambda: len(shell.read("channels", "list")) == 1)
    (connection,) = shell.read("connections", "list")
    (channel,) = shell.read("channels", "list")
    assert channel["name"] == f"{connection['name']} (1)"
    assert channel["prefetch_count"] == 1
    assert connection["name"] in shell.run("connections", "show", connection["name"])


def test_status(shell: Shell) -> None:
    shown = shell.show("status")
    assert f"{MESSAGES_COUNT - 1} ready, 1 unacked" in shown
    assert "no alarms" in shown
    product = "recado 0." if shell.server.name == "recado" else "RabbitMQ 3.10"
    assert product in shown


def test_changes(shell: Shell) -> None:
    """Declare, publish, get, purge and delete, and the statuses of errors."""
    shell.run("queues", "declare", "temporary", "-V", VHOST)
    shell.run("publish", "", "temporary", "one", "-V", VHOST, "-H", "n=1", "-p", "priority=3")
    (message,) = shell.read("get", "temporary", "-V", VHOST, "--requeue")
    assert (message["payload"], message["properties"]["priority"]) == ("one", 3)
    shell.wait_for(
        lambda: (
            "1 ready message" in shell.run("queues", "purge", "temporary", "-V", VHOST, "--dry-run")
        )
    )
    shell.run("queues", "purge", "temporary", "-V", VHOST)
    shell.run("queues", "delete", "temporary", "-V", VHOST)
    shell.run("queues", "show", "temporary", "-V", VHOST, status=3)
    shell.run("queues", "declare", "jobs", "-V", VHOST, "--type", "quorum", status=1)
    shell.run("bindings", "delete", "orders", "rest", "#", "--to-exchange", "-V", VHOST, status=3)


def test_definitions(shell: Shell, tmp_path: Path) -> None:
    """The export of either server is what it imports; only recado compares."""
    server = ("--url", shell.environment["RECADO_URL"])
    file = str(tmp_path / "definitions.json")
    shell.run("definitions", "export", file, "--vhost", VHOST, *server)
    exported = json.loads(Path(file).read_text())
    assert {"jobs", "payments"} <= {queue["name"] for queue in exported["queues"]}
    shell.run("definitions", "import", file, "--vhost", VHOST, *server)
    is_recado = shell.server.name == "recado"
    checked = shell.run(
        "definitions", "check", file, "--vhost", VHOST, *server, status=0 if is_recado else 1
    )
    assert ("0 created, 0 changed" in checked) is is_recado


def test_a_command_starts_quickly(shell: Shell) -> None:
    """The time of recado itself, without that of the server: the best of several, on a busy machine."""
    seconds = []
    for _ in range(5):
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        shell.run("status")
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)
    assert min(seconds) < START_LIMIT_S


@pytest.fixture
def tmux(shell: Shell) -> Iterator[Tmux]:
    with start_tmux(shell.environment) as terminal:
        yield terminal


def test_top_in_tmux(shell: Shell, tmux: Tmux) -> None:
    command = [sys.executable, "-m", "recado", "top", "-V", VHOST, "--interval", "0.5"]
    tmux.open(shlex.join(command), lines=20)
    lengths = f"{MESSAGES_COUNT - 1} ready  1 unacked\n"
    screen = tmux.wait_for("messages▾", "jobs", "1 consumer ", lengths, "q quit")
    address, totals, *_ = screen.splitlines()
    assert address.startswith("http://guest@127.0.0.1:")
    assert "1 connection  1 channel  1 consumer" in totals
    compare_with_golden("top.txt", queues_of_top(screen))
    tmux.press("n")
    compare_with_golden("top-by-name.txt", queues_of_top(tmux.wait_for("name▾", "q quit")))
    tmux.press("q")
    tmux.wait_for_end()


def queues_of_top(screen: str) -> str:
    """Return the table, without rates."""
    return without_rates(screen[screen.index("vhost") :]).rstrip("\n") + "\n"


def test_top(shell: Shell) -> None:
    reading = shell.read("top", "-V", VHOST, "--sort", "messages")
    assert reading["queues"][0]["name"] == "jobs"
