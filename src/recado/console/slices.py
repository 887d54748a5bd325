"""Shares the time of the event loop between messages and the answers of the HTTP API.

Long answers are rendered in slices of a millisecond. All requests together get one slice after the other, in the
order in which they ask; but every second slice is for the metrics, because Prometheus waits ten seconds only, however
many lists are requested. After each slice the loop belongs to messages for a while: for a quarter of the slice if the
loop is otherwise idle, and for fifteen times the slice if it is busy, so that rendering takes at most a sixteenth of
the time from messages. Whether it is busy is measured in these pauses, as the share of time in which the loop's thread
runs, or would if other processes left it a processor. Pauses are added up until they are as long as a timer can be, a
millisecond; until then the next slice follows after one turn of the loop.

SLI1  At most one slice runs between two turns of the loop.
SLI2  Every request that waits gets a slice after those of its kind that waited before it, or its task was cancelled.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Generator
from contextlib import suppress
from time import perf_counter, thread_time
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.001  # of rendering, before other callbacks of the loop run
IDLE_PAUSE_RATIO: Final = 0.25  # of the slice before
BUSY_PAUSE_RATIO: Final = 15.0
IDLE_LOAD_RATIO: Final = 0.25  # up to this load the loop counts as idle
BUSY_LOAD_RATIO: Final = 0.5
MEASURED_S: Final = 0.005  # of pauses: the load is that of the last ones
PAUSE_MIN_S: Final = 0.001
STATISTICS_MAX_BYTES: Final = 100


class ThreadClock:
    """The seconds in which the calling thread was running, or was ready to run."""

    def __init__(self) -> None:
        self._statistics: int | None = None
        with suppress(OSError):  # not on Linux: only the time in which it was running is known
            self._statistics = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> float:
        """Return the time since the start of the thread."""
        if self._statistics is None:
            return thread_time()
        # | ns running, until the last tick | ns ready to run | time slices |
        ready_ns = os.pread(self._statistics, STATISTICS_MAX_BYTES, 0).split()[1]
        return thread_time() + int(ready_ns) / 1e9

    def close(self) -> None:
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None


class LoopLoad:
    """The share of pauses in which the loop's thread was running or ready to run, lately."""

    def __init__(self) -> None:
        self._used_s = self._elapsed_s = 0.0

    def observe(self, used_s: float, elapsed_s: float) -> None:
        """Take a pause into account, more than those before it."""
        kept_ratio = max(0.0, 1.0 - elapsed_s / MEASURED_S)
        self._used_s = self._used_s * kept_ratio + used_s
        self._elapsed_s = self._elapsed_s * kept_ratio + elapsed_s

    @property
    def pause_ratio(self) -> float:
        """How long a pause should be, compared with the slice before it."""
        if not self._elapsed_s:
            return IDLE_PAUSE_RATIO
        load = self._used_s / self._elapsed_s
        busy = (load - IDLE_LOAD_RATIO) / (BUSY_LOAD_RATIO - IDLE_LOAD_RATIO)
        extra = BUSY_PAUSE_RATIO - IDLE_PAUSE_RATIO
        return IDLE_PAUSE_RATIO + extra * min(1.0, max(0.0, busy))


class SlicePacer:
    """Grants slices of the loop's time to the requests of one node. Create it in the thread of the loop."""

    def __init__(self) -> None:
        self._clock = ThreadClock()
        self._load = LoopLoad()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_urgently: deque[asyncio.Future[None]] = deque()
        self._was_urgent = False
        """Whether the last slice was for a request of `_waiting_urgently`."""
        self._is_granting = False
        self._slice_began_s: float | None = None
        """The thread's CPU time when the granted slice began; None if its task was cancelled."""
        self._owed_s = 0.0
        """The sum of the pauses that were left out since the last one."""
        self._pause_began_s = self._pause_ends_s = perf_counter()
        self._pause_began_clock_s = self._clock.read()

    def close(self) -> None:
        """Release the files that it reads. Slices are still granted."""
        self._clock.close()

    async def take(self, *, is_urgent: bool = False) -> float:
        """Wait for a slice, and return the time (`perf_counter`) when it ends. Ends the slice before."""
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        (self._waiting_urgently if is_urgent else self._waiting).append(granted)
        if not self._is_granting:
            self._is_granting = True
            self._schedule(loop)
        await granted
        self._slice_began_s = thread_time()
        return perf_counter() + SLICE_S

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Run bounded steps to their end, and return their result. Short work does not wait for a slice."""
        slice_end = perf_counter() + SLICE_S
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            if perf_counter() > slice_end:
                slice_end = await self.take()

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Grant the next slice after the pause, or in the next turn of the loop."""
        pause_s = self._pause_ends_s - perf_counter()
        if pause_s > 0:
            loop.call_later(pause_s, self._grant, loop)
        else:
            loop.call_soon(self._grant, loop)

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        granted = self._next_request()
        if granted is None:
            self._is_granting = False
            return
        elapsed_s = perf_counter() - self._pause_began_s
        if elapsed_s >= PAUSE_MIN_S:
            self._load.observe(self._clock.read() - self._pause_began_clock_s, elapsed_s)
        self._slice_began_s = None
        granted.set_result(None)
        # The task continues in the next turn, and this call follows it directly.
        loop.call_soon(self._end_slice, loop)

    def _next_request(self) -> asyncio.Future[None] | None:
        """Return the request that gets the next slice: an urgent one and another by turns, if both wait."""
        queues = [self._waiting_urgently, self._waiting]
        for queue in reversed(queues) if self._was_urgent else queues:
            while queue:
                request = queue.popleft()
                if not request.done():  # otherwise its task was cancelled
                    self._was_urgent = queue is self._waiting_urgently
                    return request
        return None

    def _end_slice(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pause_began_s, self._pause_began_clock_s = perf_counter(), self._clock.read()
        if self._slice_began_s is not None:
            spent_s = thread_time() - self._slice_began_s
            self._owed_s += spent_s * self._load.pause_ratio
        if self._owed_s >= PAUSE_MIN_S:
            self._pause_ends_s = self._pause_began_s + self._owed_s
            self._owed_s = 0.0
        self._schedule(loop)
