"""How far a reader of a feed has come, and which rows are between two such places.

    {"archive": "7f…", "next": 120000, "vector": {"publisher": 57, …}}

An offset is of one archive; the vector, of each publisher the last sequence that was had, is the same
everywhere. So a reader that finds another archive than the one it knows (the old one is lost, or was begun
anew) goes on by its vector, and the place that it notes has one thing more: what of the new archive's rows it
must `skip`, because it has had them, until it is past all of them.

O1  `vector` is all that was had, or was before the beginning; it only grows.
O2  A row is between two places if its sequence is behind the first vector, and its offset before `next` of the
    second; within one archive these are the offsets in between, but for those to be skipped.
O3  Equal places are equal texts, for by that Spark tells whether there is anything new.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Self

import msgspec

from recado.feeds.archive.archive import JournalExtent
from recado.feeds.archive.follower import ArchiveFollower, LastSequences

from .errors import DataLossError


class FeedPosition(msgspec.Struct, frozen=True):
    archive: str
    next: int
    vector: LastSequences
    skip: LastSequences = {}

    @classmethod
    def from_json(cls, noted: Mapping[str, Any]) -> Self:
        """As Spark gives it back."""
        return msgspec.convert(noted, cls)

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it."""
        known: dict[str, Any] = {
            "archive": self.archive,
            "next": self.next,
            "vector": dict(sorted(self.vector.items())),
        }
        return known | ({"skip": dict(sorted(self.skip.items()))} if self.skip else {})


class RowRange(NamedTuple):
    """Rows of an archive: their offsets, and between which sequences of their publishers they are."""

    start: int
    stop: int
    skip: LastSequences = {}  # noqa: RUF012 (of a named tuple, and never changed)
    """Rows up to these are left out."""
    until: LastSequences | None = None
    """Rows behind these are left out, too."""


class ReadTask(NamedTuple):
    """Rows that one task reads."""

    row_range: RowRange
    extent: JournalExtent


def merge_vectors(one: Mapping[str, int], other: Mapping[str, int]) -> LastSequences:
    found = dict(one)
    for publisher, last in other.items():
        found[publisher] = max(last, found.get(publisher, 0))
    return found


def position_at(archive: ArchiveFollower, offset: int) -> FeedPosition:
    """Where one begins that has had nothing of what comes."""
    return FeedPosition(archive.id, offset, archive.last_sequences_before(offset))


def position_after(
    archive: ArchiveFollower, start: FeedPosition, begin: RowRange, stop: int
) -> FeedPosition:
    """Where one is that was at `start` and has read on up to an offset of this archive."""
    vector = merge_vectors(start.vector, archive.last_sequences(begin.start, stop))
    skip: LastSequences = {}
    if begin.skip:
        passed = archive.last_sequences_before(stop)
        skip = {
            publisher: last
            for publisher, last in begin.skip.items()
            if passed.get(publisher, 0) < last
        }
    return FeedPosition(archive.id, stop, vector, skip)


def rows_from(
    archive: ArchiveFollower, start: FeedPosition, *, fail_on_data_loss: bool
) -> RowRange:
    """All rows from a place on. Raises DataLoss if some are gone, or would, if not told to go on."""
    if start.archive == archive.id:
        return RowRange(
            _start_offset(archive, start, fail_on_data_loss=fail_on_data_loss),
            archive.end_offset,
            start.skip,
        )
    if fail_on_data_loss:
        _check_vector(archive, start)
    return RowRange(
        max(archive.first_uncovered_offset(start.vector), archive.first_offset),
        archive.end_offset,
        start.vector,
    )


def _start_offset(archive: ArchiveFollower, start: FeedPosition, *, fail_on_data_loss: bool) -> int:
    if archive.first_offset <= start.next <= archive.end_offset:
        return start.next
    if fail_on_data_loss and start.next < archive.first_offset:
        raise DataLossError(
            f"the rows from offset {start.next} to {archive.first_offset - 1} of the feed {archive.feed} "
            f"were collected before this query had read them ({archive.path})"
        )
    if fail_on_data_loss:
        raise _older_archive_error(archive, start)
    return max(archive.first_offset, min(start.next, archive.end_offset))


def _older_archive_error(archive: ArchiveFollower, known: FeedPosition) -> DataLossError:
    return DataLossError(
        f"this query knows of rows up to offset {known.next}, and the archive ends at {archive.end_offset}: "
        f"{archive.path} is an older state of it"
    )


def _check_vector(archive: ArchiveFollower, start: FeedPosition) -> None:
    for publisher, last in archive.manifest.begin.items():
        had = start.vector.get(publisher, 0)
        if last > had:
            raise DataLossError(
                f"{archive.path} is another archive of the feed {archive.feed} than the one read so "
                f"far, and what it has begins behind sequence {last} of publisher {publisher}, "
                f"of which this query had {had}"
            )


def rows_between(
    archive: ArchiveFollower, start: FeedPosition, end: FeedPosition, *, fail_on_data_loss: bool
) -> RowRange:
    """The rows between two places: the same at each call, whichever archive of the feed is there (O2)."""
    begin = rows_from(archive, start, fail_on_data_loss=fail_on_data_loss)
    if end.archive == archive.id:
        if fail_on_data_loss and end.next > archive.end_offset:
            raise _older_archive_error(archive, end)
        return begin._replace(stop=max(begin.start, end.next))
    available = archive.last_sequences_before(archive.end_offset)
    missing = [
        publisher for publisher, last in end.vector.items() if available.get(publisher, 0) < last
    ]
    if missing and fail_on_data_loss:
        raise DataLossError(
            f"a batch that was planned with another archive is to be repeated, and {archive.path} has "
            f"not all of it: of publisher {missing[0]} it has {available.get(missing[0], 0)}, "
            f"not {end.vector[missing[0]]}"
        )
    return RowRange(begin.start, archive.end_offset, start.vector, end.vector)


def split_range(archive: ArchiveFollower, span: RowRange, count: int) -> list[ReadTask]:
    """Spans for so many tasks, as far as there are rows for them; all have as much to do.

    A span that begins within a row group has what is before it there decoded for nothing, at a tenth of what it
    costs Spark to take rows in: less than tasks that wait for a longer one.
    """
    rows = span.stop - span.start
    count = min(count, rows)
    cuts = [span.start + rows * each // count for each in range(count + 1)] if rows else []
    return [
        ReadTask(span._replace(start=low, stop=high), archive.journal_extent(low, high))
        for low, high in pairwise(cuts)
    ]
