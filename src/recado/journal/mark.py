"""The durable mark: the journal position up to which everything was once known to be on disk.

    | position u64 | crc32 u32 |

Recovery needs it to tell two kinds of damage apart. Damage before the mark is bit rot, because the record had
been synced. Damage after it may be a torn write: the process or the power failed before the sync, so the record
was never confirmed to a client.

The mark is written after each sync that made records durable, but the mark file itself is synced only before
segments are dropped. Otherwise the operating system writes it back in its own time; a process that is killed
does not lose it. The mark has a file of its own so that a sync of the segment does not include it. If the mark
were in the header of the segment, each sync would write to a second place of the file, and take 7 % longer for
150 bytes and 50 % longer for 20 kB.

The header of a segment file has a mark, too, which is written once: the position that was durable when the file
was created (record.py). Recovery uses the largest of all marks (`known_durable_position`).
"""

from __future__ import annotations

import contextlib

from .checksum import crc32
from .disk import Disk, DiskFile

MARK_FILE = "MARK"
MARK_BYTES = 12


class DurableMark:
    """Reads and writes the mark file of a journal."""

    def __init__(self, disk: Disk) -> None:
        self._file: DiskFile = disk.open(MARK_FILE, create=True)

    def read(self) -> int:
        """Return the position, or 0 if the file has no valid mark."""
        content = self._file.read(0, MARK_BYTES)
        position = int.from_bytes(content[:8], "little")
        return position if content == _encode(position) else 0

    def write(self, position: int) -> None:
        # An older mark is correct too: it only proves less.
        with contextlib.suppress(OSError):
            self._file.write(0, _encode(position))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _encode(position: int) -> bytes:
    encoded = position.to_bytes(8, "little")
    return encoded + crc32(encoded).to_bytes(4, "little")
