"""Where things are in the folder of an archive, and the port through which its writer reaches them.

    LOCK                             who writes; readers take no notice
    ID                               32 hexadecimal digits that name the archive, and no other
    manifest.json                    what belongs to the archive (`manifest`)
    journal/                         the rows that are in no Parquet file yet, in a journal (`records`)
    data/date=YYYY-MM-DD/N-G.parquet the others; N is the offset of the first row
    views/N-G.parquet                the views and who acknowledged them, up to the offset N

A name that ends in `.clip` is a file that is still being written, or was when its writer was killed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from recado.journal.disk import Disk, FolderDisk

MANIFEST_FILE = "manifest.json"
ID_FILE = "ID"
JOURNAL_FOLDER = "journal"
DATA_FOLDER = "data"
VIEWS_FOLDER = "views"
PART_SUFFIX = ".part"
PARQUET_SUFFIX = ".parquet"
_OFFSET_DIGIT_COUNT = 20


def data_folder(date: str) -> str:
    return f"{DATA_FOLDER}/date={date}"


def file_name(offset: int, generation: int) -> str:
    """Two files may begin with the same row when one took the place of the other; so the generation of the
    manifest that brought the file is in its name, too."""
    return f"{offset:0{_OFFSET_DIGIT_COUNT}d}-{generation}{PARQUET_SUFFIX}"


def format_date(time_us: int) -> str:
    """The day in UTC."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")


class ReadableFile(Protocol):
    def read(self, at: int, size: int) -> bytes: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class ReadableDisk(Protocol):
    """The part of a disk that readers need."""

    @property
    def folder(self) -> Path: ...

    def names(self) -> list[str]: ...

    def open(self, name: str) -> ReadableFile: ...


class ReadableTree(Protocol):
    """The folders of an archive, each as a disk; a folder that does not exist has no names."""

    def disk(self, folder: str) -> ReadableDisk: ...

    def parquet(self, path: str) -> pa.NativeFile:
        """A file to be read by pyarrow, to be closed by the caller."""
        ...

    def path(self, path: str) -> Path:
        """To be told when something is wrong with it."""
        ...


class ArchiveTree(ReadableTree, Protocol):
    def disk(self, folder: str) -> Disk:
        """It is made if there is none."""
        ...

    def folders(self, under: str) -> list[str]: ...

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if there is nothing in it."""

    def capacity_bytes(self) -> int:
        """Bytes of the whole storage on which it is."""
        ...


class FolderTree:
    """A folder of the file system, for the one who writes the archive."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def disk(self, folder: str) -> FolderDisk:
        return FolderDisk(self._root / folder)

    def folders(self, under: str) -> list[str]:
        parent = self._root / under
        if not parent.is_dir():
            return []
        return sorted(f"{under}/{each.name}" for each in parent.iterdir() if each.is_dir())

    def remove_empty(self, folder: str) -> None:
        with suppress(OSError):
            (self._root / folder).rmdir()

    def capacity_bytes(self) -> int:
        facts = os.statvfs(self._root)
        return facts.f_blocks * facts.f_frsize

    def parquet(self, path: str) -> pa.NativeFile:
        return pa.OSFile(str(self._root / path))

    def path(self, path: str) -> Path:
        return self._root / path


class ReadOnlyFile:
    """A file of the system, read at offsets."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, at)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class ReadOnlyDisk:
    """A folder of the file system in which nothing is changed, not even by opening it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        try:
            return sorted(path.name for path in self.folder.iterdir())
        except FileNotFoundError:
            return []

    def open(self, name: str) -> ReadOnlyFile:
        return ReadOnlyFile(self.folder / name)


class ReadOnlyTree:
    """A folder of the file system, for those who only read the archive."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def disk(self, folder: str) -> ReadOnlyDisk:
        return ReadOnlyDisk(self._root / folder)

    def parquet(self, path: str) -> pa.NativeFile:
        return pa.OSFile(str(self._root / path))

    def path(self, path: str) -> Path:
        return self._root / path
