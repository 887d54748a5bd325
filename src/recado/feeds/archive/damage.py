"""Row groups of Parquet files that cannot be read, and which messages are missing because of them.

An archive with a damaged file goes on with everything else. Row groups are the unit: each has checksums of its
own, so the other groups of the file are served. Which messages a damaged group had is read from the columns
that name them, if those are sound; otherwise they are the messages of the file that no other row has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..boundary import MessageBatch
from ..vector import Span, merge_spans, subtract_span
from .batches import MessageKeys, read_keys
from .columns import BATCH_COLUMNS
from .errors import CorruptArchiveError
from .files import ParquetReader
from .layout import ReadableTree
from .manifest import DataFile, Manifest
from .records import StoredBatch, StoredEntry

KEY_COLUMNS = ("publisher", "view", "sequence")
"""The columns that name a message."""

Spans = dict[bytes, list[Span]]
"""Of each publisher, ranges of sequences."""


class FileDamage(NamedTuple):
    """Rows [first, end) of a file cannot be read: a row group, or with `group` None the whole file."""

    file: DataFile
    group: int | None
    first: int
    end: int
    error: CorruptArchiveError

    @property
    def key(self) -> tuple[str, int | None]:
        return self.file.path, self.group


class MessageRun(NamedTuple):
    """Rows from an offset on that have consecutive messages of one publisher."""

    offset: int
    publisher: bytes
    first: int
    last: int


def find_damages(tree: ReadableTree, file: DataFile) -> list[FileDamage]:
    """The row groups of a file that cannot be read."""
    try:
        reader = ParquetReader(tree, file)
    except CorruptArchiveError as error:
        return [FileDamage(file, None, file.first, file.end, error)]
    except FileNotFoundError:
        return [missing_file(tree, file)]
    damages = []
    with reader:
        first = file.first
        for number, rows in enumerate(reader.group_rows):
            try:
                reader.read_group(number)
            except CorruptArchiveError as error:
                damages.append(FileDamage(file, number, first, first + rows, error))
            first += rows
    return damages


def missing_file(tree: ReadableTree, file: DataFile) -> FileDamage:
    error = CorruptArchiveError(tree.path(file.path), "byte 0", "the file is missing")
    return FileDamage(file, None, file.first, file.end, error)


def find_runs(keys: MessageKeys, offset: int) -> Iterator[MessageRun]:
    """What rows from an offset on have, in their order."""
    if not len(keys.sequence):
        return
    ends = (np.diff(keys.publisher) != 0) | (np.diff(keys.sequence) != 1)
    begins = np.flatnonzero(np.concatenate(([True], ends)))
    stops = np.append(begins[1:], len(keys.sequence))
    for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True):
        publisher = keys.publishers[keys.publisher[begin]]
        first = int(keys.sequence[begin])
        yield MessageRun(offset + begin, publisher, first, first + stop - begin - 1)


def read_runs(tree: ReadableTree, damage: FileDamage) -> list[MessageRun] | None:
    """What the damaged rows had; None if the columns that say so are damaged, too."""
    if damage.group is None:
        return None
    try:
        with ParquetReader(tree, damage.file, BATCH_COLUMNS) as reader:
            keys = read_keys(reader.read_group(damage.group, KEY_COLUMNS))
    except CorruptArchiveError:
        return None
    return list(find_runs(keys, damage.first))


def merge_runs(runs: Iterable[MessageRun]) -> Spans:
    spans: Spans = {}
    for run in runs:
        spans.setdefault(run.publisher, []).append((run.first, run.last))
    return {publisher: merge_spans(each) for publisher, each in spans.items()}


def file_spans(file: DataFile) -> Spans:
    """All that it can have had."""
    return {bytes.fromhex(publisher): [span] for publisher, span in file.publishers.items()}


def subtract_from(spans: Spans, publisher: bytes, first: int, last: int) -> None:
    """Take first..last of a publisher out of the spans."""
    if publisher in spans:
        left = subtract_span(spans[publisher], first, last)
        if left:
            spans[publisher] = left
        else:
            del spans[publisher]


def subtract_present(
    spans: Spans,
    tree: ReadableTree,
    manifest: Manifest,
    tail: Iterable[tuple[int, StoredEntry]],
    damaged: Collection[tuple[str, int | None]],
) -> None:
    """Take out of the spans what a row of the archive has; damaged row groups have none."""
    for file in manifest.files:
        if spans and (file.path, None) not in damaged and _overlaps(spans, file):
            _subtract_file(spans, tree, file, damaged)
    for _, stored in tail if spans else ():
        if isinstance(stored, StoredBatch):
            subtract_from(spans, stored.publisher, stored.first, stored.last)


def _overlaps(spans: Spans, file: DataFile) -> bool:
    return any(
        low <= last and first <= high
        for publisher, (first, last) in file.publishers.items()
        for low, high in spans.get(bytes.fromhex(publisher), ())
    )


def _subtract_file(
    spans: Spans,
    tree: ReadableTree,
    file: DataFile,
    damaged: Collection[tuple[str, int | None]],
) -> None:
    try:
        with ParquetReader(tree, file, BATCH_COLUMNS) as reader:
            for number in range(len(reader.group_rows)):
                if (file.path, number) not in damaged:
                    for run in find_runs(read_keys(reader.read_group(number, KEY_COLUMNS)), 0):
                        subtract_from(spans, run.publisher, run.first, run.last)
    except (CorruptArchiveError, FileNotFoundError):
        return  # the rest of it is not there


def to_stored_batch(batch: MessageBatch, offset: int, stored: int) -> StoredBatch:
    """A batch as a record of the journal at an offset."""
    block = batch.block
    return StoredBatch(
        stored, offset, block.count, batch.publisher, batch.first, batch.view, block.data
    )
