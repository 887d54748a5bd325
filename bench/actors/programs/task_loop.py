"""The main loop of a program: report readiness, then run the requested tasks until end of input."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

Task: TypeAlias = Callable[..., dict[str, float]]


def serve(tasks: Mapping[str, Task]) -> None:
    tell({})
    for line in sys.stdin:
        task, *numbers = line.split()
        tell(tasks[task](*map(int, numbers)))


def tell(figures: dict[str, float]) -> None:
    print(json.dumps(figures), flush=True)


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._began


def check(answer: object, expected: object) -> None:
    """A wrong answer is not a fast one."""
    if answer != expected:
        raise SystemExit(f"{answer!r} was answered where {expected!r} was expected")


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
