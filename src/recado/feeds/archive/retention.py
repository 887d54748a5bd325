"""Retention: which files of an archive to delete, by age, number of messages and share of the disk.

Only whole files are deleted, the oldest first, so deleting leaves no gap between the remaining rows. Rows in the
journal always stay.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .manifest import DataFile, Manifest


class RetentionLimits(NamedTuple):
    """Retention limits; None means unlimited."""

    max_age: float | None = None
    """Seconds since the newest row of a file was stored."""
    max_messages: int | None = None
    """Number of newest messages to keep; the file that contains the oldest of them stays whole."""
    max_share: float | None = None
    """Maximum share of the disk for all files of the archive, from 0 to 1."""


NO_LIMITS: Final = RetentionLimits()


class RetentionReport(NamedTuple):
    """Result of applying the limits."""

    files: int
    """Files removed from the archive."""
    messages: int
    bytes: int
    removed: int
    """Files removed earlier that were deleted now, as their grace period has ended."""
    freed: int
    """Bytes of the deleted files."""
    first: int
    """The offset of the first remaining row."""


def select_expired(
    manifest: Manifest,
    limits: RetentionLimits,
    *,
    now: int,
    end: int,
    journal_bytes: int,
    capacity: int,
) -> tuple[DataFile, ...]:
    """Return the files beyond the limits at a time in µs; `end` is the offset after the last row."""
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
