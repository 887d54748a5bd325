"""The durable benchmark: recado and RabbitMQ side by side, with everything kept on disk.

    traffic.py  rates of persistent messages with confirms, and how long one confirm takes
    memory.py   memory while millions of messages pass, and while they wait in a queue
    restart.py  how soon after kill -9 the first of many messages is delivered again

Both brokers do the same: durable queues, delivery mode 2, a confirm for every message, and their
data in folders of one file system. That is the one of this repository, because the system's folder
for temporary files may be in memory, where a sync costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench import processes
from bench.book import Book
from bench.broker.life import fresh, sides
from bench.durable import memory, restart, traffic
from bench.plan import Plan
from workshop import peers

SCENARIOS = (*traffic.SCENARIOS, *memory.SCENARIOS, *restart.SCENARIOS)

CACHE = Path(__file__).parents[2] / ".cache"


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Takes all samples; yields the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    CACHE.mkdir(exist_ok=True)
    with (
        peers.temporary_folder("bench-durable", CACHE) as folder,
        ExitStack() as stack,
        ThreadPoolExecutor() as beside,
    ):
        # RabbitMQ needs six seconds to start. Memory is looked at meanwhile: no work that others
        # do beside it makes it more.
        started = {
            side: beside.submit(stack.enter_context, fresh(side, book, folder / side.value))
            for side in (sides(plan) if traffic.loads_of(plan) else ())
        }
        yield from memory.run(plan, book, folder)
        yield from restart.run(plan, book, folder)
        # Traffic comes last because it can use whatever time is left.
        yield from traffic.run(plan, book, started)
