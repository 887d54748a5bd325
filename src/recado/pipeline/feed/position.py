"""Positions of a stream in a feed, and the rows between two positions.

    {"archive": "7f…", "next": 120000, "vector": {"publisher": 57, …}}

An offset is valid within one archive. The vector has the last sequence read of each publisher and is valid in
every archive. A reader that finds another archive than the one it knows (the old one was lost, or was started
again) continues by its vector. Its next positions also have `skip`: the sequences that it has already read
and must skip in the new archive, until it is past all of them.

FP1  `vector` covers all rows that were read or are before the start; it only grows.
FP2  A row is between two positions if it is after the first and not after the second. Each of the two is
     decided by offset (`next`) if the position is of the archive that is read, and otherwise by sequence
     (`vector`), because offsets of two archives differ. Rows to `skip` are left out.
FP3  Equal positions have equal JSON, because Spark compares the text to find out whether there are new rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Self

import msgspec

from recado.feeds.archive.archive import JournalExtent
from recado.feeds.archive.follower import ArchiveFollower, LastSequences

from ..errors import DataLossError


class FeedPosition(msgspec.Struct, frozen=True):
    """How far a stream has read."""

    archive: str
    next: int
    vector: LastSequences
    skip: LastSequences = {}

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Self:
        """Convert an offset that Spark passes back."""
        return msgspec.convert(offset, cls)

    def to_json(self) -> dict[str, Any]:
        """Convert to an offset for Spark, with sorted keys (FP3)."""
        known: dict[str, Any] = {
            "archive": self.archive,
            "next": self.next,
            "vector": dict(sorted(self.vector.items())),
        }
        return known | ({"skip": dict(sorted(self.skip.items()))} if self.skip else {})


class RowRange(NamedTuple):
    """Rows of an archive by offset, with limits on the sequences of their publishers."""

    start: int
    stop: int
    skip: LastSequences = {}  # noqa: RUF012 (a field of a named tuple, never changed)
    """Rows up to these sequences are left out."""
    until: LastSequences | None = None
    """Rows after these sequences are left out."""


class ReadTask(NamedTuple):
    """The rows that one task reads, and the part of the archive that has them."""

    row_range: RowRange
    extent: JournalExtent


def merge_vectors(one: Mapping[str, int], other: Mapping[str, int]) -> LastSequences:
    """Return the larger sequence of each publisher."""
    merged = dict(one)
    for publisher, last in other.items():
        merged[publisher] = max(last, merged.get(publisher, 0))
    return merged


def position_at(archive: ArchiveFollower, offset: int) -> FeedPosition:
    """Return the position of a reader that starts at an offset."""
    return FeedPosition(archive.id, offset, archive.last_sequences_before(offset))


def position_after(
    archive: ArchiveFollower, start: FeedPosition, available: RowRange, stop: int
) -> FeedPosition:
    """Return the position of a reader that was at `start` and has read up to the offset `stop`."""
    vector = merge_vectors(start.vector, archive.last_sequences(available.start, stop))
    skip: LastSequences = {}
    if available.skip:
        reached = archive.last_sequences_before(stop)
        skip = {
            publisher: last
            for publisher, last in available.skip.items()
            if reached.get(publisher, 0) < last
        }
    return FeedPosition(archive.id, stop, vector, skip)


def rows_from(
    archive: ArchiveFollower, start: FeedPosition, *, fail_on_data_loss: bool
) -> RowRange:
    """Return all rows from a position on.

    Raises DataLossError if rows are missing and `fail_on_data_loss` is set.
    """
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
            f"were deleted before this query read them ({archive.path})"
        )
    if fail_on_data_loss:
        raise _older_archive_error(archive, start)
    return max(archive.first_offset, min(start.next, archive.end_offset))


def _older_archive_error(archive: ArchiveFollower, known: FeedPosition) -> DataLossError:
    return DataLossError(
        f"this query has read up to offset {known.next}, but the archive ends at {archive.end_offset}: "
        f"{archive.path} is an older copy of the archive"
    )


def _check_vector(archive: ArchiveFollower, start: FeedPosition) -> None:
    for publisher, last in archive.manifest.begin.items():
        last_read = start.vector.get(publisher, 0)
        if last > last_read:
            raise DataLossError(
                f"{archive.path} is another archive of the feed {archive.feed} than the one read "
                f"before. It starts after sequence {last} of publisher {publisher}, "
                f"but this query has read only up to {last_read}"
            )


def rows_between(
    archive: ArchiveFollower, start: FeedPosition, end: FeedPosition, *, fail_on_data_loss: bool
) -> RowRange:
    """Return the rows between two positions: the same at each call, in every archive of the feed (FP2)."""
    rows = rows_from(archive, start, fail_on_data_loss=fail_on_data_loss)
    if end.archive == archive.id:
        if fail_on_data_loss and end.next > archive.end_offset:
            raise _older_archive_error(archive, end)
        return rows._replace(stop=max(rows.start, end.next))
    available = archive.last_sequences_before(archive.end_offset)
    missing = [
        publisher for publisher, last in end.vector.items() if available.get(publisher, 0) < last
    ]
    if missing and fail_on_data_loss:
        raise DataLossError(
            f"a batch planned with another archive has to be repeated, but {archive.path} does "
            f"not have all its rows: of publisher {missing[0]} it has {available.get(missing[0], 0)}, "
            f"not {end.vector[missing[0]]}"
        )
    return RowRange(rows.start, archive.end_offset, start.vector, end.vector)


def split_range(archive: ArchiveFollower, row_range: RowRange, count: int) -> list[ReadTask]:
    """Split a range into at most `count` tasks of equal size.

    A task that starts within a row group also has to decode the rows of the group before its start. That costs
    a tenth of the time in which Spark processes these rows, less than waiting for one task that is longer than
    the others.
    """
    row_count = row_range.stop - row_range.start
    count = min(count, row_count)
    cuts = (
        [row_range.start + row_count * each // count for each in range(count + 1)]
        if row_count
        else []
    )
    return [
        ReadTask(row_range._replace(start=low, stop=high), archive.journal_extent(low, high))
        for low, high in pairwise(cuts)
    ]
