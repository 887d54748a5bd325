"""`recado migrate` as a process that is killed while it moves messages, and run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from bench.book import NotMeasuredError
from bench.migration.scene import http_port
from workshop.peers import Server
from workshop.time_limit import scale

WINDOW_COUNT = 200
TIME_LIMIT_S = 1_800.0
LINES_BEFORE_KILL_MAX_COUNT = 3
START_MAX_S = 1.0  # a run without a finished queue is killed before this


def migrate_with_kills(
    source: Server, target: Server, kills: int, random: Random, folder: Path
) -> float:
    """Migrate; return the seconds of all runs. The first `kills` runs are killed. Raises NotMeasuredError."""
    started = time.monotonic()
    for _ in range(kills):
        process = start(source, target, folder)
        wait_for_moment(process, random)
        process.kill()
        _, printed = process.communicate()
        if process.returncode >= 0:
            status = process.returncode
            raise NotMeasuredError(f"recado migrate ended with {status}, not killed: {printed}")
    process = start(source, target, folder)
    _, printed = process.communicate(timeout=scale(TIME_LIMIT_S))
    if process.returncode:
        raise NotMeasuredError(f"recado migrate ended with {process.returncode}: {printed[-2000:]}")
    return time.monotonic() - started


def wait_for_moment(process: subprocess.Popen[str], random: Random) -> None:
    """Wait for some finished queues, and for a part of the time that the last one took.

    So each moment is as likely: of the connection, the definitions, and any part of a queue.
    """
    assert process.stderr is not None
    longest_s = START_MAX_S
    for _ in range(random.randint(0, LINES_BEFORE_KILL_MAX_COUNT)):
        begun = time.monotonic()
        if not process.stderr.readline():  # it has ended
            return
        longest_s = time.monotonic() - begun
    with suppress(subprocess.TimeoutExpired):
        process.wait(random.uniform(0, longest_s))


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
