"""`recado events`: a line for each change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from recado.cli.management.events import CHANGES, Event, parse_events
from recado.console.events.types import SUBJECTS
from workshop.time_limit import scale

from .conftest import Run

TIME_LIMIT_S = 60.0


@contextmanager
def events(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run `recado events` in a process; it is following when the block begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "recado", "events", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "following" in process.stderr.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> str:
    printed, _ = process.communicate(timeout=scale(TIME_LIMIT_S))
    assert process.returncode == 0
    return printed


def test_chosen_types_as_json(recado_on: Run) -> None:
    with events("queue", "-n", "2", "--json") as process:
        recado_on("exchanges", "declare", "x")
        recado_on("queues", "declare", "jobs")
        recado_on("queues", "delete", "jobs", "--yes")
        seen = [json.loads(line) for line in finish(process).splitlines()]
    assert [(each["event"], each["name"]) for each in seen] == [
        ("queue.created", "jobs"),
        ("queue.deleted", "jobs"),
    ]


def test_lines_of_one_vhost(recado_on: Run) -> None:
    recado_on("vhosts", "declare", "v")
    with events("-V", "v", "-n", "1") as process:
        recado_on("queues", "declare", "elsewhere")
        recado_on("queues", "declare", "a\tb\x1b", "-V", "v")
        time, name, *fields = finish(process).removesuffix("\n").split("\t")
    assert time[10] == "T"
    assert name == "queue.created"
    assert fields[:3] == ["vhost=v", "name=a\\tb\\x1b", "type=classic"]


def test_wrong_types_and_vhosts(recado_on: Run) -> None:
    done = recado_on("events", "quue")
    assert (done.status, "there are no events 'quue'" in done.err) == (1, True)
    assert recado_on("events", "-V", "none").status == 3


def test_the_default_is_every_change() -> None:
    assert set(SUBJECTS) - set(CHANGES) == {"rates", "stream"}


def test_comments_and_ids_are_left_out() -> None:
    lines = (
        b": heartbeat\nid: a-1\n\nid: a-1\nevent: alarm.set\nretry: 1\ndata: {}\n\ndata: {".split(
            b"\n"
        )
    )
    assert list(parse_events(lines)) == [Event("alarm.set", {})]
