"""The room that a disk still has, and some that is kept for the hour when there is none.

On a full disk nothing can be written, not even what would free some of it: that messages are settled. So a file
of no use, the ballast, takes up room while there is plenty, and is given up when there is no other.
"""

from __future__ import annotations

from .disk import Disk

BALLAST = "BALLAST"
SIZE = 16 << 20


class Room:
    def __init__(self, disk: Disk, least_free: int = 0, size: int = SIZE) -> None:
        self._disk = disk
        self._least_free = least_free
        self._size = size
        self._has_ballast = BALLAST in disk.names()
        self.restore()

    def is_short(self) -> bool:
        return not self._has_ballast or self._disk.free() < self._least_free

    def restore(self) -> None:
        """Take up the ballast again, if it is gone and there is room for it."""
        if self._has_ballast:
            return
        try:
            file = self._disk.open(BALLAST, create=True)
        except OSError:  # there is not even room for its name
            return
        self._has_ballast = True
        try:
            file.reserve(self._size)
        except OSError:
            self.give_up()
        finally:
            file.close()

    def give_up(self) -> None:
        """There is no other room any more."""
        if self._has_ballast:
            self._has_ballast = False
            self._disk.remove(BALLAST)
