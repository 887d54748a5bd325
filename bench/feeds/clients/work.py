"""The task: bodies of one size, published until acknowledged, or all of them read again.

A body begins with its number, so that a reader can check that none is missing or out of order:

    | number, 16 digits | filler |
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

DIGITS = 16

# A client that waits for each acknowledgement measures the wire; one that never waits can run out of memory.
WINDOW = 4_000


@dataclass
class Stopwatch:
    """Runs from the first call to the last acknowledgement or message; connecting is not the work."""

    started: float = 0.0
    seconds: float = 0.0
    own_cpu: float = 0.0

    def start(self) -> None:
        self.own_cpu = time.process_time()
        self.started = time.perf_counter()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self.started
        self.own_cpu = time.process_time() - self.own_cpu


@dataclass(frozen=True)
class Work:
    url: str
    name: str  # of the feed or stream
    messages: int
    size: int

    def bodies(self) -> list[bytes]:
        filler = b"." * (self.size - DIGITS)
        return [b"%016d%s" % (number, filler) for number in range(self.messages)]


class WrongResultError(RuntimeError):
    """The replayed messages are not those that were published."""


class Reading:
    """Checks replayed messages, and whether all have arrived."""

    def __init__(self, work: Work) -> None:
        self._size = work.size
        self._expected = 0
        self._messages = work.messages

    def take(self, body: bytes) -> bool:
        """Whether this was the last one."""
        if int(body[:DIGITS]) != self._expected or len(body) != self._size:
            raise WrongResultError(f"{body[:DIGITS]!r} received, {self._expected} expected")
        self._expected += 1
        return self._expected == self._messages


Task = Callable[[Work, Stopwatch], None]


def main(publish: Task, replay: Task) -> None:
    """`python -m bench.feeds.clients.… publish|replay URL NAME MESSAGES SIZE`; figures as one line of JSON."""
    tasks = {"publish": publish, "replay": replay}
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("task", choices=list(tasks))
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("messages", type=int)
    parser.add_argument("size", type=int)
    chosen = parser.parse_args()
    stopwatch = Stopwatch()
    work = Work(chosen.url, chosen.name, chosen.messages, chosen.size)
    tasks[chosen.task](work, stopwatch)
    figures = {"seconds": stopwatch.seconds, "own_cpu_seconds": stopwatch.own_cpu}
    print(json.dumps(figures))
