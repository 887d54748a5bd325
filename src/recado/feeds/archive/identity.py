"""The id of an archive: an offset is only meaningful together with it.

An archive that is created anew in the same folder, under the same name, is a different one: its offsets name
other rows. The id is in a file of its own, because earlier releases would reject a manifest with an unknown
field.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from recado.journal.disk import Disk

from .layout import ID_FILE, PART_SUFFIX, ReadableDisk
from .manifest import Manifest

_ID_LINE: Final = re.compile(rb"([0-9a-f]{32})\n")


def read(disk: ReadableDisk, manifest: Manifest) -> str:
    """Return the id of an archive, or its name if it has none: an earlier release created it, and no writer has
    opened it since."""
    found = _read(disk)
    return manifest.archive if found is None else found


def ensure(disk: Disk) -> None:
    """Create an id if there is none; durable when this returns."""
    if _read(disk) is not None:
        return
    for name in (ID_FILE, ID_FILE + PART_SUFFIX):
        if name in disk.names():
            disk.remove(name)
    file = disk.open(ID_FILE + PART_SUFFIX, create=True)
    try:
        file.write(0, secrets.token_hex(16).encode() + b"\n")
        file.sync()
    finally:
        file.close()
    disk.rename(ID_FILE + PART_SUFFIX, ID_FILE)
    disk.sync_folder()


def _read(disk: ReadableDisk) -> str | None:
    try:
        file = disk.open(ID_FILE)
    except FileNotFoundError:
        return None
    try:
        found = _ID_LINE.fullmatch(file.read(0, file.size()))
    finally:
        file.close()
    return None if found is None else found[1].decode()
