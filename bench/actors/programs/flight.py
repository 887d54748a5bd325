"""Concurrent asks: a number of tasks, each of which sends one ask after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bench.actors.programs.task_loop import Watch


async def flight(ask: Callable[[], Awaitable[object]], count: int, window: int) -> dict[str, float]:
    async def one(asks: int) -> None:
        for _ in range(asks):
            await ask()

    watch = Watch()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(window):
            tasks.create_task(one(count // window))
    return {"seconds": watch.seconds()}
