"""`recado migrate` as a process that is killed while it moves messages, and run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from bench.book import NotMeasuredError
from bench.migration.scene import http_port
from workshop.peers import Server
from workshop.time_limit import scale

WINDOW_COUNT = 200
TIME_LIMIT_S = 1_800.0
LINES_BEFORE_KILL_MAX_COUNT = 3
MOMENT_MAX_S = 0.2


def migrate_with_kills(
    source: Server, target: Server, kills: int, random: Random, folder: Path
) -> float:
    """Migrate; return the seconds of all runs. The first `kills` runs are killed while they move a queue."""
    started = time.monotonic()
    for _ in range(kills):
        process = start(source, target, folder)
        assert process.stderr is not None
        # One line per finished queue; the next one is being moved when the process is killed.
        for _ in range(random.randint(1, LINES_BEFORE_KILL_MAX_COUNT)):
            if not process.stderr.readline():
                break
        moment = time.monotonic() + random.uniform(0, MOMENT_MAX_S)
        while time.monotonic() < moment and process.poll() is None:
            os.sched_yield()
        process.kill()
        process.communicate()
    process = start(source, target, folder)
    _, printed = process.communicate(timeout=scale(TIME_LIMIT_S))
    if process.returncode:
        raise NotMeasuredError(f"recado migrate ended with {process.returncode}: {printed[-2000:]}")
    return time.monotonic() - started


def start(source: Server, target: Server, folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "recado", "migrate", "--window", str(WINDOW_COUNT)]
    for flag, server in (("--from", source), ("--to", target)):
        command += [flag, f"http://guest:guest@{server.host}:{http_port(server)}"]
        command += [f"{flag}-amqp", f"amqp://guest:guest@{server.host}:{server.port}"]
    command += ["--state", str(folder / "streams.json"), *flags]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
