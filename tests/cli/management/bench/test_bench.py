"""`recado bench`: on recado and RabbitMQ; its queues are always deleted."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pika
import pytest

import recado
from recado.cli.management import bench
from recado.cli.management.api import UnreachableError
from recado.cli.management.bench import measurement, workers
from recado.client import Connection
from workshop.peers import Server
from workshop.time_limit import scale

from ..conftest import Run

TIME_LIMIT_S = 60.0
LOADS: dict[str, list[str]] = {
    "classic": [],
    "classic persistent": [
        "--persistent",
        "--publishers",
        "2",
        "--consumers",
        "3",
        "--queues",
        "2",
    ],
    "quorum": ["--queue-type", "quorum", "--persistent", "--size", "1000"],
    "stream": ["--queue-type", "stream", "--consumers", "2"],
    "without confirms and acks": ["--confirm-window", "0", "--prefetch", "0"],
}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the queues that a bench declares."""
    names: list[str] = []
    declare = measurement.declare

    async def recording(control: Connection, queues: Sequence[str], load: measurement.Load) -> None:
        names.extend(queues)
        await declare(control, queues, load)

    monkeypatch.setattr(measurement, "declare", recording)
    return names


def exists(url: str, queue: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            return bool(error.reply_code != 404)
    return True


@pytest.mark.parametrize("load", LOADS)
def test_loads(load: str, server: Server, run: Run, declared: list[str]) -> None:
    done = run("bench", "--amqp-url", server.url, "--seconds", "1", "--json", *LOADS[load])
    assert done.status == 0, done.err
    found = done.json
    assert found["elapsed_s"] >= 1
    assert found["server"].startswith(f"{server.name} ")
    for name in ("published", "consumed"):
        flow = found[name]
        assert flow["messages"] > 0
        assert flow["messages_per_s"] == pytest.approx(
            flow["messages"] / found["elapsed_s"], rel=0.01
        )
        assert flow["bytes_per_s"] == pytest.approx(
            flow["messages_per_s"] * found["load"]["size_bytes"], rel=0.01
        )
        has_latency = name == "consumed" or found["load"]["confirm_window"]
        assert list(flow["latency_ms"]) == (["p50", "p95", "p99", "max"] if has_latency else [])
    assert found["nacked"] == 0
    assert len(declared) == found["load"]["queues"]
    assert all(name.startswith("recado-bench.") for name in declared)
    assert not any(exists(server.url, name) for name in declared)


def test_plain_lines(server: Server, run: Run) -> None:
    rows = run("bench", "--amqp-url", server.url, "--seconds", "0.2", "--rate", "50").rows
    assert [row[0] for row in rows] == ["published", "consumed"]
    assert {len(row) for row in rows} == {8}
    assert 1 <= int(rows[0][1]) <= 0.2 * 50 + 2


def test_a_table_and_a_progress_bar(server: Server) -> None:
    control, terminal = pty.openpty()
    command = [sys.executable, "-m", "recado", "bench", "--amqp-url", server.url, "--seconds", "1"]
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    seen = b""
    try:
        while True:
            seen += os.read(control, 65_536)
    except OSError:  # the program has ended
        pass
    os.close(control)
    assert process.wait(scale(TIME_LIMIT_S)) == 0
    text = seen.decode()
    assert "\r[###" in text
    assert "consumed\x1b[K" in text
    result = text.rpartition("\x1b[K")[2]
    assert re.search(rf" at amqp://127\.0\.0\.1:{server.port}/%2F, \d+\.\d s\r\n", result)
    assert "1 publisher, 1 consumer, 1 classic queue, 16 B, transient, 1,000 unconfirmed" in result
    heading = next(line for line in result.splitlines() if "p50" in line)
    assert heading.split() == ["messages", "msg/s", "MB/s", "p50", "p95", "p99", "max"]


def test_the_address_of_the_http_api(recado_on: Run) -> None:
    done = recado_on("bench", "--seconds", "0.1", "--json")
    assert done.status == 0
    assert recado_on("queues", "list").rows == []


@contextmanager
def bench_process(broker: recado.Broker, *flags: str) -> Iterator[subprocess.Popen[str]]:
    url = f"http://guest:guest@127.0.0.1:{broker.management_port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "recado", "bench", "--url", url, "--seconds", "600", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def await_consumer(recado_on: Run) -> None:
    end_at = time.monotonic() + scale(TIME_LIMIT_S)
    while not recado_on("consumers", "list").rows:
        assert time.monotonic() < end_at
        time.sleep(0.1)  # between two requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_results(
    number: signal.Signals, broker: recado.Broker, recado_on: Run
) -> None:
    with bench_process(broker, "--json") as process:
        await_consumer(recado_on)
        (queue,) = recado_on("queues", "list", "--json").json
        assert queue["arguments"]["x-expires"] == 660_000, "deleted after a SIGKILL, too"
        process.send_signal(number)
        printed, errors = process.communicate(timeout=scale(TIME_LIMIT_S))
    assert (process.returncode, errors) == (0, "")
    assert json.loads(printed)["elapsed_s"] < 600
    assert recado_on("queues", "list").rows == []


def test_a_queue_that_goes_away(broker: recado.Broker, recado_on: Run) -> None:
    with bench_process(broker) as process:
        await_consumer(recado_on)
        ((_, queue, *_),) = recado_on("queues", "list").rows
        assert recado_on("queues", "delete", queue).status == 0
        printed, errors = process.communicate(timeout=scale(TIME_LIMIT_S))
    assert (process.returncode, printed) == (1, "")
    assert errors.startswith("recado: bench: ")


def test_a_queue_without_consumers_has_a_bounded_length(
    recado_on: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "BACKLOG_MAX_COUNT", 1_500)
    done = recado_on("bench", "--consumers", "0", "--seconds", "600", "--json")
    assert done.json["published"]["messages"] == 1_500
    assert done.json["consumed"] == {
        "messages": 0, "messages_per_s": 0, "bytes_per_s": 0, "latency_ms": {},
    }  # fmt: skip


def test_slow_consumers_slow_publishers_down(
    recado_on: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "BACKLOG_MAX_COUNT", 10)
    found = recado_on("bench", "--seconds", "0.5", "--json").json
    assert found["published"]["messages"] <= found["consumed"]["messages"] + 10


def test_messages_that_the_broker_rejects(recado_on: Run) -> None:
    policy = ("max-length=10", "overflow=reject-publish")
    assert recado_on("policies", "declare", "short", "^recado-bench", *policy).status == 0
    done = recado_on("bench", "--consumers", "0", "--seconds", "0.5", "--json")
    assert done.json["published"]["messages"] == 10
    assert done.json["nacked"] > 0
    assert "nacked by the broker" in recado_on("bench", "--consumers", "0", "--seconds", "0.5").err


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--publishers", "0"], "--publishers: from 1 to 1,000, not 0"),
        (["--size", "7"], "--size: from 8 to 16,777,216, not 7"),
        (["--confirm-window", "-1"], "--confirm-window: from 0"),
        (["--seconds", "1e9"], "--seconds: from 0.1 to 3,600"),
        (["--rate", "0"], "--rate: more than 0"),
        (["--queue-type", "stream", "--prefetch", "0"], "streams need acknowledgements"),
    ],
)
def test_wrong_flags(run: Run, flags: list[str], text: str) -> None:
    done = run("bench", *flags)
    assert done.status == 2
    assert text in done.err


def test_no_broker(run: Run) -> None:
    assert run("bench", "--amqp-url", "amqp://127.0.0.1:1").status == 5


def test_a_wrong_password(server: Server, run: Run) -> None:
    url = server.url.replace("guest:guest", "guest:wrong")
    assert run("bench", "--amqp-url", url).status == 4


def test_a_broker_without_the_http_api(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise UnreachableError("nothing listens")

    found: list[str] = []

    def record(url: str, _: object) -> measurement.Measurement:
        found.append(url)
        raise ValueError("recorded")

    monkeypatch.setattr(bench, "find_amqp_url", refuse)
    monkeypatch.setattr(bench, "_run", record)
    assert run("bench", "-V", "a/b").status == 2
    assert found == ["amqp://guest:guest@127.0.0.1:5672/a%2Fb"]
    assert run("bench", "--url", "http://other.example").status == 5
