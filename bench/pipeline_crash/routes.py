"""What goes where in the job that is killed: seven queries, and sixteen routes that are judged.

    archive ───────────┐          ┌─ Parquet, a batch at a time, by recado.pipeline: rows of the archive
    with-ids ──────────┤          │
    without-ids ───────┼─ lake ───┼─ Delta, likewise: rows of the queues
    forgotten ─────────┘          ├─ Iceberg, likewise: all rows
                                  ├─ Iceberg by a writer that has another name each time: rows of the archive
                                  ├─ Parquet that is simply appended to: rows of the archive
                                  └─ the feed `anew`, each batch by another publisher: rows of the archive
                                  ┌─ once, which looks for duplicates among the last 100,000 ids
    archive ──── recado ── fanout ┤
                                  └─ narrow, which has room for one id
    archive ──── rabbitmq ─────────── again
    archive ──── feed ─────────────── the feed `kept`
    archive ──── restored-FORMAT ──── Parquet, Delta and Iceberg, each by a pipeline of its own

Where once is promised, nothing may be there twice. On all other routes something must be: it is the same siege,
so if it finds no repeats there, it could not find them elsewhere. Five of these have a mechanism switched off:
`forgotten` has no window of ids, `appended` knows no batches, the window of `compact` is exceeded by each
batch, and nobody knows a batch again whose writer or publisher is another. The others never promised it.
Nothing is lost on any.

The checkpoints of the last three are sometimes replaced by older ones, as from a backup. Then a pipeline must
refuse to go on, and is begun again as its error says: with a new checkpoint and a new table.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

import msgspec


class Query(Enum):
    LAKE = "lake"
    RECADO = "recado"
    RABBITMQ = "rabbitmq"
    FEED = "feed"
    RESTORED_PARQUET = "restored-parquet"
    RESTORED_DELTA = "restored-delta"
    RESTORED_ICEBERG = "restored-iceberg"


class Source(msgspec.Struct, frozen=True):
    """Of the query to the lake."""

    name: str
    broker: str = ""
    """The broker of its queue; empty: the archive."""
    ids: bool = False
    """Whether its messages have them."""
    window: int | None = None
    """Of ids that are remembered, if it is not the default."""


ARCHIVE: Final = Source("archive")
WITH_IDS: Final = Source("with-ids", "rabbitmq", ids=True)
WITHOUT_IDS: Final = Source("without-ids", "recado")
FORGOTTEN: Final = Source("forgotten", "rabbitmq", ids=True, window=0)
QUEUES: Final = (WITH_IDS, WITHOUT_IDS, FORGOTTEN)
SOURCES: Final = (ARCHIVE, *QUEUES)


class Target(msgspec.Struct, frozen=True):
    """The exchange of a query to a broker, and its queues."""

    broker: str
    exchange: str
    queues: tuple[str, ...]


TO_RECADO: Final = Target("recado", "to-recado", ("once", "narrow"))
TO_RABBITMQ: Final = Target("rabbitmq", "to-rabbitmq", ("again",))
TARGETS: Final = {Query.RECADO: TO_RECADO, Query.RABBITMQ: TO_RABBITMQ}
WINDOWS: Final = {"once": 100_000, "narrow": 1}
"""Sizes of the deduplication windows of queues, in ids."""


class Route(msgspec.Struct, frozen=True):
    name: str
    once: bool
    """Whether once is promised; else repeats must be found, or the siege was none."""
    table: str = ""
    """Where it ends in the lake, and of which source its rows are."""
    source: str = ""
    broker: str = ""
    """Or the broker of the queue in which it ends."""
    queue: str = ""
    feed: str = ""
    """Or which feed, of recado."""


WRITTEN: Final = "written"
QUEUED: Final = "queued"
APPENDED: Final = "appended"
CATALOGUED: Final = "catalogued"
RENAMED: Final = "renamed"
"""Tables of the lake; the last two are Iceberg's."""
KEPT: Final = "kept"
ANEW: Final = "anew"
"""Feeds."""
RESTORED: Final = {
    Query.RESTORED_PARQUET: "parquet",
    Query.RESTORED_DELTA: "delta",
    Query.RESTORED_ICEBERG: "iceberg",
}
"""Queries whose checkpoints are restored, and the formats of their tables, which have the names of the queries.
"""
ROUTES: Final = (
    Route("archive-lake", once=True, table=WRITTEN, source=ARCHIVE.name),
    Route("ids-lake", once=True, table=QUEUED, source=WITH_IDS.name),
    Route("plain-lake", once=False, table=QUEUED, source=WITHOUT_IDS.name),
    Route("archive-recado", once=True, broker="recado", queue="once"),
    Route("archive-rabbitmq", once=False, broker="rabbitmq", queue="again"),
    Route("archive-appended", once=False, table=APPENDED, source=ARCHIVE.name),
    Route("ids-forgotten", once=False, table=QUEUED, source=FORGOTTEN.name),
    Route("archive-narrow", once=False, broker="recado", queue="narrow"),
    Route("archive-iceberg", once=True, table=CATALOGUED, source=ARCHIVE.name),
    Route("ids-iceberg", once=True, table=CATALOGUED, source=WITH_IDS.name),
    Route("archive-renamed", once=False, table=RENAMED, source=ARCHIVE.name),
    *(
        Route(f"archive-{query.value}", once=True, table=query.value, source=ARCHIVE.name)
        for query in RESTORED
    ),
    Route("archive-feed", once=True, feed=KEPT),
    Route("archive-anew", once=False, feed=ANEW),
)
_LEFT_OUT: Final = (
    CATALOGUED,
    RENAMED,
    Query.RESTORED_PARQUET.value,
    Query.RESTORED_ICEBERG.value,
)
FEWER: Final = tuple(
    each
    for each in ROUTES
    if each.table not in _LEFT_OUT and not each.feed and each.name != "ids-forgotten"
)
"""Still from an archive and from queues to a lake, and to both brokers, with each guarantee and one control:
Spark takes seconds to start each source and query."""


class Generation:
    """Where the current checkpoint and table of a query with restored checkpoints are.

    Both are begun anew together, by one change of a file: killed at any moment, they belong together.
    """

    def __init__(self, folder: Path, query: Query) -> None:
        self._folder = folder
        self._query = query
        self._file = folder / f"generation-{query.value}"

    @property
    def number(self) -> int:
        return int(self._file.read_text()) if self._file.exists() else 0

    @property
    def checkpoint(self) -> Path:
        return self._folder / "checkpoints" / self._query.value / str(self.number)

    @property
    def backup(self) -> Path:
        return self._folder / "backups" / self._query.value / str(self.number)

    @property
    def table(self) -> Path:
        return self._folder / "lake" / self._query.value / str(self.number)

    def begin_next(self) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(str(self.number + 1))
        part.replace(self._file)


def iceberg_table(name: str) -> str:
    """The name in the catalogue."""
    return f"siege.{name}"


class Layout(msgspec.Struct, frozen=True):
    """Of one run: where the brokers are, and which routes there are."""

    urls: dict[str, str]
    routes: tuple[Route, ...] = ROUTES

    @classmethod
    def read(cls, folder: Path) -> Layout:
        return msgspec.json.decode((folder / "layout.json").read_bytes(), type=cls)

    def write(self, folder: Path) -> None:
        (folder / "layout.json").write_bytes(msgspec.json.encode(self))

    @property
    def queues(self) -> list[Source]:
        """That are read from."""
        read = {route.source for route in self.routes}
        return [queue for queue in QUEUES if queue.name in read]

    @property
    def sources(self) -> list[Source]:
        return [ARCHIVE, *self.queues]

    @property
    def targets(self) -> dict[Query, Target]:
        ends = {(route.broker, route.queue) for route in self.routes}
        return {
            query: target
            for query, target in TARGETS.items()
            if all((target.broker, queue) in ends for queue in target.queues)
        }

    @property
    def queries(self) -> list[Query]:
        feed = [Query.FEED] if KEPT in self.feeds else []
        return [Query.LAKE, *self.targets, *feed, *self.restored]

    @property
    def restored(self) -> list[Query]:
        """Queries whose checkpoints are restored."""
        return [query for query in RESTORED if query.value in self.tables]

    @property
    def sinks(self) -> list[str]:
        """Exchanges, and the feed, that queries write to as streams."""
        exchanges = [target.exchange for target in self.targets.values()]
        return [*exchanges, *([KEPT] if KEPT in self.feeds else [])]

    @property
    def tables(self) -> set[str]:
        return {route.table for route in self.routes if route.table}

    @property
    def feeds(self) -> list[str]:
        return [route.feed for route in self.routes if route.feed]
