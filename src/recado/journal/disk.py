"""The port to the disk (`Disk`, `DiskFile`), its implementation on a folder, and its in-memory twin.

The port has only the operations that a log needs. Files are written at offsets. A write is durable only after
`sync` of the file; creating, renaming or removing a file is durable only after `sync_folder`.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from .record import JournalError

LOCK_FILE = "LOCK"
# macOS has neither fdatasync nor posix_fallocate.
_sync_descriptor = getattr(os, "fdatasync", os.fsync)
_reserve_descriptor = getattr(os, "posix_fallocate", None)


class DiskFile(Protocol):
    """An open file of a `Disk`."""

    def write(self, at: int, *parts: bytes) -> None:
        """Write all parts at an offset, or raise `OSError`. A failed write may leave some bytes behind."""

    def read(self, at: int, size: int) -> bytes:
        """Return up to `size` bytes from an offset on; fewer at the end of the file."""
        ...

    def size(self) -> int: ...

    def reserve(self, size: int) -> None:
        """Extend the file with zeros to `size` bytes and allocate them. Raises `OSError` on a full disk."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A folder of files without subfolders."""

    @property
    def folder(self) -> Path:
        """The path, for error messages."""
        ...

    def names(self) -> list[str]: ...

    def open(self, name: str, *, create: bool = False) -> DiskFile: ...

    def remove(self, name: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def sync_folder(self) -> None:
        """Make the creation, renaming and removal of files durable."""

    def free_bytes(self) -> int: ...

    def lock(self) -> None:
        """Lock the folder for this process until `close`, or raise `FolderInUseError`."""

    def close(self) -> None:
        """Release the lock of the folder, if `lock` took it."""


class FolderInUseError(OSError, JournalError):
    """The folder is locked, by another process or by another `Disk` of this one."""

    def __init__(self, folder: object, owner: str = "") -> None:
        process = f"process {owner}" if owner else "another node"
        message = f"{folder} is in use by {process}; stop it first, or choose another folder"
        super().__init__(errno.EBUSY, message)


def _with_path(error: OSError, path: Path) -> OSError:
    """Return the same error with a path. The system does not name the file for calls with a descriptor."""
    return OSError(error.errno, error.strerror, str(path))


@contextmanager
def _adding_path(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _with_path(error, path) from None


class FolderFile:
    """An open file of a `FolderDisk`. Errors name its path, except those of `read`, `size` and `close`."""

    __slots__ = ("_descriptor", "_path", "_was_truncated")

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._was_truncated = False

    def write(self, at: int, *parts: bytes) -> None:
        try:
            done = os.pwritev(self._descriptor, parts, at)
            if done < sum(map(len, parts)):
                data = memoryview(b"".join(parts))
                while done < len(data):
                    done += os.pwrite(self._descriptor, data[done:], at + done)
        except OSError as error:
            raise _with_path(error, self._path) from None

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._descriptor, size, at)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def reserve(self, size: int) -> None:
        if _reserve_descriptor is not None:
            with _adding_path(self._path):
                _reserve_descriptor(self._descriptor, 0, size)

    def truncate(self, size: int) -> None:
        with _adding_path(self._path):
            os.ftruncate(self._descriptor, size)
        self._was_truncated = True

    def sync(self) -> None:
        # fdatasync covers the metadata that is needed to read the data, but not a smaller file size.
        with _adding_path(self._path):
            (os.fsync if self._was_truncated else _sync_descriptor)(self._descriptor)
        self._was_truncated = False

    def close(self) -> None:
        os.close(self._descriptor)


class FolderDisk:
    """Files in a folder of the file system, which is created if it does not exist."""

    def __init__(self, folder: Path | str) -> None:
        self.folder: Path = Path(folder)
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            # Without its directory entry, a crash would lose the folder and everything synced in it.
            _sync_folder(path.parent)
        self._lock: int | None = None

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def open(self, name: str, *, create: bool = False) -> FolderFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        path = self.folder / name
        return FolderFile(os.open(path, flags, 0o600), path)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def rename(self, old: str, new: str) -> None:
        (self.folder / old).replace(self.folder / new)

    def sync_folder(self) -> None:
        _sync_folder(self.folder)

    def free_bytes(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def lock(self) -> None:
        # The lock is on the folder itself, which an operator does not delete to get rid of a lock. The file
        # only names the process that holds it.
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        owner = self.folder / LOCK_FILE
        try:
            # Unlike the existence of a file, flock ends with the process, however that ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            owner.write_text(f"{os.getpid()}\n")
        except BlockingIOError:
            os.close(descriptor)
            pid = owner.read_bytes()[:20] if owner.is_file() else b""
            raise FolderInUseError(self.folder, pid.decode("ascii", "replace").strip()) from None
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _adding_path(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class MemoryFile:
    """An open file of a `MemoryDisk`."""

    __slots__ = ("_content",)

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def write(self, at: int, *parts: bytes) -> None:
        data = b"".join(parts)
        self.reserve(at)
        self._content[at : at + len(data)] = data

    def read(self, at: int, size: int) -> bytes:
        return bytes(self._content[at : at + size])

    def size(self) -> int:
        return len(self._content)

    def reserve(self, size: int) -> None:
        self._content.extend(bytes(max(0, size - len(self._content))))

    def truncate(self, size: int) -> None:
        del self._content[size:]

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryDisk:
    """A folder in memory: never full, never slow, never failing, and gone with the process."""

    folder = Path()

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self._locked = False

    def names(self) -> list[str]:
        return sorted(self.files)

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        if name not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            self.files[name] = bytearray()
        return MemoryFile(self.files[name])

    def remove(self, name: str) -> None:
        del self.files[name]

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)

    def sync_folder(self) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 62

    def lock(self) -> None:
        if self._locked:
            raise FolderInUseError("this memory")
        self._locked = True

    def close(self) -> None:
        self._locked = False
