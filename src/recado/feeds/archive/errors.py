"""What can be wrong with an archive. Every error names the file, and the place in it."""

from __future__ import annotations

from pathlib import Path


class ArchiveError(Exception):
    """An archive that cannot be used as it is."""


class CorruptArchive(ArchiveError):
    """What was safely on disk is there no more, or no longer as it was."""

    def __init__(self, file: Path | str, place: str, what: str) -> None:
        super().__init__(f"{file} is damaged at {place}: {what}")
        self.file = str(file)
        self.place = place
        self.what = what


class UnknownVersion(ArchiveError):
    """The archive was written by a later release, and is whole as far as we can tell."""


class NoArchive(ArchiveError):
    """There is no archive in the folder."""


class WrongArchive(ArchiveError):
    """The folder holds the archive of another feed, or another archive of this one."""
