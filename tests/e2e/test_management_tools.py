"""Tools written by others on recado's management API: Celery Flower as a real process, and the requests of
rabbitmqadmin 2, Terraform, KEDA, an exporter, Spring and Hutch, as `management_tools` lists them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

import recado
from tests.console.http import Api
from workshop.peers import HOST, free_ports
from workshop.time_limit import scale

from .management_tools import KEDA_FIELDS, KEDA_QUEUE, KEDA_REGEX, TOOLS, Call, Fields
from .traffic import Inbox, await_that

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
TASKS = "tasks/eu"
"""A queue with five messages, of which one is unacknowledged, and a consumer."""


@pytest.fixture(scope="module")
def broker() -> Iterator[recado.Broker]:
    config = {"management": {"port": 0}}
    with recado.Broker(config=config) as running, ExitStack() as stack:
        connection = pika.BlockingConnection(pika.URLParameters(running.url))
        stack.callback(connection.close)
        channel = connection.channel()
        channel.queue_declare(TASKS, durable=True)
        for _ in range(6):
            channel.basic_publish("", TASKS, b"task")
        channel.basic_qos(prefetch_count=1)
        inbox = Inbox(channel, TASKS, auto_ack=False)
        inbox.wait(1)
        channel.basic_ack(inbox.deliveries[0].tag)
        inbox.wait(2)
        yield running


@pytest.fixture(scope="module")
def api(broker: recado.Broker) -> Api:
    assert broker.management_port is not None
    return Api(broker.management_port)


@pytest.fixture(scope="module")
def names(broker: recado.Broker, api: Api) -> dict[str, str]:
    """What stands for the placeholders of paths."""
    return {"node": api.get("/api/overview")["node"], "port": str(broker.port)}


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + scale(PATIENCE_S)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def missing_fields(answer: Any, fields: Fields) -> list[str]:
    """Return the fields that an answer, or an entry of it, lacks or has with another type."""
    entries = answer if isinstance(answer, list) else [answer]
    if fields and not entries:
        return ["(an entry)"]
    missing = []
    for entry in entries:
        for name, kind in fields.items():
            value = entry
            for key in name.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
            # An int for Python, but not in JSON.
            is_flag = isinstance(value, bool) and kind is not bool
            if is_flag or not isinstance(value, kind):
                missing.append(f"{name}: {value!r}")
    return missing


def test_missing_fields_are_noticed() -> None:
    fields: Fields = {"a.b": int}
    assert missing_fields([], fields) == ["(an entry)"]
    assert missing_fields({"a": {"b": 1}}, fields) == []
    assert missing_fields([{"a": {"b": 1}}, {"a": 2}], fields) == ["a.b: None"]
    assert missing_fields({"a": {"b": True}}, fields) == ["a.b: True"]


@pytest.mark.parametrize(("tool", "calls"), TOOLS.items(), ids=list(TOOLS))
def test_the_requests_of_a_tool(
    api: Api, names: dict[str, str], tool: str, calls: tuple[Call, ...]
) -> None:
    if tool == "rabbitmq_exporter":  # it reads statistics of every queue
        wait_until(lambda: "message_stats" in api.get("/api/overview"))
    for call in calls:
        path = re.sub(r"\{(\w+)\}", lambda found: names[found[1]], call.path)
        reply = api.request(call.method, path, call.body, dict(call.headers))
        assert reply.status == call.status, (call, reply)
        assert missing_fields(reply.body, call.fields) == [], call


def test_close_a_connection_as_rabbitmqadmin_2_does(broker: recado.Broker, api: Api) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "to be closed"}
    connection = pika.BlockingConnection(parameters)
    (name,) = [
        each["name"]
        for each in api.get("/api/connections")
        if each["client_properties"].get("connection_name") == "to be closed"
    ]
    path, headers = f"/api/connections/{quote(name)}", {"X-Reason": "closed by an operator"}
    assert api.request("DELETE", path, None, headers).status == 204
    with pytest.raises(ConnectionClosedByBroker, match="closed by an operator"):
        await_that(connection, lambda: False)
    assert api.request("DELETE", path, None, headers).status == 404


@pytest.mark.parametrize("vhost", ["", "/%2F"])
def test_keda_finds_lengths_and_rates(broker: recado.Broker, api: Api, vhost: str) -> None:
    """Its query of one queue, and that of all queues whose names match."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    queues = [f"keda {vhost}.{number}" for number in range(3)]
    for name in queues:
        channel.queue_declare(name)

    def work() -> None:
        for name in queues:
            channel.basic_publish("", name, b"x")
            channel.basic_get(name, auto_ack=True)
            channel.basic_publish("", name, b"x")

    def read_all(page_size: int = 100) -> dict[str, Any]:
        path = KEDA_REGEX.format(
            vhost=vhost, name=quote_plus(f"^keda {vhost}\\.[01]$"), size=page_size
        )
        answer: dict[str, Any] = api.get(path)
        return answer

    def has_rates() -> bool:
        work()
        return all(
            each.get("message_stats", {}).get(f"{name}_details", {}).get("rate", 0) > 0
            for each in read_all()["items"]
            for name in ("publish", "deliver_get")
        )

    wait_until(has_rates)
    answer = read_all()
    assert sorted(each["name"] for each in answer["items"]) == queues[:2]
    assert answer["page_count"] == 1
    assert missing_fields(answer["items"], KEDA_FIELDS) == []
    assert read_all(page_size=1)["page_count"] == 2  # with more than one page, it reports an error
    if vhost:
        # It encodes a space as in a query, which in a path is a plus: also with RabbitMQ such names need a regex.
        plain = "keda-plain"
        channel.queue_declare(plain)
        channel.basic_publish("", plain, b"x")
        channel.basic_get(plain, auto_ack=True)
        path = KEDA_QUEUE.format(vhost=vhost, name=quote_plus(plain))
        wait_until(lambda: "message_stats" in api.get(path))
        assert missing_fields(api.get(path), KEDA_FIELDS) == []
        spaced = KEDA_QUEUE.format(vhost=vhost, name=quote_plus(queues[0]))
        assert api.request("GET", spaced).status == 404
    connection.close()


@contextmanager
def flower(broker: recado.Broker, folder: Path) -> Iterator[str]:
    """Run Flower on a broker, and return its URL."""
    (port,) = free_ports(1)
    log = folder / "flower.log"
    api = f"http://guest:guest@{HOST}:{broker.management_port}/api/"
    command = [sys.executable, "-m", "celery", "--app", "tests.e2e.celery_app", "flower"]
    command += [f"--address={HOST}", f"--port={port}", f"--broker-api={api}"]
    settings = {"BROKER": broker.url, "BACKEND": "rpc://", "PREFIX": TASKS}
    environment = {f"RECADO_CELERY_{key}": value for key, value in settings.items()}
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://{HOST}:{port}"

    def is_ready() -> bool:
        assert started.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/healthcheck", timeout=10) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    try:
        wait_until(is_ready)
        yield url
    finally:
        started.terminate()
        started.wait(scale(PATIENCE_S))


def test_flower_shows_the_queues_of_the_broker(broker: recado.Broker, tmp_path: Path) -> None:
    """The page "Broker" of Flower: a row per queue with its messages and consumers."""
    with flower(broker, tmp_path) as url:
        with urllib.request.urlopen(f"{url}/broker", timeout=scale(PATIENCE_S)) as response:
            page = response.read().decode()
        rows = [
            [
                unescape(re.sub("<[^>]*>", "", cell)).strip()
                for cell in re.findall("<td.*?</td>", row, re.S)
            ]
            for row in re.findall("<tr.*?</tr>", page, re.S)
        ]
        (row,) = [row for row in rows if row and row[0] == TASKS]
        # queue, messages, unacknowledged, ready, consumers, idle since
        assert row[:5] == [TASKS, "5", "1", "4", "1"]
