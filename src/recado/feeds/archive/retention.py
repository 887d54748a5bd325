"""Which files an archive lets go: by age, by number of messages, by share of the storage.

Whole files only, the oldest first, so that what is left has no gap. What is still in the journal always stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .manifest import DataFile, Manifest


class RetentionLimits(NamedTuple):
    """None is no limit."""

    max_age: float | None = None
    """Seconds since the last of a file's rows was stored."""
    max_messages: int | None = None
    """So many of the newest stay; the file in which they begin stays whole."""
    max_share: float | None = None
    """Of the storage on which the archive is, for all of its files."""


NO_LIMITS: Final = RetentionLimits()


class RetentionReport(NamedTuple):
    """What a collection did."""

    files: int
    """Files that are no part of the archive any more."""
    messages: int
    bytes: int
    removed: int
    """Files that were let go earlier, and whose grace period has ended: they are deleted."""
    freed: int
    """Bytes of these."""
    first: int
    """The offset of the first row that is left."""


def select_expired(
    manifest: Manifest,
    limits: RetentionLimits,
    *,
    now: int,
    end: int,
    journal_bytes: int,
    capacity: int,
) -> tuple[DataFile, ...]:
    """The files to let go at a time in µs, when the archive ends at the offset `end`."""
    messages = end - manifest.first
    size = journal_bytes + sum(file.bytes for file in manifest.files)
    count = 0
    for file in manifest.files:
        if not (
            _is_too_old(file, limits.max_age, now)
            or (limits.max_messages is not None and messages - file.rows >= limits.max_messages)
            or (limits.max_share is not None and size > limits.max_share * capacity)
        ):
            break
        count += 1
        messages -= file.rows
        size -= file.bytes
    return manifest.files[:count]


def _is_too_old(file: DataFile, max_age: float | None, now: int) -> bool:
    return max_age is not None and file.stored[1] < now - int(max_age * 1e6)
