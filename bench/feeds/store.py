"""An archive: how fast it stores messages, and how fast they can be read again.

Ingest is measured end to end: a backlog waits in the queue of the archive at the broker, and the archive is
started and timed until all of it is stored durably. The store is also measured alone, without a feed: batches
with an fsync each, sealed to Parquet. Reading is done by other processes, which open the folder directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.book import Book, NotMeasuredError
from bench.feeds.programs import pause, run_client, started
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers

SIZE = 200
MESSAGES, QUICK_MESSAGES = 1_000_000, 300_000

INGEST = Scenario("archive-ingest", "an archive takes in, 200 B", "messages/s", Comparison.AT_LEAST)
ALONE = Scenario("archive-store", "its store alone, and sealed", "messages/s", Comparison.AT_LEAST)
ARROW = Scenario("replay-arrow", "read as Arrow batches", "messages/s", Comparison.AT_LEAST)
OBJECTS = Scenario("replay-objects", "read as messages", "messages/s", Comparison.AT_LEAST)
SCENARIOS = (INGEST, ALONE, ARROW, OBJECTS)
OF_THE_STORE = {"fill": ALONE, "arrow": ARROW, "objects": OBJECTS}


def run(plan: Plan, book: Book, folder: Path) -> Iterator[str]:
    messages = QUICK_MESSAGES if plan.quick else MESSAGES
    if plan.wants(INGEST.name):
        with book.measuring(INGEST.name):
            take_in(folder, messages, plan, book)
        yield INGEST.name
    names = [scenario.name for scenario in OF_THE_STORE.values()]
    if not plan.wants(*names):
        return
    with book.measuring(*names):
        for turn in range(plan.rounds):
            for task, scenario in OF_THE_STORE.items():
                pause(plan)
                figures = run_client("store", task, folder / f"store-{turn}", messages)
                book.enter(scenario.name, Side.RECADO, Sample(figures["rate"], figures))
    yield from (name for name in names if plan.wants(name))


def take_in(folder: Path, messages: int, plan: Plan, book: Book) -> None:
    """Each archive has been there once, so that its queue exists; then all is published without it."""
    archives = {f"feed-{turn}": folder / f"archive-{turn}" for turn in range(plan.rounds)}
    try:
        with peers.recado(data=folder / "ingest-broker") as server:
            with ExitStack() as stack:
                been = [
                    stack.enter_context(started("archive", server.url, feed, place))
                    for feed, place in archives.items()
                ]
                for archive in been:
                    archive.until_ready()
            for feed, place in archives.items():
                run_client("feed", "publish", server.url, feed, messages, SIZE)
                pause(plan)
                figures = run_client("archive", server.url, feed, place, messages)
                book.enter(INGEST.name, Side.RECADO, Sample(figures["rate"], figures))
    except peers.PeerStartError as error:
        raise NotMeasuredError(str(error).splitlines()[0]) from error
