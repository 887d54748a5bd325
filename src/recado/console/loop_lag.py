"""Event loop lag: a histogram of how late the loop runs its timers.

This is the time that a message may have to wait until the loop reads it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .metrics import Writer

PROBE_INTERVAL_S: Final = 0.1
BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
METRIC: Final = "recado_event_loop_lag_seconds"


class LoopLag:
    """Sleeps and measures by how much it wakes up too late."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._sum = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def record(self, lag: float) -> None:
        self._counts[bisect_left(BUCKETS_S, lag)] += 1
        self._sum += lag

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + PROBE_INTERVAL_S
            await asyncio.sleep(PROBE_INTERVAL_S)
            self.record(max(0.0, clock() - due))

    def render(self, writer: Writer) -> Iterator[bytes]:
        """Render the histogram for Prometheus."""
        yield writer.head(METRIC, "histogram", "How late timers of the event loop run")
        total = 0
        for limit, count in zip((*BUCKETS_S, None), self._counts, strict=True):
            total += count
            label = "+Inf" if limit is None else f"{limit:g}"
            yield writer.sample(f"{METRIC}_bucket", (("le", label),), total)
        yield writer.sample(f"{METRIC}_sum", (), self._sum)
        yield writer.sample(f"{METRIC}_count", (), total)
