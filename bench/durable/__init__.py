"""The durable benchmark: recado and RabbitMQ with persistent messages.

    traffic.py  rates of persistent messages with confirms, and the latency of one confirm
    memory.py   memory while millions of messages pass through a queue, and while they wait in it
    restart.py  the time from a start after kill -9 to the first delivered message

Both brokers do the same: durable queues, delivery mode 2, a confirm for every message, and data folders on the
same file system. That is the one of this repository, because the folder for temporary files may be in memory,
where fsync costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from bench import processes
from bench.book import Book
from bench.broker.fresh_broker import fresh, sides
from bench.durable import memory, restart, traffic
from bench.plan import Plan
from workshop import peers

SCENARIOS = (*traffic.SCENARIOS, *memory.SCENARIOS, *restart.SCENARIOS)

CACHE = Path(__file__).parents[2] / ".cache"


def run(plan: Plan, book: Book) -> Iterator[str]:
    """Take all samples; yield the name of each scenario when it is finished."""
    processes.allow_many_open_files()
    CACHE.mkdir(exist_ok=True)
    with (
        peers.temporary_folder("bench-durable", CACHE) as folder,
        ExitStack() as stack,
        ThreadPoolExecutor() as beside,
    ):
        # RabbitMQ takes six seconds to start. Memory is measured meanwhile, because concurrent work does not
        # increase it.
        started = {
            side: beside.submit(stack.enter_context, fresh(side, book, folder / side.value))
            for side in (sides(plan) if traffic.loads_of(plan) else ())
        }
        yield from memory.run(plan, book, folder)
        yield from restart.run(plan, book, folder)
        # Traffic comes last because it can use the remaining time.
        yield from traffic.run(plan, book, started)
