"""A program that runs in its own process during a measurement, and reports by lines on its standard output."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from threading import Timer
from typing import IO

from bench.book import NotMeasuredError
from bench.generator import Figures, last_line

ROOT = Path(__file__).parents[1]
LONGEST_S = 180
READY = "ready"


class Program:
    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process

    def until_ready(self) -> None:
        if self._line() != READY:
            raise NotMeasuredError(f"{self.name}: not ready")

    def figures(self) -> Figures:
        """Read the next line of figures. Raises NotMeasuredError."""
        line = self._line()
        try:
            figures: Figures = json.loads(line)
        except ValueError:
            raise NotMeasuredError(f"{self.name}: not a JSON object: {line!r}") from None
        return figures

    def _line(self) -> str:
        """Read a line; kill the process if none comes in time, and report its last error line."""
        watchdog = Timer(LONGEST_S, self._process.kill)
        watchdog.start()
        try:
            line = stream(self._process.stdout).readline().strip()
        finally:
            watchdog.cancel()
        if not line:
            raise NotMeasuredError(f"{self.name}: {last_line(stream(self._process.stderr).read())}")
        return line


def stream(piped: IO[str] | None) -> IO[str]:
    """Return the pipe of a process that was started with one."""
    assert piped
    return piped
