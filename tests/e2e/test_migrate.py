"""`recado migrate` from RabbitMQ to recado and back, killed in between."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pika
import pytest

from bench.migration.journey import WINDOW_COUNT, migrate_with_kills, start
from bench.migration.scene import Scene, amqp_url, http_port
from tests.console.http import Api
from workshop import peers
from workshop.peers import Server
from workshop.time_limit import scale

KILLS_COUNT = 2
DEPTH_COUNT = 400
TIME_LIMIT_S = 100.0


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Server]:
    with peers.rabbitmq(management=True, plugins=["rabbitmq_stream"]) as server:
        yield server


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("migrate") / "data"
    with peers.recado(data=data, arguments=("--management-port", "0")) as server:
        yield server


@pytest.mark.searching
def test_there_and_back_with_kills(rabbit: Server, here: Server, tmp_path: Path) -> None:
    scene = Scene(DEPTH_COUNT)
    before = asyncio.run(scene.populate(rabbit))
    random = Random(20)
    migrate_with_kills(rabbit, here, KILLS_COUNT, random, tmp_path)
    assert scene.find_differences(here, before) == []
    migrate_with_kills(here, rabbit, KILLS_COUNT, random, tmp_path)
    assert scene.find_differences(rabbit, before) == []
    verdict = asyncio.run(scene.check(rabbit))
    assert verdict.received == scene.total
    assert (verdict.lost, verdict.out_of_order) == (0, 0)
    assert verdict.twice <= 2 * KILLS_COUNT * WINDOW_COUNT
    assert verdict.changed == []


def test_a_stream_is_copied_once(rabbit: Server, here: Server, tmp_path: Path) -> None:
    """The position is stored, so a second migration copies only new messages."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url(here, "/")))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    for round_number in (1, 2):
        for number in range(50):
            headers = pika.BasicProperties(headers={"n": number})
            channel.basic_publish("", "log", b"line", headers)
        process = start(here, rabbit, tmp_path, "--queue", "^log$")
        _, printed = process.communicate(timeout=scale(TIME_LIMIT_S))
        assert process.returncode == 0, printed
        assert "stream 'log' in vhost '/': copied 50 messages" in printed, round_number
    connection.close()

    connection = pika.BlockingConnection(pika.URLParameters(amqp_url(rabbit, "/")))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    numbers = []
    for method, properties, _ in channel.consume("log", arguments={"x-stream-offset": "first"}):
        channel.basic_ack(method.delivery_tag)
        numbers.append(properties.headers["n"])
        assert set(properties.headers) == {"n", "x-stream-offset"}
        if len(numbers) == 100:
            break
    connection.close()
    assert numbers == [*range(50), *range(50)]


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recado", "migrate", *words],
        capture_output=True,
        text=True,
        timeout=scale(TIME_LIMIT_S),
        env={**os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)},
        check=False,
    )


def servers(source: Server, target: Server) -> list[str]:
    return [
        word
        for flag, server in (("--from", source), ("--to", target))
        for word in (flag, f"http://guest:guest@{server.host}:{http_port(server)}")
    ]


def test_a_dry_run_changes_nothing(rabbit: Server, here: Server, tmp_path: Path) -> None:
    api = Api(http_port(here))
    api.put("/api/vhosts/dry", {})
    api.put("/api/permissions/dry/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    api.put("/api/queues/dry/jobs", {"durable": True})
    body = {"routing_key": "jobs", "payload": "x", "payload_encoding": "string", "properties": {}}
    api.post("/api/exchanges/dry/amq.default/publish", body)
    done = run(*servers(here, rabbit), "-V", "dry", "--dry-run", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    assert (planned["dry_run"], planned["messages"], planned["objects"]["queues"]) == (True, 1, 1)
    assert "dry" not in [vhost["name"] for vhost in Api(http_port(rabbit)).get("/api/vhosts")]
    assert api.get("/api/queues/dry/jobs")["messages"] == 1


def test_an_exchange_that_the_target_does_not_know(
    rabbit: Server, here: Server, tmp_path: Path
) -> None:
    api = Api(http_port(here))
    api.put("/api/vhosts/odd", {})
    api.put("/api/exchanges/odd/patterns", {"type": "regex", "durable": True})
    done = run(*servers(here, rabbit), "-V", "odd", folder=tmp_path)
    assert done.returncode == 1
    assert "exchange 'patterns' in vhost 'odd' has type regex" in done.stderr
    assert "odd" not in [vhost["name"] for vhost in Api(http_port(rabbit)).get("/api/vhosts")]


def test_warnings_and_wrong_words(rabbit: Server, here: Server, tmp_path: Path) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url(here, "/")))
    channel = connection.channel()
    channel.queue_declare("mine", exclusive=True)
    done = run(*servers(here, rabbit), "--queue", "^mine$", "--dry-run", folder=tmp_path)
    assert "queue 'mine' in vhost '/' is exclusive" in done.stderr
    connection.close()
    assert run(*servers(here, rabbit), "-V", "none", folder=tmp_path).returncode == 2
    assert run(*servers(here, rabbit), "--window", "0", folder=tmp_path).returncode == 2
    word = run("--from", "staging", "--to", "production", folder=tmp_path)
    assert (word.returncode, "'staging' is no context" in word.stderr) == (2, True)


def test_a_server_to_itself(rabbit: Server, here: Server, tmp_path: Path) -> None:
    """It would never end, also if the URLs differ."""
    for server in (rabbit, here):
        urls = [
            f"http://guest:guest@{host}:{http_port(server)}" for host in ("127.0.0.1", "localhost")
        ]
        done = run("--from", urls[0], "--to", urls[1], "--dry-run", folder=tmp_path)
        assert (done.returncode, "are the same server" in done.stderr) == (2, True)
