"""What handlers have seen."""

from __future__ import annotations

import asyncio

from workshop.time_limit import scale


class Collected:
    """A list that tests can wait for."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self._changed = asyncio.Event()

    def add(self, item: object) -> None:
        self.items.append(item)
        self._changed.set()

    async def wait(self, count: int) -> list[object]:
        async with asyncio.timeout(scale(60)):
            while len(self.items) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.items
