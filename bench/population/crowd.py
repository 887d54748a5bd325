"""One run of the load generator in mode population, and the memory of the broker meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Timer

from bench.book import NotMeasuredError
from bench.generator import GRACE_S, Figures, command, figures_of, last_line
from bench.processes import resident_megabytes
from workshop.peers import Server

# For joining and leaving, which takes RabbitMQ half a minute with 10,000 clients.
LONGEST_JOIN_S = 240
MARKS_COUNT = 10
SIZE_BYTES = 100

# The lines that the load generator prints besides those at equal parts of the time.
START, JOINED, END = 0, 1, -1


@dataclass(frozen=True)
class Crowd:
    """The clients of a run."""

    consumers: int
    publishers: int
    messages: int
    seconds: float
    arriving: bool = False

    @property
    def marks_count(self) -> int:
        """Return the number of marks in the time; each has a new publisher if they arrive."""
        return min(MARKS_COUNT, self.publishers) if self.arriving else MARKS_COUNT

    @property
    def arguments(self) -> list[str]:
        words = ["--consumers", str(self.consumers), "--publishers", str(self.publishers)]
        words += ["--messages", str(max(self.messages, 1)), "--sizes", str(SIZE_BYTES)]
        words += ["--spread", str(round(self.seconds * 1e3)), "--marks", str(self.marks_count)]
        return [*words, "--arriving"] if self.arriving else words


@dataclass(frozen=True)
class Course:
    """The figures at each mark; all count from the first mark."""

    marks: Sequence[Figures]

    def between(self, figure: str, begin: int, end: int = END) -> float:
        return self.marks[end][figure] - self.marks[begin][figure]

    def cpu_percent(self, begin: int, end: int = END) -> float:
        """Return the CPU time of the broker in percent of one core."""
        seconds = self.between("seconds", begin, end)
        return 100 * self.between("broker_cpu_seconds", begin, end) / seconds

    @property
    def peak_megabytes(self) -> float:
        """Return the largest memory at a mark since all clients that stay are connected."""
        return max(mark["megabytes"] for mark in self.marks[JOINED:])

    @property
    def generator_share(self) -> float:
        return self.between("own_cpu_seconds", JOINED) / self.between("seconds", JOINED)


def observe(server: Server, crowd: Crowd) -> Course:
    """Run the load generator. Raises NotMeasuredError."""
    seconds = round(crowd.seconds + LONGEST_JOIN_S)
    with subprocess.Popen(
        command(server, "population", crowd.arguments, seconds),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        watchdog = Timer(seconds + GRACE_S, started.kill)
        watchdog.start()
        try:
            assert started.stdout
            assert started.stderr
            marks = [with_memory(line, server) for line in started.stdout]
            problem = started.stderr.read()
        finally:
            watchdog.cancel()
    if started.returncode:
        raise NotMeasuredError(f"{server.name}: {last_line(problem)}")
    return Course(marks)


def with_memory(line: str, server: Server) -> Figures:
    return {**figures_of(line), "megabytes": resident_megabytes(server.pid)}
