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

from recado.feeds.archive.archive import Stretch
from recado.feeds.archive.following import Follower, Sequences

from .errors import DataLoss


class Place(msgspec.Struct, frozen=True):
    archive: str
    next: int
    vector: Sequences
    skip: Sequences = {}

    @classmethod
    def of(cls, noted: Mapping[str, Any]) -> Self:
        """As Spark gives it back."""
        return msgspec.convert(noted, cls)

    def noted(self) -> dict[str, Any]:
        """As Spark keeps it."""
        known: dict[str, Any] = {
            "archive": self.archive,
            "next": self.next,
            "vector": dict(sorted(self.vector.items())),
        }
        return known | ({"skip": dict(sorted(self.skip.items()))} if self.skip else {})


class Span(NamedTuple):
    """Rows of an archive: their offsets, and between which sequences of their publishers they are."""

    start: int
    stop: int
    skip: Sequences = {}  # noqa: RUF012 (of a named tuple, and never changed)
    """Rows up to these are left out."""
    until: Sequences | None = None
    """Rows behind these are left out, too."""


class Part(NamedTuple):
    """Rows that one task reads."""

    span: Span
    stretch: Stretch


def joined(one: Mapping[str, int], other: Mapping[str, int]) -> Sequences:
    found = dict(one)
    for who, last in other.items():
        found[who] = max(last, found.get(who, 0))
    return found


def place_at(follower: Follower, offset: int) -> Place:
    """Where one begins that has had nothing of what comes."""
    return Place(follower.id, offset, follower.sequences_before(offset))


def place_after(follower: Follower, start: Place, begin: Span, stop: int) -> Place:
    """Where one is that was at `start` and has read on up to an offset of this archive."""
    vector = joined(start.vector, follower.sequences(begin.start, stop))
    skip: Sequences = {}
    if begin.skip:
        passed = follower.sequences_before(stop)
        skip = {who: last for who, last in begin.skip.items() if passed.get(who, 0) < last}
    return Place(follower.id, stop, vector, skip)


def beginning(follower: Follower, start: Place, *, fail: bool) -> Span:
    """All rows from a place on. Raises DataLoss if some are gone, or would, if not told to go on."""
    if start.archive == follower.id:
        return Span(_within(follower, start, fail=fail), follower.end, start.skip)
    if fail:
        _check_vector(follower, start)
    return Span(max(follower.covered(start.vector), follower.first), follower.end, start.vector)


def _within(follower: Follower, start: Place, *, fail: bool) -> int:
    if follower.first <= start.next <= follower.end:
        return start.next
    if fail and start.next < follower.first:
        raise DataLoss(
            f"the rows from offset {start.next} to {follower.first - 1} of the feed {follower.feed} "
            f"were collected before this query had read them ({follower.path})"
        )
    if fail:
        raise _older(follower, start)
    return max(follower.first, min(start.next, follower.end))


def _older(follower: Follower, known: Place) -> DataLoss:
    return DataLoss(
        f"this query knows of rows up to offset {known.next}, and the archive ends at {follower.end}: "
        f"{follower.path} is an older state of it"
    )


def _check_vector(follower: Follower, start: Place) -> None:
    for who, last in follower.manifest.begin.items():
        had = start.vector.get(who, 0)
        if last > had:
            raise DataLoss(
                f"{follower.path} is another archive of the feed {follower.feed} than the one read so "
                f"far, and what it has begins behind sequence {last} of publisher {who}, "
                f"of which this query had {had}"
            )


def between(follower: Follower, start: Place, end: Place, *, fail: bool) -> Span:
    """The rows between two places: the same at each call, whichever archive of the feed is there (O2)."""
    begin = beginning(follower, start, fail=fail)
    if end.archive == follower.id:
        if fail and end.next > follower.end:
            raise _older(follower, end)
        return begin._replace(stop=max(begin.start, end.next))
    here = follower.sequences_before(follower.end)
    lacking = [who for who, last in end.vector.items() if here.get(who, 0) < last]
    if lacking and fail:
        raise DataLoss(
            f"a batch that was planned with another archive is to be repeated, and {follower.path} has "
            f"not all of it: of publisher {lacking[0]} it has {here.get(lacking[0], 0)}, "
            f"not {end.vector[lacking[0]]}"
        )
    return Span(begin.start, follower.end, start.vector, end.vector)


def parts(follower: Follower, span: Span, count: int) -> list[Part]:
    """Spans for so many tasks, as far as there are rows for them; all have as much to do.

    A span that begins within a row group has what is before it there decoded for nothing, at a tenth of what it
    costs Spark to take rows in: less than tasks that wait for a longer one.
    """
    rows = span.stop - span.start
    count = min(count, rows)
    cuts = [span.start + rows * each // count for each in range(count + 1)] if rows else []
    return [
        Part(span._replace(start=low, stop=high), follower.stretch(low, high))
        for low, high in pairwise(cuts)
    ]
