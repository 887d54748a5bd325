"""`recado tap`: copies of the messages that enter a queue."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workshop.time_limit import scale

from .conftest import Run

TIME_LIMIT_S = 60.0


@contextmanager
def tap(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `recado tap` in a process; it is tapping when the block begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recado", "tap", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "tapping" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    printed, _ = process.communicate(timeout=scale(TIME_LIMIT_S))
    assert process.returncode == 0
    return printed


def test_selected_messages_stay_in_the_queue(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs")
    with tap("jobs", "--selector", "headers.n > 1", "-n", "2", "--json") as process:
        for number in range(4):
            recado_on("publish", "", "jobs", f"job {number}", "-H", f"n={number}")
        seen = [json.loads(line) for line in finish(process).splitlines()]
    assert [each["payload"] for each in seen] == ["job 2", "job 3"]
    assert seen[0]["properties"]["headers"] == {"n": 2}
    assert recado_on("queues", "show", "jobs", "--json").json["messages"] == 4


def test_lines(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs")
    with tap("jobs", "-n", "1") as process:
        recado_on("publish", "", "jobs", "a\x1b[31m\tb", "--transient")
        assert finish(process) == "-\tjobs\tdelivery_mode=1\ta\\x1b[31m\\tb\n"


def test_a_stream(recado_on: Run) -> None:
    recado_on("streams", "declare", "log")
    recado_on("publish", "", "log", "before")
    with tap("log", "-n", "1", "--json") as process:
        recado_on("publish", "", "log", "after")
        assert json.loads(finish(process))["payload"] == "after"


@pytest.mark.parametrize(
    ("words", "status", "reason"),
    [
        (("none",), 3, "not found"),
        (("jobs", "--selector", "n >"), 2, "--selector"),
        (("jobs", "--amqp-url", "amqp://127.0.0.1:1"), 5, "tap of queue 'jobs'"),
    ],
)
def test_errors(
    recado_on: Run,
    words: tuple[str, ...],
    status: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recado.cli.management.tap.RECONNECT_TIMEOUT_S", 0.5)
    recado_on("queues", "declare", "jobs")
    done = recado_on("tap", *words)
    assert (done.status, reason in done.err) == (status, True), done
