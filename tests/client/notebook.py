"""Records the events of a robust connection, and waits for them."""

import asyncio
from typing import TypeVar

from recado.client import ConnectionEvent

from .running import soon

N = TypeVar("N")


class Notebook:
    """`connect(url, on_event=notebook)`."""

    def __init__(self) -> None:
        self.notices: list[ConnectionEvent] = []
        self._news = asyncio.Event()

    def __call__(self, notice: ConnectionEvent) -> None:
        self.notices.append(notice)
        self._news.set()

    async def wait_for(self, kind: type[N], count: int = 1) -> N:
        """The `count`-th of its kind."""

        async def look() -> N:
            while True:
                found = [each for each in self.notices if isinstance(each, kind)]
                if len(found) >= count:
                    return found[count - 1]
                self._news.clear()
                await self._news.wait()

        return await soon(look())
