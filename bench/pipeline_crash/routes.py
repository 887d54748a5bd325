"""What goes where in the job that is killed: three queries, and eight routes that are judged.

    archive ───────────┐
    with-ids ──────────┤          ┌─ the lake, a batch at a time, by recado.pipeline
    without-ids ───────┼─ lake ───┤
    forgotten ─────────┘          └─ the same, simply appended: rows of the archive only
                                  ┌─ once, which looks for duplicates among the last 100,000 ids
    archive ──── recado ── fanout ┤
                                  └─ narrow, which has room for one id
    archive ──── rabbitmq ─────────── again

Where once is promised, nothing may be there twice. On all other routes something must be: it is the same siege,
so if it finds no repeats there, it could not find them elsewhere. Three of these have a mechanism switched off:
`forgotten` has no window of ids, `appended` knows no batches, and the window of `narrow` is exceeded by each
batch. The others never promised it. Nothing is lost on any.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

URLS: Final = "urls.json"
"""The file, in the folder of a run, that says where the brokers are."""


class Query(Enum):
    LAKE = "lake"
    RECADO = "recado"
    RABBITMQ = "rabbitmq"


class Source(msgspec.Struct, frozen=True):
    """Of the query to the lake."""

    name: str
    broker: str = ""
    """Whose queue it is; or nothing: the archive."""
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
    """Of a query to a broker: an exchange, and what is bound to it."""

    broker: str
    exchange: str
    queues: tuple[str, ...]


TO_RECADO: Final = Target("recado", "to-recado", ("once", "narrow"))
TO_RABBITMQ: Final = Target("rabbitmq", "to-rabbitmq", ("again",))
TARGETS: Final = (TO_RECADO, TO_RABBITMQ)
WINDOWS: Final = {"once": 100_000, "narrow": 1}
"""Of ids, in queues that look for duplicates."""


class Route(msgspec.Struct, frozen=True):
    name: str
    once: bool
    """Whether once is promised; else repeats must be found, or the siege was none."""
    table: str = ""
    """Where it ends in the lake, and of which source its rows are."""
    source: str = ""
    broker: str = ""
    """Or whose queue it ends in."""
    queue: str = ""


WRITTEN: Final = "written"
APPENDED: Final = "appended"
ROUTES: Final = (
    Route("archive-lake", once=True, table=WRITTEN, source=ARCHIVE.name),
    Route("ids-lake", once=True, table=WRITTEN, source=WITH_IDS.name),
    Route("plain-lake", once=False, table=WRITTEN, source=WITHOUT_IDS.name),
    Route("archive-recado", once=True, broker="recado", queue="once"),
    Route("archive-rabbitmq", once=False, broker="rabbitmq", queue="again"),
    Route("archive-appended", once=False, table=APPENDED, source=ARCHIVE.name),
    Route("ids-forgotten", once=False, table=WRITTEN, source=FORGOTTEN.name),
    Route("archive-narrow", once=False, broker="recado", queue="narrow"),
)
