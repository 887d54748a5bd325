"""The migration benchmark: a million messages from RabbitMQ to recado and back, interrupted by kills.

    scene.py    queues of every kind with messages, and the check that they have arrived
    journey.py  `recado migrate` as a process that is killed and run again

Both directions must lose nothing, change nothing, keep the order, and move twice at most the window of each kill;
definitions must be equal on recado and, after the way back, on RabbitMQ. The peer is the source in one direction
and the target in the other, so there is no ratio: the rates are those of both brokers together.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

from bench.book import Book, NotMeasuredError
from bench.migration.journey import WINDOW_COUNT, migrate_with_kills
from bench.migration.scene import Scene
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side, limit
from workshop import peers

MESSAGES_COUNT = 1_000_000
QUICK_MESSAGES_COUNT = 20_000
KILLS_COUNT = 5
PROBLEMS_SHOWN_COUNT = 20

SCENARIOS = (
    limit("lost", "Messages lost in both directions", "messages"),
    limit("out-of-order", "Messages that overtook another of their queue", "messages"),
    limit("twice", f"Messages moved twice, beyond {WINDOW_COUNT} for each kill", "messages"),
    limit("changed", "Messages with other properties, headers or bodies", "messages"),
    limit("definitions", "Objects that differ after each direction", "objects"),
    Scenario("to-recado", "From RabbitMQ to recado", "messages/s", Comparison.AT_LEAST),
    Scenario("to-rabbitmq", "From recado to RabbitMQ", "messages/s", Comparison.AT_LEAST),
)


def run(plan: Plan, book: Book) -> Iterator[str]:
    random = Random(plan.choose_seed())
    count = QUICK_MESSAGES_COUNT if plan.quick else MESSAGES_COUNT
    names = [scenario.name for scenario in SCENARIOS]
    with book.measuring(*names), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="migration-")))
        rabbit = stack.enter_context(peers.rabbitmq(management=True))
        here = stack.enter_context(
            peers.recado(data=folder / "data", arguments=("--management-port", "0"))
        )
        scene = Scene(count // Scene.QUEUES_COUNT)
        before = asyncio.run(scene.populate(rabbit))
        there = migrate_with_kills(rabbit, here, KILLS_COUNT, random, folder)
        differences = scene.find_differences(here, before)
        back = migrate_with_kills(here, rabbit, KILLS_COUNT, random, folder)
        verdict = asyncio.run(scene.check(rabbit))
        differences += scene.find_differences(rabbit, before)
        for problem in [*verdict.changed, *differences][:PROBLEMS_SHOWN_COUNT]:
            print(f"  {problem}", flush=True)
        if verdict.received == 0:
            raise NotMeasuredError("no message came back")
        allowed = 2 * KILLS_COUNT * WINDOW_COUNT
        for _ in range(plan.rounds):  # a limit counts the total, so every round has it
            book.enter("lost", Side.RECADO, Sample(verdict.lost))
            book.enter("out-of-order", Side.RECADO, Sample(verdict.out_of_order))
            repeated = {"moved_twice": float(verdict.twice)}
            book.enter("twice", Side.RECADO, Sample(max(0, verdict.twice - allowed), repeated))
            book.enter("changed", Side.RECADO, Sample(len(verdict.changed)))
            book.enter("definitions", Side.RECADO, Sample(len(differences)))
            book.enter("to-recado", Side.RECADO, Sample(scene.total / there))
            book.enter("to-rabbitmq", Side.RECADO, Sample(scene.total / back))
    yield from names
