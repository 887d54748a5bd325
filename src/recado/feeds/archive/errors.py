"""What can be wrong with an archive. Every error names the file, and the place in it."""

from __future__ import annotations

from pathlib import Path


class ArchiveError(Exception):
    """An archive that cannot be used as it is."""


class CorruptArchiveError(ArchiveError):
    """What was safely on disk is there no more, or no longer as it was."""

    def __init__(self, file: Path | str, location: str, reason: str) -> None:
        super().__init__(f"{file} is damaged at {location}: {reason}")
        self.file = str(file)
        self.location = location
        self.reason = reason


class UnsupportedVersionError(ArchiveError):
    """The archive was written by a later release, and is whole as far as we can tell."""


class ArchiveNotFoundError(ArchiveError):
    """There is no archive in the folder."""


class ArchiveMismatchError(ArchiveError):
    """The folder holds the archive of another feed, or another archive of this one."""
