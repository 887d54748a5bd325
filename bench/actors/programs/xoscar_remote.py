"""xoscar actors: a pool with a second process, in which the actor runs."""

from __future__ import annotations

import asyncio
from typing import Any

import xoscar

from bench.actors.programs.flight import flight
from bench.actors.programs.task_loop import Watch, check, serve


class Echo(xoscar.Actor):  # type: ignore[misc]  # it has no types
    async def echo(self, value: int) -> int:
        return value


async def start() -> tuple[Any, Any]:
    pool = await xoscar.create_actor_pool("127.0.0.1:0", n_process=1)
    place = xoscar.allocate_strategy.ProcessIndex(1)
    ref = await xoscar.create_actor(Echo, address=pool.external_address, allocate_strategy=place)
    return pool, ref


async def one_by_one(ref: Any, count: int) -> dict[str, float]:
    watch = Watch()
    for _ in range(count):
        answer = await ref.echo(7)
    check(answer, 7)
    return {"seconds": watch.seconds()}


async def stop(pool: Any) -> None:
    await pool.stop()


def main() -> None:
    with asyncio.Runner() as runner:
        pool, ref = runner.run(start())
        serve(
            {
                "ask": lambda count: runner.run(one_by_one(ref, count)),
                "flight": lambda count, window: runner.run(
                    flight(lambda: ref.echo(7), count, window)
                ),
            }
        )
        runner.run(stop(pool))


if __name__ == "__main__":
    main()
