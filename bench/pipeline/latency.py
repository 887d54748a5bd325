"""From the call that publishes a row to Spark's sink having it: broker, archive, stream and all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import recado.feeds
from bench.book import Book
from bench.pipeline.ground import Ground
from bench.plan import Plan
from bench.scenario import Sample, Side, limit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECONDS: Final = 30.0
QUICK_S: Final = 8.0
EACH: Final = 0.01  # seconds between rows
WARM: Final = 3  # batches that are not counted

LIVE: Final = limit("latency", "a live row, publisher to sink, p50", "ms")
SCENARIOS: Final = (LIVE,)


def run(plan: Plan, book: Book, ground: Ground) -> Iterator[str]:
    if not plan.wants(LIVE.name):
        return
    taken = lap(ground, ground.folder / "live", QUICK_S if plan.quick else SECONDS)
    each = -(-len(taken) // plan.rounds)
    for start in range(0, len(taken), each):
        part = taken[start : start + each]
        details = {"rows": float(len(part)), "worst": max(part) * 1e3}
        book.enter(LIVE.name, Side.RECADO, Sample(median(part) * 1e3, details))
    yield LIVE.name


def lap(ground: Ground, folder: Path, seconds: float) -> list[float]:
    """Seconds that each row took."""
    taken: list[float] = []

    def note(rows: DataFrame, batch: int) -> None:
        published = [row[0] for row in rows.selectExpr("unix_micros(timestamp)").collect()]
        now = time.time()
        if batch >= WARM:
            taken.extend(now - each / 1e6 for each in published)

    with (
        recado.Broker(port=0) as broker,
        recado.feeds.connect_blocking(broker.url) as link,
        link.archive("quotes", folder / "archive"),
    ):
        rows = ground.spark.readStream.format("recado").load(str(folder / "archive"))
        writer = rows.writeStream.foreachBatch(note)
        query = writer.option("checkpointLocation", str(ground.place())).start()
        try:
            stopping = threading.Event()
            feed = link.feed("quotes")
            deadline: float | None = None
            while deadline is None or time.monotonic() < deadline:
                feed.publish(b"x" * 100, key="PETR4")
                stopping.wait(EACH)
                if deadline is None and taken:
                    deadline = time.monotonic() + seconds
        finally:
            query.stop()
    return taken
