"""A real terminal: Debian's tmux, which interprets what a program writes, and whose screen is read as text."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from workshop import system
from workshop.peers import temporary_folder
from workshop.time_limit import scale

TIME_LIMIT_S = 60.0
COLUMNS_COUNT = 100


class Tmux:
    """A terminal with one program."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        (self._program,) = system.need(system.TMUX)
        self._socket = str(folder / "tmux")
        self._environment = {**environment, "LC_ALL": "C.UTF-8"}

    def open(self, command: str, *, lines: int = 24) -> None:
        """Start a command of the shell."""
        self._run("new-session", "-d", "-x", str(COLUMNS_COUNT), "-y", str(lines), command)

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", "--", text)

    def press(self, key: str) -> None:
        """Press a key by its name in tmux: n, Enter, Tab."""
        self._run("send-keys", key)

    def capture(self) -> str:
        """Return the screen; empty if the program has ended."""
        return self._run("capture-pane", "-p", is_allowed_to_fail=True)

    def wait_for(self, *texts: str) -> str:
        """Return the screen as soon as it has all texts."""
        end_at = time.monotonic() + scale(TIME_LIMIT_S)
        while True:
            screen = self.capture()
            if all(text in screen for text in texts):
                return screen
            assert time.monotonic() < end_at, screen

    def wait_for_end(self) -> None:
        end_at = time.monotonic() + scale(TIME_LIMIT_S)
        while self._run("list-sessions", is_allowed_to_fail=True):
            assert time.monotonic() < end_at, self.capture()

    def close(self) -> None:
        self._run("kill-server", is_allowed_to_fail=True)

    def _run(self, *words: str, is_allowed_to_fail: bool = False) -> str:
        done = subprocess.run(
            [self._program, "-S", self._socket, "-f", "/dev/null", *words],
            capture_output=True,
            text=True,
            timeout=scale(TIME_LIMIT_S),
            env=self._environment,
            check=False,
        )
        assert is_allowed_to_fail or done.returncode == 0, (words, done.stderr)
        return done.stdout


@contextmanager
def start_tmux(environment: Mapping[str, str]) -> Iterator[Tmux]:
    """Yield a terminal for one program, which is closed at the end."""
    # Not pytest's folder, whose path may be longer than that of a socket can be.
    with temporary_folder("tmux") as folder:
        terminal = Tmux(folder, environment)
        try:
            yield terminal
        finally:
            terminal.close()
