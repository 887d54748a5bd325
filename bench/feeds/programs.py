"""Runs the programs of clients/, and measures the processor time of the servers that they use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.generator import Figures
from bench.plan import Plan
from bench.processes import processor_seconds
from bench.program import LONGEST_S, ROOT, Program
from bench.quiet import settle

SETTLE_S = 3.0
QUICK_SETTLE_S = 0.3

# A server is still busy after the answer to its client; that belongs to the sample.
AFTERWARDS_S = 0.3


@contextmanager
def started(name: str, *arguments: object) -> Iterator[Program]:
    """Gone when the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", f"bench.feeds.clients.{name}", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Program(name, process)
        finally:
            process.terminate()
            try:
                process.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                process.kill()


def run_client(name: str, *arguments: object) -> Figures:
    """Runs it to its end; its figures."""
    with started(name, *arguments) as program:
        return program.figures()


def pause(plan: Plan) -> None:
    """Between samples."""
    settle(QUICK_SETTLE_S if plan.quick else SETTLE_S)


class Meter:
    """Processor time of some processes and their children, from the start of a sample until they are quiet."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = self._now()

    def _now(self) -> float:
        return sum(processor_seconds(pid) for pid in self._pids)

    def microseconds_per(self, messages: int) -> float:
        settle(AFTERWARDS_S)
        return (self._now() - self._before) / messages * 1e6
