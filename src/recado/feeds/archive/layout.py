"""The layout of an archive's folder, and the interface through which readers and the writer access it.

    LOCK                             held by the writer; readers ignore it
    ID                               32 hexadecimal digits: the unique id of the archive
    manifest.json                    lists the files of the archive (`manifest`)
    journal/                         rows that are in no Parquet file yet (`records`)
    data/date=YYYY-MM-DD/N-G.parquet sealed rows; N is the offset of the first one, G the generation
    views/N-G.parquet                views and acknowledgements up to the offset N

A name that ends in `.part` is a file that is being written, or was when its writer was killed.
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
    """Return the name of a Parquet file. Two files may begin with the same row if one has replaced the other;
    so the name contains the generation of the manifest that introduced it."""
    return f"{offset:0{_OFFSET_DIGIT_COUNT}d}-{generation}{PARQUET_SUFFIX}"


def format_date(time_us: int) -> str:
    """Return the day in UTC."""
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
    """The folders of an archive, each as a disk; a folder that does not exist is empty."""

    def disk(self, folder: str) -> ReadableDisk: ...

    def parquet(self, path: str) -> pa.NativeFile:
        """Open a file for pyarrow; the caller closes it."""
        ...

    def path(self, path: str) -> Path:
        """Return the full path, for messages."""
        ...


class ArchiveTree(ReadableTree, Protocol):
    def disk(self, folder: str) -> Disk:
        """Open a folder; create it if necessary."""
        ...

    def folders(self, under: str) -> list[str]: ...

    def remove_empty(self, folder: str) -> None:
        """Remove a folder if it is empty."""

    def capacity_bytes(self) -> int:
        """Size of the whole file system."""
        ...


class FolderTree:
    """A folder of the file system, for the writer of the archive."""

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
    """A file that is read at offsets."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, at)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)


class ReadOnlyDisk:
    """A folder of the file system that is never changed, not even by opening it."""

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
    """A folder of the file system, for readers of the archive."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def disk(self, folder: str) -> ReadOnlyDisk:
        return ReadOnlyDisk(self._root / folder)

    def parquet(self, path: str) -> pa.NativeFile:
        return pa.OSFile(str(self._root / path))

    def path(self, path: str) -> Path:
        return self._root / path
