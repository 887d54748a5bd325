"""Ray's actors: each is a process, and a node of its own with all that belongs to it is started for them."""

from __future__ import annotations

from typing import Any

import ray

from bench.actors.programs.task_loop import Watch, check, serve


class Echo:
    def echo(self, value: int) -> int:
        return value


def one_by_one(actor: Any, count: int) -> dict[str, float]:
    watch = Watch()
    for _ in range(count):
        answer = ray.get(actor.echo.remote(7))
    check(answer, 7)
    return {"seconds": watch.seconds()}


def flight(actor: Any, count: int, window: int) -> dict[str, float]:
    """Send as many asks as the window and wait for all of them, as is usual with Ray."""
    watch = Watch()
    for _ in range(count // window):
        ray.get([actor.echo.remote(7) for _ in range(window)])
    return {"seconds": watch.seconds()}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    try:
        actor = ray.remote(Echo).remote()
        ray.get(actor.echo.remote(0))
        serve(
            {
                "ask": lambda count: one_by_one(actor, count),
                "flight": lambda count, window: flight(actor, count, window),
            }
        )
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
