"""Runs the programs of programs/, each a process of its own that does what it is told, line by line.

A program is told `TASK NUMBER …` and answers with a line of JSON. Processor time and memory are those of all
processes that it has started, also of those that it has let go: Thespian's are nobody's children, so every
process inherits a mark in its environment; Ray's workers overwrite theirs, but are children of marked ones.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.generator import Figures
from bench.plan import Plan
from bench.processes import PROC, family, ticks
from bench.program import ROOT, Program, stream
from bench.quiet import settle

END_SECONDS = 15
SETTLE_SECONDS = 2.0
QUICK_SETTLE_SECONDS = 0.2
MARK = "RECADO_BENCH_ACTORS"


class Worker(Program):
    """One that waits for work. What it answers is seconds, and what else it has to tell."""

    def __init__(self, name: str, process: subprocess.Popen[str], mark: str) -> None:
        super().__init__(name, process)
        self._mark = mark

    def do(self, task: str, *numbers: int) -> Figures:
        """Its figures, with `cpu`, the seconds of processor time of all its processes."""
        before = self.processor_seconds()
        command = " ".join([task, *map(str, numbers)])
        with suppress(BrokenPipeError):  # its last words say more
            print(command, file=stream(self._process.stdin), flush=True)
        figures = self.figures()
        figures["cpu"] = self.processor_seconds() - before
        return figures

    def processor_seconds(self) -> float:
        return sum(map(ticks, self._processes())) / os.sysconf("SC_CLK_TCK")

    def _processes(self) -> set[int]:
        return {each for pid in marked(self._mark) for each in family(pid)}

    def end(self) -> None:
        """It ends when it is told nothing more; whatever it leaves behind is ended by us."""
        stream(self._process.stdin).close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def started(name: str, *arguments: object, python: Path | str = sys.executable) -> Iterator[Worker]:
    """Gone when the block ends. It is ready when it has told its first figures."""
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [str(python), "-m", f"bench.actors.programs.{name}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        program = Worker(name, process, mark)
        try:
            program.figures()
            yield program
        finally:
            program.end()


def marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            # It has ended while we looked, or is somebody else's.
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def pause(plan: Plan) -> None:
    """Between samples."""
    settle(QUICK_SETTLE_SECONDS if plan.quick else SETTLE_SECONDS)
