"""Searches an archive for an operator: what would a selector have matched, or what was stored since a time?

A search runs in a thread beside an archive that stores messages. It reads a limited number of rows, in small pieces
with pauses, and ends after some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from .archive import Archive, apply_selector
from .messages import ArchivedMessage, read_messages
from .store import throttle

if TYPE_CHECKING:
    from recado.selector import Selector

PIECE_ROWS_COUNT: Final = 1_000
READ_BYTES: Final = 1 << 20
DURATION_MAX_S: Final = 5.0


class ArchiveSearch(Struct, frozen=True):
    """Which rows to look at, and how many of the matching messages to return."""

    selector: Selector | None
    since_us: int | None
    """Rows with this timestamp or a later one, by the publishers' clocks; None: the last rows."""
    rows_max: int
    count_max: int


class SearchResult(Struct):
    """What a search has found."""

    folder: str
    first_offset: int
    """Of the rows that were looked at."""
    end_offset: int
    """The offset after them."""
    examined: int = 0
    matched: int = 0
    is_complete: bool = True
    """Whether all rows were looked at that were to be."""
    messages: list[ArchivedMessage] = []


def search_archive(folder: Path | str, wanted: ArchiveSearch) -> SearchResult:
    """Search the rows on disk. Raises `ArchiveError`."""
    deadline = time.monotonic() + DURATION_MAX_S
    with Archive.open(folder) as archive:
        start = _find_start(archive, wanted)
        found = SearchResult(str(folder), start, start, messages=[])
        for piece in throttle(_read_pieces(archive, start)):
            if found.examined + piece.num_rows > wanted.rows_max or time.monotonic() > deadline:
                found.is_complete = False
                break
            found.end_offset += piece.num_rows
            if wanted.since_us is not None:
                since = pa.scalar(wanted.since_us, pa.timestamp("us", tz="UTC"))
                piece = piece.filter(pc.greater_equal(piece.column("timestamp"), since))
            found.examined += piece.num_rows
            if wanted.selector is not None:
                piece = apply_selector(piece, wanted.selector, archive.feed)
            found.matched += piece.num_rows
            missing = wanted.count_max - len(found.messages)
            if missing > 0 and piece.num_rows:
                found.messages += read_messages(piece.slice(0, missing))
    return found


def _find_start(archive: Archive, wanted: ArchiveSearch) -> int:
    if wanted.since_us is None:
        return max(archive.first_offset, archive.end_offset - wanted.rows_max)
    for file in archive.manifest.files:
        if file.timestamps[1] >= wanted.since_us:
            return file.first
    return archive.manifest.tail.offset


def _read_pieces(archive: Archive, start: int) -> Iterator[pa.RecordBatch]:
    for table in archive.dictionary_batches(start, max_bytes=READ_BYTES):
        for first in range(0, table.num_rows, PIECE_ROWS_COUNT):
            yield table.slice(first, PIECE_ROWS_COUNT)
