"""Celery with `acks_late`, and a broker that is killed while tasks are under way: none is lost.

The broker comes back at the same port with the same folder, and everybody goes on by himself: the worker
connects again, and the sender sends again what was not confirmed. Tasks may run twice then, as Celery's
users know; here it only counts that each ran.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
from celery import Celery

from workshop import peers
from workshop.peers import HOST, Server
from workshop.time_limit import scale

from . import celery_late_app
from .traffic import await_depth

ROOT = Path(__file__).parents[2]
PREFIX = "late"
TASKS = 300
KILLED_AT = (40, 160)
"""How many marks there are when the broker is killed."""
PATIENCE = 60.0
AGAIN = {"max_retries": 200, "interval_start": 0.0, "interval_step": 0.05, "interval_max": 0.2}


@contextmanager
def worker(url: str, marks: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    settings = {"BROKER": url, "PREFIX": PREFIX, "MARKS": str(marks)}
    environment = {f"RECADO_LATE_{key}": value for key, value in settings.items()}
    command = [sys.executable, "-m", "celery", "--app", "tests.e2e.celery_late_app", "worker"]
    command += ["--loglevel", "INFO", "--hostname", f"{PREFIX}@localhost", "--concurrency", "2"]
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(scale(PATIENCE))
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def send_all(app: Celery) -> None:
    for number in range(TASKS):
        app.tasks["mark"].apply_async((number,), retry=True, retry_policy=AGAIN)


def until(holds: Callable[[], bool], log: Path) -> None:
    """Look at the marks until it holds; they are made by other processes, which cannot tell us."""
    deadline = time.monotonic() + scale(PATIENCE)
    while not holds():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.01)  # between two looks


def test_no_task_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    marks, log = tmp_path / "marks", tmp_path / "worker.log"
    marks.touch()

    def marked() -> set[int]:
        return set(map(int, marks.read_text().split()))

    (port,) = peers.free_ports(1)

    @contextmanager
    def broker() -> Iterator[Server]:
        data = tmp_path / "data"
        with peers.recado(data=data, port=port, stop=signal.SIGKILL) as server:
            yield server

    app = celery_late_app.make(f"amqp://guest:guest@{HOST}:{port}//", PREFIX, marks)
    sender = threading.Thread(target=send_all, args=(app,))
    with broker() as server, worker(server.url, marks, log):
        sender.start()
        until(lambda: len(marked()) >= KILLED_AT[0], log)
        os.kill(server.pid, signal.SIGKILL)
        with broker() as second:
            until(lambda: len(marked()) >= KILLED_AT[1], log)
            os.kill(second.pid, signal.SIGKILL)
            with broker() as last:
                until(lambda: len(marked()) == TASKS, log)
                sender.join(scale(PATIENCE))
                assert not sender.is_alive()
                # The last acks arrive as well: nothing is left that would run again.
                connection = pika.BlockingConnection(pika.URLParameters(last.url))
                await_depth(connection.channel(), PREFIX, 0)
                connection.close()
                app.close()
    assert marked() == set(range(TASKS))
