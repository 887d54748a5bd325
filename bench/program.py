"""A program that runs beside a measurement, a process of its own that says something now and then, in lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from threading import Timer
from typing import IO

from bench.book import NotMeasured
from bench.generator import Figures, last_line

ROOT = Path(__file__).parents[1]
LONGEST_SECONDS = 180
READY = "ready"


class Program:
    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process

    def until_ready(self) -> None:
        if self._line() != READY:
            raise NotMeasured(f"{self.name}: not ready")

    def figures(self) -> Figures:
        """What it says next."""
        line = self._line()
        try:
            figures: Figures = json.loads(line)
        except ValueError:
            raise NotMeasured(f"{self.name}: {line!r} are no figures") from None
        return figures

    def _line(self) -> str:
        """One that says nothing for long is ended, and its last words are told."""
        watchdog = Timer(LONGEST_SECONDS, self._process.kill)
        watchdog.start()
        try:
            line = stream(self._process.stdout).readline().strip()
        finally:
            watchdog.cancel()
        if not line:
            raise NotMeasured(f"{self.name}: {last_line(stream(self._process.stderr).read())}")
        return line


def stream(piped: IO[str] | None) -> IO[str]:
    """Of a process that was started with a pipe there."""
    assert piped
    return piped
