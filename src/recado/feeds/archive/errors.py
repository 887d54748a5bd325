"""Exceptions of archives. Every message names the file or folder; that of damage also the location in the file."""

from __future__ import annotations

from pathlib import Path

from ..errors import FeedError


class ArchiveError(FeedError):
    """An archive that cannot be used."""


class CorruptArchiveError(ArchiveError):
    """Data that was durable is missing or has changed."""

    def __init__(self, file: Path | str, location: str, reason: str) -> None:
        super().__init__(f"{file} is damaged at {location}: {reason}")
        self.file = str(file)
        self.location = location
        self.reason = reason


class UnsupportedVersionError(ArchiveError):
    """The archive was written by a later release; it is not damaged."""


class ArchiveNotFoundError(ArchiveError):
    """There is no archive in the folder."""


class ArchiveMismatchError(ArchiveError):
    """The folder contains the archive of another feed, or another archive of this feed."""
