"""The commands that administer a server: the same tables and JSON on recado and on RabbitMQ 3.10.

The expected tables are in the folder `golden`, one for both servers. After a change on purpose,
`GOLDEN_TABLES=write` rewrites them: read the difference.
"""

from __future__ import annotations

import json
import os
import pty
import re
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


class Shell:
    """Runs commands against one server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self._environment = {
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
            env=self._environment,
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
            env=self._environment,
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
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN_TABLES") == "write":
        file.write_text(shown)
    assert shown == file.read_text()


def test_json_has_everything_that_the_table_shows(shell: Shell) -> None:
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
    product = "recado, with" if shell.server.name == "recado" else "RabbitMQ 3.10"
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


def test_top(shell: Shell) -> None:
    reading = shell.read("top", "-V", VHOST, "--sort", "messages")
    assert reading["queues"][0]["name"] == "jobs"
