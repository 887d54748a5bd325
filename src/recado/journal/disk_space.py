"""The room that a disk still has, and some that is kept for the hour when there is none.

On a full disk nothing can be written, not even what would free some of it: that messages are settled. So a file
of no use, the ballast, takes up room while there is plenty, and is given up when there is no other.
"""

from __future__ import annotations

from .disk import Disk

BALLAST_FILE = "BALLAST"
BALLAST_BYTES = 16 << 20


class DiskSpace:
    def __init__(
        self, disk: Disk, min_free_bytes: int = 0, ballast_bytes: int = BALLAST_BYTES
    ) -> None:
        self._disk = disk
        self._min_free_bytes = min_free_bytes
        self._size = ballast_bytes
        self._has_ballast = BALLAST_FILE in disk.names()
        self.restore_ballast()

    def is_low(self) -> bool:
        return not self._has_ballast or self._disk.free_bytes() < self._min_free_bytes

    def restore_ballast(self) -> None:
        """Take up the ballast again, if it is gone and there is room for it."""
        if self._has_ballast:
            return
        try:
            file = self._disk.open(BALLAST_FILE, create=True)
        except OSError:  # there is not even room for its name
            return
        self._has_ballast = True
        try:
            file.reserve(self._size)
        except OSError:
            self.release_ballast()
        finally:
            file.close()

    def release_ballast(self) -> None:
        """There is no other room any more."""
        if self._has_ballast:
            self._has_ballast = False
            self._disk.remove(BALLAST_FILE)
