"""Runs the programs of programs/, each in its own process, with one task per line.

A program reads `TASK NUMBER …` and answers with a line of JSON. Processor time and memory are summed over all
processes that it has started, also daemons: Thespian detaches its processes, so every process inherits a mark
in its environment; Ray's workers overwrite theirs, but are children of marked processes.
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

END_S = 15
SETTLE_S = 2.0
QUICK_SETTLE_S = 0.2
MARK = "RECADO_BENCH_ACTORS"


class Worker(Program):
    """A program that waits for tasks. Its answers have the seconds, and further figures."""

    def __init__(self, name: str, process: subprocess.Popen[str], mark: str) -> None:
        super().__init__(name, process)
        self._mark = mark

    def do(self, task: str, *numbers: int) -> Figures:
        """Its figures, with `cpu`, the seconds of processor time of all its processes."""
        before = self.processor_seconds()
        command = " ".join([task, *map(str, numbers)])
        with suppress(BrokenPipeError):  # its error output explains more
            print(command, file=stream(self._process.stdin), flush=True)
        figures = self.figures()
        figures["cpu"] = self.processor_seconds() - before
        return figures

    def processor_seconds(self) -> float:
        return sum(map(ticks, self._processes())) / os.sysconf("SC_CLK_TCK")

    def _processes(self) -> set[int]:
        return {each for pid in marked(self._mark) for each in family(pid)}

    def end(self) -> None:
        """Close its input, and kill the processes that it leaves behind."""
        stream(self._process.stdin).close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def started(name: str, *arguments: object, python: Path | str = sys.executable) -> Iterator[Worker]:
    """Run a program during the block. It is ready when it has printed its first figures."""
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
            # It has ended meanwhile, or belongs to another user.
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def pause(plan: Plan) -> None:
    """Between samples."""
    settle(QUICK_SETTLE_S if plan.quick else SETTLE_S)
