"""The history of a feed, read by `recado.table` and by `spark.read.parquet` from the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import recado
from bench.book import Book
from bench.pipeline.ground import Ground
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = 2_000_000
QUICK_ROWS: Final = 500_000
SCANS: Final = 4
"""Per sample: a single one takes half a second, and they differ by 20 %."""

TABLE: Final = Scenario(
    "table",
    "reading a feed's history",
    "s",
    Comparison.SHARE_OF_PEER,
    peer="spark.read.parquet",
    note="all columns of all rows of 100 B four times, into a sink that drops them",
)
SCENARIOS: Final = (TABLE,)


def run(plan: Plan, book: Book, ground: Ground) -> Iterator[str]:
    if not plan.wants(TABLE.name):
        return
    path = ground.archive(100, QUICK_ROWS if plan.quick else ROWS)
    files = [str(file) for file in sorted((path / "data").rglob("*.parquet"))]
    plain = ground.spark.read.option("basePath", str(path / "data"))
    sides: dict[Side, Callable[[], DataFrame]] = {
        Side.RECADO: lambda: recado.table(ground.spark, path=path)
    }
    if plan.with_peer:
        sides[Side.PEER] = lambda: plain.parquet(*files)
    for turn in range(1 + plan.rounds):
        for side, rows in sides.items():
            seconds = sum(ground.scan(rows()) for _ in range(SCANS))
            if turn:  # in the first Java compiles, for both
                book.enter(TABLE.name, side, Sample(seconds))
    yield TABLE.name
