"""Event loop lag: a histogram of how late the loop runs its timers.

A message that arrives may have to wait for as long until the loop reads it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from recado.broker.histogram import Histogram

PROBE_INTERVAL_S: Final = 0.1
LIMITS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class LoopLag:
    """Sleeps and measures by how much it wakes up too late."""

    def __init__(self) -> None:
        self.histogram = Histogram(LIMITS_S)
        self._peak_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def take_peak_s(self) -> float:
        """Return the longest delay since the last call."""
        peak_s, self._peak_s = self._peak_s, 0.0
        return peak_s

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + PROBE_INTERVAL_S
            await asyncio.sleep(PROBE_INTERVAL_S)
            lag_s = max(0.0, clock() - due)
            self.histogram.observe(lag_s)
            self._peak_s = max(self._peak_s, lag_s)
