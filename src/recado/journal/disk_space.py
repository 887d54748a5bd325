"""The free space of a disk, and a reserve for the moment when there is none.

On a full disk nothing can be written, not even the settlement records that would free space. So a file
of zeros, the ballast, occupies some space while there is plenty. It is removed when the disk is full.
"""

from __future__ import annotations

from .disk import Disk

BALLAST_FILE = "BALLAST"
BALLAST_BYTES = 16 << 20


class DiskSpace:
    """Reports low disk space, and reserves the ballast."""

    def __init__(
        self, disk: Disk, min_free_bytes: int = 0, ballast_bytes: int = BALLAST_BYTES
    ) -> None:
        """Reserve the ballast. `is_low` reports less than `min_free_bytes` of free space."""
        self._disk = disk
        self._min_free_bytes = min_free_bytes
        self._ballast_bytes = ballast_bytes
        self._has_ballast = BALLAST_FILE in disk.names()
        self.restore_ballast()

    def is_low(self) -> bool:
        """Whether the ballast is used up or the free space is below its minimum."""
        return not self._has_ballast or self._disk.free_bytes() < self._min_free_bytes

    def restore_ballast(self) -> None:
        """Reserve the ballast again if it was removed and fits."""
        if self._has_ballast:
            return
        try:
            file = self._disk.open(BALLAST_FILE, create=True)
        except OSError:  # no space for a directory entry
            return
        self._has_ballast = True
        try:
            file.reserve(self._ballast_bytes)
        except OSError:
            self.release_ballast()
        finally:
            file.close()

    def release_ballast(self) -> None:
        """Remove the ballast, because the disk is full."""
        if self._has_ballast:
            self._has_ballast = False
            self._disk.remove(BALLAST_FILE)
