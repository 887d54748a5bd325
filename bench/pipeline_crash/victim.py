"""The job as a process, whichever of its lives it is in: started, killed, waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from bench.feeds_crash.diary import lines
from bench.pipeline_crash.doomed import LAKE, sink_doom, spool_doom
from bench.pipeline_crash.routes import Layout
from bench.processes import PROC, children, family

PATIENCE: Final = 400.0  # seconds until a job must have done something
LOOK: Final = 0.05


class Kill(Enum):
    DRIVER = "driver"
    """The whole job, at any moment: it is started again."""
    WORKER = "worker"
    """One of the processes in which Spark runs our Python, at any moment."""
    SPOOL = "spool"
    """Each source of a queue, when rows are safe in its spool and not acknowledged."""
    SINK = "sink"
    """Whoever publishes for each sink of messages, when they are confirmed and Spark does not know."""
    LAKE = "lake"
    """The whole job, when rows of all sources are in the lake and Spark does not know."""


class Stuck(RuntimeError):
    """The job did nothing for too long."""


def is_dead(pid: int) -> bool:
    """Gone, or only waiting for somebody to notice."""
    try:
        words = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return words[0] in "ZX"


class Victim:
    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder = folder
        self._layout = layout
        self._process: subprocess.Popen[bytes]
        self._read = 0  # lines of the diary
        self.deaths: Counter[Kill] = Counter()
        """Kills that somebody is dead of."""

    def __enter__(self) -> Victim:
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill_all()

    def _start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.pipeline_crash.job", str(self._folder)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def failures(self) -> int:
        """How often a query ended, and the job did not."""
        return sum(words[0] == "failed" for words in self._diary())

    def _diary(self) -> list[list[str]]:
        return list(lines(self._folder / "diary"))

    def wait_for_work(self) -> None:
        """Until each query has done a batch since the last kill."""
        wanted = {query.value for query in self._layout.queries}

        def worked() -> bool:
            new = self._diary()[self._read :]
            return wanted <= {words[1] for words in new if words[0] == "batch"}

        self._wait(worked, "work")

    def kill(self, kind: Kill, random: Random) -> None:
        """When it returns, who was to die is dead. Those at any moment are when all has worked for a while."""
        match kind:
            case Kill.DRIVER:
                self._wait_for_any_moment(random)
                self._kill_all()
            case Kill.WORKER:
                self._wait_for_any_moment(random)
                self._kill_worker(random)
            case Kill.SPOOL:
                self._doom([spool_doom(each.name) for each in self._layout.queues])
            case Kill.SINK:
                self._doom([sink_doom(each) for each in self._layout.sinks])
            case Kill.LAKE:
                self._doom([LAKE])
        self.deaths[kind] += 1
        self._read = len(self._diary())

    def _wait_for_any_moment(self, random: Random) -> None:
        self.wait_for_work()
        time.sleep(random.random() * 0.5)  # any moment

    def _doom(self, names: Sequence[str]) -> None:
        """Each comes to its moment by itself."""
        for name in names:
            (self._folder / name).touch()
        self._wait(lambda: all(self._died_of(name) for name in names), "die")
        for name in names:
            for claimed in self._folder.glob(f"{name}.*"):
                claimed.unlink()

    def _died_of(self, doom: str) -> bool:
        return any(is_dead(int(each.suffix[1:])) for each in self._folder.glob(f"{doom}.*"))

    def _kill_worker(self, random: Random) -> None:
        """One of the JVM's, which is the job's only child."""

        def killed() -> bool:
            machines = children(self._process.pid)
            workers = [each for machine in machines for each in family(machine)[1:]]
            if not workers:
                return False
            worker = random.choice(workers)
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                return False
            self._wait(lambda: is_dead(worker), "die")
            return True

        self._wait(killed, "have a process for Python")

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()  # so it is dead

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        """A job that is gone is started again."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if self._process.poll() is not None:
                self._start()
            if time.monotonic() > deadline:
                tail = (self._folder / "log").read_text(errors="replace")[-3000:]
                raise Stuck(f"the job did not {what} within {PATIENCE:g} s: {tail}")
            time.sleep(LOOK)

    def finish(self) -> None:
        (self._folder / "finish").touch()
        self._wait(lambda: ["finished"] in self._diary(), "finish")
        self._process.wait()
