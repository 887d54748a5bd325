"""`recado top`: in a real terminal, and once for programs."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import recado
from workshop.time_limit import scale

from .conftest import Run

TIME_LIMIT_S = 60.0


class Screen:
    """The output of a program in a terminal of 24 lines and 100 columns."""

    def __init__(self, control: int) -> None:
        self._control = control
        self._seen = b""

    def wait_for(self, *texts: bytes) -> bytes:
        """Read until all texts have appeared since the last call."""
        end_at = time.monotonic() + scale(TIME_LIMIT_S)
        while not all(each in self._seen for each in texts):
            ready, _, _ = select.select([self._control], [], [], end_at - time.monotonic())
            assert ready, (texts, self._seen)
            try:
                self._seen += os.read(self._control, 65_536)
            except OSError:  # the program has ended
                break
        assert all(each in self._seen for each in texts), (texts, self._seen)
        seen, self._seen = self._seen, b""
        return seen

    def press(self, key: bytes) -> None:
        os.write(self._control, key)


@contextmanager
def top(*flags: str, columns: int = 100) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "recado", "top", "--interval", "0.2", *flags]
    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        # COLUMNS, which a test runner may set, would override the size of the terminal.
        env={k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"},
    )
    os.close(terminal)
    try:
        yield Screen(control), process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(scale(TIME_LIMIT_S))
        os.close(control)


def test_keys(recado_on: Run) -> None:
    for name, messages in (("few", 1), ("many", 3)):
        recado_on("queues", "declare", name)
        for _ in range(messages):
            recado_on("publish", "", name, "x")
    with top() as (screen, process):
        seen = screen.wait_for(b"messages\xe2\x96\xbe", b"few", b"q quit")
        assert seen.index(b"many") < seen.index(b"few"), "the longest queue first"
        screen.press(b"n")
        seen = screen.wait_for(b"name\xe2\x96\xbe", b"many", b"q quit")
        by_name = seen[seen.index(b"name\xe2\x96\xbe") :]
        assert by_name.index(b"few") < by_name.index(b"many")
        screen.press(b" ")
        screen.wait_for(b"paused")
        screen.press(b"q")
        screen.wait_for(b"\x1b[?1049l")
        assert process.wait(scale(TIME_LIMIT_S)) == 0


def test_more_queues_than_lines(recado_on: Run) -> None:
    """A screen never scrolls: its first line would be lost."""
    for number in range(20):
        recado_on("queues", "declare", f"queue-{number}")
    with top() as (screen, _):
        seen = screen.wait_for(b" more", b"q quit", b"\x1b[J")
    lines = seen[seen.index(b"\x1b[H") : seen.index(b"\x1b[J")].splitlines()
    assert len(lines) == 24
    assert lines[-3].endswith(b"more\x1b[0m\x1b[K")


def test_a_narrow_terminal(recado_on: Run) -> None:
    """A line that wraps would push the first one out of the screen."""
    recado_on("queues", "declare", "a-queue-with-a-long-name")
    with top(columns=50) as (screen, _):
        seen = screen.wait_for(b"q quit", b"\x1b[J").decode()
    lines = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", seen).splitlines()
    assert len(lines) > 6
    assert max(map(len, lines)) == 50


def test_a_server_that_goes_away() -> None:
    with ExitStack() as running:
        broker = running.enter_context(recado.Broker(config={"management": {"port": 0}}))
        url = f"http://guest:guest@127.0.0.1:{broker.management_port}"
        with top("--url", url) as (screen, process):
            screen.wait_for(b"q quit")
            running.close()
            screen.wait_for(b"unreachable, trying again")
            screen.press(b"q")
            assert process.wait(scale(TIME_LIMIT_S)) == 0


def test_without_a_terminal(recado_on: Run) -> None:
    recado_on("queues", "declare", "jobs")
    assert [row[1] for row in recado_on("top").rows] == ["jobs"]
    printed = recado_on("top", "--json").json
    assert [queue["name"] for queue in printed["queues"]] == ["jobs"]
    assert printed["overview"]["object_totals"]["queues"] == 1


@pytest.mark.parametrize("interval", ["0", "-1", "0.1"])
def test_an_interval_that_is_too_short(recado_on: Run, interval: str) -> None:
    done = recado_on("top", "--interval", interval)
    assert (done.status, "at least 0.2 s" in done.err) == (2, True)
