"""Garbage collection without long pauses, for a process that only runs a broker.

Python frees an object when its last reference goes; only reference cycles wait for the cyclic collector. A full
collection visits every object, and the event loop stands still meanwhile: 0.1 s with 100,000 bindings, 0.28 s
with 16 million messages in memory. So only new objects are collected. Those that survive a collection are moved
to the permanent generation (`gc.freeze`), which no collection visits.

A reference cycle that survives one collection is not freed by later ones. The broker leaves none: queues and
connections break theirs when they end. Cycles of other origin are freed by a full collection every ten minutes.
That is left out while the process has 32 MiB more memory than at its start, because it would take too long.

A node with archives (`feeds.archives`) does not use this, because they create reference cycles: it has Python's
own collection (`garbage_collection` in cli/broker_process.py).
"""

import asyncio
import gc
from collections.abc import Callable

from recado.server import memory

# Python's default; 200 costs 10 % more CPU for each confirmed message. A list of messages counts as one object,
# so 700 new objects may refer to three million messages; to visit these takes 18 ms at worst.
YOUNG_OBJECTS_MAX = 700
FULL_COLLECTION_INTERVAL_S = 600.0
# A full collection of a process that has grown by more would take longer than 20 ms.
FULL_COLLECTION_GROWTH_MAX_BYTES = 32 << 20


class GarbageCollector:
    """Configures the cyclic garbage collector of this process between `start` and `stop`."""

    def __init__(self, used_memory: Callable[[], int] = memory.resident_bytes) -> None:
        self._read_used_memory = used_memory
        self._bytes_at_start = 0
        self._thresholds = gc.get_threshold()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start: all objects that exist now become permanent."""
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX)
        gc.callbacks.append(self._after_collection)
        gc.enable()
        self._bytes_at_start = self._read_used_memory()
        self._schedule(loop)

    def stop(self) -> None:
        """Restore the thresholds. Permanent objects stay permanent: collecting them would delay the exit."""
        if self._timer is not None:
            self._timer.cancel()
        gc.callbacks.remove(self._after_collection)
        gc.set_threshold(*self._thresholds)

    def _after_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            gc.freeze()  # takes no time: it only joins lists

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(FULL_COLLECTION_INTERVAL_S, self._collect_all, loop)

    def _collect_all(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._read_used_memory() - self._bytes_at_start <= FULL_COLLECTION_GROWTH_MAX_BYTES:
            gc.unfreeze()
            gc.collect()
        self._schedule(loop)
