"""Time limits of tests that scale with the load of the machine.

A test that needs 20 s on an idle machine needs minutes when ten processes compete for each core, and a
fixed limit would fail it without a fault. So a limit is given for an idle machine and multiplied by the
highest load average per core since the test started.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

LOAD_FACTOR_MAX: Final = 16.0
"""A hanging test must fail eventually, whatever the load is."""

Expire = Callable[[int, FrameType | None], object]


def load_factor(load: float | None = None, cores: int | None = None) -> float:
    """Return the factor for time limits; 1.0 while no process has to wait for a core.

    `load` is the number of runnable processes, by default the higher of the averages over one and five minutes.
    """
    if load is None:
        load = max(os.getloadavg()[:2])
    if cores is None:
        cores = len(os.sched_getaffinity(0))
    return min(max(load / cores, 1.0), LOAD_FACTOR_MAX)


def scale(limit_s: float) -> float:
    """Scale a time limit by the current load."""
    return limit_s * load_factor()


class ScaledLimit:
    """The deadline of a test, computed again whenever its timer expires."""

    def __init__(
        self,
        limit_s: float,
        factor: Callable[[], float] = load_factor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._factor = factor
        self._clock = clock
        self._started_at = clock()
        self._highest = factor()

    def remaining(self) -> float:
        """Return the seconds left with the current load; 0 if the limit has passed."""
        self._highest = max(self._highest, self._factor())
        left_s = self._started_at + self._limit_s * self._highest - self._clock()
        return math.ceil(left_s * 1000) / 1000 if left_s > 0 else 0.0


def extend_alarm(limit: ScaledLimit) -> None:
    """Call the handler of SIGALRM only when the scaled limit has passed; otherwise restart the timer."""
    expire = signal.getsignal(signal.SIGALRM)
    if callable(expire):  # otherwise a thread measures the time
        signal.signal(signal.SIGALRM, _make_handler(limit, expire))


def _make_handler(limit: ScaledLimit, expire: Expire) -> Expire:
    def on_alarm(number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        remaining = limit.remaining()
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, remaining)
        else:
            expire(number, frame)

    return on_alarm
