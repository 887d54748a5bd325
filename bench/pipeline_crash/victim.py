"""The job as a process over all its incarnations: start, kill, wait."""

from __future__ import annotations

import os
import shutil
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

from bench.feeds_siege.diary import lines
from bench.pipeline_crash.failpoints import DIARY, LAKE, sink_doom, spool_doom
from bench.pipeline_crash.routes import Generation, Layout, Query
from bench.processes import PROC, children, family

PATIENCE: Final = 400.0  # seconds until a job must have done something
LOOK: Final = 0.05
WORKER: Final = b"\0-m\0pyspark.daemon\0pyspark.worker\0"
MASTERS: Final = ("local[2,4]", "local[2]")
"""The masters of Spark, one for each incarnation in turn. With the first one, a task is tried up to four times, as on a
cluster: the death of a worker is that of a task, or of a query if Spark has only dead workers left. With the second
one it is always that of a query, which has to repeat its batch."""


class Kill(Enum):
    DRIVER = "driver"
    """The whole job, at any moment, also while some of its queries start: it is started again."""
    WORKER = "worker"
    """The processes in which Spark runs our tasks, as when an executor dies, while one of them works."""
    SPOOL = "spool"
    """Each source of a queue, when rows are safe in its spool and not acknowledged."""
    SINK = "sink"
    """The publisher of each sink of messages, when they are confirmed and Spark does not know it yet."""
    LAKE = "lake"
    """The whole job, when rows of all sources are in the lake and Spark does not know it yet."""
    RESTORE = "restore"
    """The whole job, at any moment; before it is started again, older checkpoints are restored."""


class VictimStuckError(RuntimeError):
    """The job made no progress for too long."""


def is_dead(pid: int) -> bool:
    """Whether the process has exited, or is a zombie."""
    return state(pid) in "ZX"


def is_worker(pid: int) -> bool:
    """Whether Spark runs tasks in it; other processes serve the drivers of sources and sinks."""
    try:
        return WORKER in (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def state(pid: int) -> str:
    """| pid | (name) | state | …: a name may contain spaces."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _last(log: Path) -> int:
    """Return the number of the last batch in a log of Spark; -1 if there is none."""
    return max((int(each.name) for each in log.glob("*") if each.name.isdecimal()), default=-1)


class Victim:
    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder = folder
        self._layout = layout
        self._process: subprocess.Popen[bytes]
        self._incarnations = 0
        self._is_killed = False  # and not yet started again
        self._read = 0  # lines of the diary
        self.deaths: Counter[Kill] = Counter()
        """Kills that had an effect."""
        self.restored = 0
        """Checkpoints that were replaced by older ones."""
        self.own_deaths: list[str] = []
        """Exits of the job that were not caused by a kill: its last error lines."""

    def __enter__(self) -> Victim:
        self._start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._kill_all()

    def _start(self) -> None:
        master = MASTERS[self._incarnations % len(MASTERS)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.pipeline_crash.job", str(self._folder), master],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._incarnations += 1
        self._is_killed = False

    @property
    def failures(self) -> int:
        """How often a query ended, and the job did not."""
        return sum(words[0] == "failed" for words in self._diary())

    @property
    def refusals(self) -> int:
        """How often a query ended as its checkpoint was older than its table."""
        return sum(words[0] == "refused" for words in self._diary())

    @property
    def retries(self) -> int:
        """How often a task was tried again that reads a queue, or publishes for a broker."""
        return sum(words[0] == "again" for words in self._diary())

    def _diary(self) -> list[list[str]]:
        return list(lines(self._folder / DIARY))

    def wait_for_work(self, queries: Sequence[Query]) -> None:
        """Until each of them has done a batch since the last kill."""
        wanted = {query.value for query in queries}

        def worked() -> bool:
            new = self._diary()[self._read :]
            return wanted <= {words[1] for words in new if words[0] == "batch"}

        self._wait(worked, "work")

    def kill(self, kind: Kill, random: Random) -> None:
        """Kill, and return when the process is dead. Moments are drawn when there is something to lose."""
        queries = self._layout.queries
        match kind:
            case Kill.DRIVER:
                self._wait_for_any_moment([random.choice(queries)], random)
                self._kill_all()
            case Kill.WORKER:
                self._wait_for_any_moment(queries, random)
                self._kill_workers()
            case Kill.SPOOL:
                self._doom([spool_doom(each.name) for each in self._layout.queues])
            case Kill.SINK:
                self._doom([sink_doom(each) for each in self._layout.sinks])
            case Kill.LAKE:
                self._doom([LAKE])
                self._bury()
            case Kill.RESTORE:
                if not any(each.backup.exists() for each in self._generations):
                    self.wait_for_work(self._layout.restored)
                    self._kill_all()
                self._wait(self._is_past_backups, "go on from the backups")
                time.sleep(random.random() * 0.5)  # any moment
                self._kill_all(then=self._restore)
        self.deaths[kind] += 1
        self._read = len(self._diary())

    def _wait_for_any_moment(self, queries: Sequence[Query], random: Random) -> None:
        self.wait_for_work(queries)
        time.sleep(random.random() * 0.5)  # any moment

    def _doom(self, names: Sequence[str]) -> None:
        """Each process reaches its moment by itself."""
        for name in names:
            (self._folder / name).touch()
        self._wait(lambda: all(self._died_of(name) for name in names), "die")
        for name in names:
            for claimed in self._folder.glob(f"{name}.*"):
                claimed.unlink()

    def _died_of(self, doom: str) -> bool:
        return any(is_dead(int(each.suffix[1:])) for each in self._folder.glob(f"{doom}.*"))

    def _kill_workers(self) -> None:
        """Of the JVM, which is the job's only child."""

        def killed() -> bool:
            machines = children(self._process.pid)
            found = [each for machine in machines for each in family(machine)]
            workers = [each for each in found if is_worker(each)]
            if all(state(each) != "R" for each in workers):
                return False
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            self._wait(lambda: all(map(is_dead, workers)), "die")
            return True

        self._wait(killed, "run a task")

    def _kill_all(self, then: Callable[[], None] | None = None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._bury(then)

    def _bury(self, then: Callable[[], None] | None = None) -> None:
        """The whole job was killed. The next call that waits for something restarts it.

        Only now a checkpoint can be copied consistently.
        """
        self._process.wait()
        self._is_killed = True
        (then or self._back_up)()

    @property
    def _generations(self) -> list[Generation]:
        return [Generation(self._folder, query) for query in self._layout.restored]

    def _is_past_backups(self) -> bool:
        """Whether each table has a batch that its backup does not have, so that a restored checkpoint is
        refused."""
        return all(
            _last(each.checkpoint / "commits") > _last(each.backup / "offsets")
            for each in self._generations
            if each.backup.exists()
        )

    def _back_up(self) -> None:
        """Once in each generation, so that it is as old as can be when it is restored."""
        for each in self._generations:
            has_batch = (each.checkpoint / "commits" / "0").exists()
            if has_batch and not each.backup.exists():
                shutil.copytree(each.checkpoint, each.backup)

    def _restore(self) -> None:
        for each in self._generations:
            if each.backup.exists():
                shutil.rmtree(each.checkpoint)
                shutil.copytree(each.backup, each.checkpoint)
                self.restored += 1

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        """A job that is gone is started again. If it was not killed, that is a finding."""
        deadline = time.monotonic() + PATIENCE
        while True:
            # Checked first: its death may be what is waited for.
            is_gone = self._process.poll() is not None
            if reached():
                return
            if is_gone:
                if not self._is_killed:
                    self._note_own_death()
                self._start()
            if time.monotonic() > deadline:
                raise VictimStuckError(
                    f"the job did not {what} within {PATIENCE:g} s: {self._last_words()}"
                )
            time.sleep(LOOK)

    def _note_own_death(self) -> None:
        self.own_deaths.append(f"status {self._process.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:]

    def finish(self) -> None:
        (self._folder / "finish").touch()
        self._wait(lambda: ["finished"] in self._diary(), "finish")
        if self._process.wait():
            self._note_own_death()
