"""The mark: up to which position everything was once known to be on disk.

    | position u64 | crc32 u32 |

Damage before the mark is rot. Behind it, it may be a write that the end of the process or of the power left
unfinished, and that nobody was told of.

It is written after each sync, and synced itself only before segments are dropped: else the system does that in
its own time, and the end of the process does it no harm. So it lies in a file of its own, where it costs a sync
nothing: in the header of the segment each sync would have a second place to write to, and take 7 % longer for
150 bytes, 50 % for 20 kB.
"""

from __future__ import annotations

import contextlib

from .checksum import crc32
from .disk import Disk, DiskFile

MARK_FILE = "MARK"
MARK_BYTES = 12


class DurableMark:
    def __init__(self, disk: Disk) -> None:
        self._file: DiskFile = disk.open(MARK_FILE, create=True)

    def read(self) -> int:
        """The position, or 0 if there is no whole mark."""
        found = self._file.read(0, MARK_BYTES)
        position = int.from_bytes(found[:8], "little")
        return position if found == _encode(position) else 0

    def write(self, position: int) -> None:
        with contextlib.suppress(OSError):  # nothing is wrong without it, only less is known
            self._file.write(0, _encode(position))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _encode(position: int) -> bytes:
    number = position.to_bytes(8, "little")
    return number + crc32(number).to_bytes(4, "little")
