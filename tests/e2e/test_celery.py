"""Celery: a real worker in a process of its own, driven by a client that we did not write either.

Results travel by the `rpc://` backend, that is by the broker itself. Celery refuses chords there, as
it does not share results between clients; so a second worker keeps its results in files. There the
chord waits by a task that is sent again and again with a countdown, which is all the broker's work.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.events import EventReceiver
from celery.exceptions import TaskRevokedError

from workshop.peers import Server
from workshop.time_limit import scale

from . import celery_app
from .traffic import PATIENCE

ROOT = Path(__file__).parents[2]
START_SECONDS = 60


@contextmanager
def worker(broker: str, backend: str, folder: Path, *options: str) -> Iterator[Celery]:
    """A worker process, and the application that talks to it."""
    prefix = f"celery-{secrets.token_hex(4)}"
    settings = {"BROKER": broker, "BACKEND": backend, "PREFIX": prefix}
    environment = {f"RECADO_CELERY_{key}": value for key, value in settings.items()}
    command = [sys.executable, "-m", "celery", "--app", "tests.e2e.celery_app", "worker"]
    command += ["--loglevel", "INFO", "--hostname", f"{prefix}@localhost", *options]
    log = folder / f"{prefix}.log"
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    app = celery_app.make(broker, backend, prefix)
    try:
        deadline = time.monotonic() + scale(START_SECONDS)
        while not app.control.ping(timeout=0.5, limit=1):
            assert started.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
        yield app
        app.control.shutdown()
        assert started.wait(scale(START_SECONDS)) == 0, log.read_text()
    finally:
        if started.poll() is None:
            started.kill()
            started.wait()
        app.close()


@pytest.fixture(scope="module")
def app(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Celery]:
    """Celery as it comes: prefork processes, results by the broker."""
    folder = tmp_path_factory.mktemp("celery")
    with worker(server.url, "rpc://", folder, "--concurrency", "2") as app:
        yield app


@pytest.fixture(scope="module")
def chord_app(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Celery]:
    """A worker with threads, results in files."""
    folder = tmp_path_factory.mktemp("celery")
    results = folder / "results"
    results.mkdir()
    with worker(server.url, f"file://{results}", folder, "--pool", "threads") as app:
        yield app


def test_tasks_return_results(app: Celery) -> None:
    results = [app.tasks["add"].delay(number, 1) for number in range(20)]
    assert [result.get(timeout=scale(PATIENCE)) for result in results] == list(range(1, 21))


def test_a_large_argument(app: Celery) -> None:
    text = "recado " * 200_000
    assert app.tasks["length"].delay(text).get(timeout=scale(PATIENCE)) == len(text)


def test_an_exception_travels_back(app: Celery) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        app.tasks["fail"].delay("on purpose").get(timeout=scale(PATIENCE))


def test_a_task_retries_until_it_succeeds(app: Celery) -> None:
    result = app.tasks["third_time_lucky"].delay()
    assert result.get(timeout=scale(PATIENCE)) == 2


def test_a_task_with_a_countdown_waits_in_the_worker(app: Celery) -> None:
    started = time.monotonic()
    results = [app.tasks["add"].apply_async((n, n), countdown=0.5) for n in range(10)]
    assert [result.get(timeout=scale(PATIENCE)) for result in results] == [2 * n for n in range(10)]
    assert time.monotonic() - started >= 0.5


def test_chains_and_groups(app: Celery) -> None:
    add = app.tasks["add"]
    assert chain(add.s(1, 2), add.s(3), add.s(4)).apply_async().get(timeout=scale(PATIENCE)) == 10
    together = group(add.s(number, number) for number in range(10)).apply_async()
    assert together.get(timeout=scale(PATIENCE)) == [2 * number for number in range(10)]


def test_a_chord_collects_its_group(chord_app: Celery) -> None:
    add, total = chord_app.tasks["add"], chord_app.tasks["total"]
    result = chord([add.s(number, number) for number in range(10)], total.s()).apply_async()
    assert result.get(timeout=scale(PATIENCE)) == 90


class Witness(EventReceiver):  # type: ignore[misc]  # celery has no types
    """A receiver that tells when it listens."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.listening = threading.Event()
        super().__init__(*arguments, **options)

    def on_consume_ready(self, *arguments: Any, **options: Any) -> None:
        """Called by kombu once the consumer is registered."""
        super().on_consume_ready(*arguments, **options)
        self.listening.set()


def test_events_tell_the_life_of_a_task(app: Celery) -> None:
    told: list[tuple[str, str]] = []
    with app.connection_for_read() as connection:
        witness = Witness(connection, app=app, routing_key="task.#")

        def tell(event: dict[str, Any]) -> None:
            told.append((event["type"], event["uuid"]))
            witness.should_stop = event["type"] == "task-succeeded"

        witness.handlers = {"*": tell}
        listening = threading.Thread(
            target=lambda: witness.capture(limit=None, timeout=scale(PATIENCE), wakeup=False)
        )
        listening.start()
        assert witness.listening.wait(scale(PATIENCE))
        result = app.tasks["add"].delay(1, 1)
        result.get(timeout=scale(PATIENCE))
        listening.join(scale(PATIENCE))
        assert not listening.is_alive()
    assert told == [
        (kind, result.id) for kind in ("task-received", "task-started", "task-succeeded")
    ]


def until(question: Callable[[], object]) -> None:
    """Ask the worker until the answer is yes."""
    deadline = time.monotonic() + scale(PATIENCE)
    while not question():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain"


def ask(app: Celery, command: str, *arguments: Any) -> Any:
    """One `inspect` command, answered by the one worker there is."""
    inspect = app.control.inspect(timeout=scale(PATIENCE), limit=1)
    (answer,) = getattr(inspect, command)(*arguments).values()
    return answer


def test_inspecting_the_worker(app: Celery) -> None:
    assert ask(app, "ping") == {"ok": "pong"}
    assert {"add", "fail", "wait"} <= set(ask(app, "registered"))
    (queue,) = ask(app, "active_queues")
    assert queue["name"] == app.conf.task_default_queue
    assert ask(app, "stats")["pool"]["max-concurrency"] == 2


def test_a_waiting_task_can_be_revoked(app: Celery) -> None:
    result = app.tasks["add"].apply_async((1, 1), countdown=1)
    (answer,) = app.control.revoke(result.id, reply=True, timeout=scale(PATIENCE), limit=1)
    assert result.id in next(iter(answer.values()))["ok"]
    assert result.id in ask(app, "revoked")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=scale(PATIENCE))


def test_a_running_task_can_be_terminated(app: Celery) -> None:
    result = app.tasks["wait"].delay()
    until(lambda: result.id in [task["id"] for task in ask(app, "active")])
    app.control.revoke(result.id, terminate=True, signal="SIGKILL")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=scale(PATIENCE))


def test_a_worker_can_be_told_to_consume_from_another_queue(app: Celery) -> None:
    another = f"{app.conf.task_default_queue}-another"
    app.control.add_consumer(another, reply=True, timeout=scale(PATIENCE), limit=1)
    result = app.tasks["add"].apply_async((2, 2), queue=another)
    assert result.get(timeout=scale(PATIENCE)) == 4
    app.control.cancel_consumer(another, reply=True, timeout=scale(PATIENCE), limit=1)
    left = [app.conf.task_default_queue]
    until(lambda: [queue["name"] for queue in ask(app, "active_queues")] == left)
