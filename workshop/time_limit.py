"""Time limits of tests that grow with the load of the machine.

A test that needs 20 s on an idle machine needs minutes when ten processes compete for each core, and a
fixed limit fails it though nothing is wrong. So a limit is given for an idle machine and multiplied by the
load average per core, the highest that was seen since the test began: the load may come after its start.
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
"""A test that hangs fails at last, however long the run queue is."""

Expire = Callable[[int, FrameType | None], object]


def load_factor(load: float | None = None, cores: int | None = None) -> float:
    """By how much a time limit is to be multiplied; 1.0 while no process has to wait for a core.

    `load` is the number of runnable processes, by default the higher of the averages over one and five minutes.
    """
    if load is None:
        load = max(os.getloadavg()[:2])
    if cores is None:
        cores = len(os.sched_getaffinity(0))
    return min(max(load / cores, 1.0), LOAD_FACTOR_MAX)


def scale(limit_s: float) -> float:
    """A time limit for the machine as it is now."""
    return limit_s * load_factor()


class ScaledLimit:
    """When a test must be done; asked again whenever its timer goes off."""

    def __init__(
        self,
        limit_s: float,
        factor: Callable[[], float] = load_factor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_s = limit_s
        self._factor = factor
        self._clock = clock
        self._begun = clock()
        self._highest = factor()

    def remaining(self) -> float:
        """Seconds until the limit as of now; 0 if it has passed."""
        self._highest = max(self._highest, self._factor())
        left_s = self._begun + self._limit_s * self._highest - self._clock()
        return math.ceil(left_s * 1000) / 1000 if left_s > 0 else 0.0


def extend_alarm(limit: ScaledLimit) -> None:
    """Let the handler of SIGALRM run no earlier than the limit allows, though its timer goes off before."""
    expire = signal.getsignal(signal.SIGALRM)
    if callable(expire):  # else the time is kept by a thread, as outside the main thread
        signal.signal(signal.SIGALRM, _extended(limit, expire))


def _extended(limit: ScaledLimit, expire: Expire) -> Expire:
    def ring(number: int, frame: FrameType | None) -> None:
        __tracebackhide__ = True
        remaining = limit.remaining()
        if remaining:
            signal.setitimer(signal.ITIMER_REAL, remaining)
        else:
            expire(number, frame)

    return ring
