"""Unreadable row groups of Parquet files, and the messages that are missing because of them.

An archive with a damaged file continues with everything else. The unit is the row group: each has its own
checksums, so other groups of the file are served. The messages of a damaged group are read from its key columns
if those are intact; otherwise they are the messages of the file that no other row contains.
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
"""The columns that identify a message."""

Spans = dict[bytes, list[Span]]
"""Ranges of sequences by publisher."""


class FileDamage(NamedTuple):
    """Rows [first, end) of a file cannot be read: a row group, or the whole file if `group` is None."""

    file: DataFile
    group: int | None
    first: int
    end: int
    error: CorruptArchiveError

    @property
    def key(self) -> tuple[str, int | None]:
        return self.file.path, self.group


class MessageRun(NamedTuple):
    """Consecutive messages of one publisher in the rows from an offset on."""

    offset: int
    publisher: bytes
    first: int
    last: int


def find_damages(tree: ReadableTree, file: DataFile) -> list[FileDamage]:
    """Return the row groups of a file that cannot be read."""
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
    """Yield the runs in rows from an offset on, in order."""
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
    """Return the messages of the damaged rows; None if the key columns are damaged, too."""
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
    """Return all messages that the file can contain."""
    return {bytes.fromhex(publisher): [span] for publisher, span in file.publishers.items()}


def subtract_from(spans: Spans, publisher: bytes, first: int, last: int) -> None:
    """Remove first..last of a publisher from the spans."""
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
    """Remove messages that an intact row of the archive contains from the spans."""
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
        return  # its other rows cannot be read


def to_stored_batch(batch: MessageBatch, offset: int, stored: int) -> StoredBatch:
    """Return a batch in the form of a journal record at an offset."""
    block = batch.block
    return StoredBatch(
        stored, offset, block.count, batch.publisher, batch.first, batch.view, block.data
    )
