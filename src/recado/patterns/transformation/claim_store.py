"""Where the bodies of claim checks are: in a folder, in an object store, or in memory.

A body is stored under the SHA-256 digest of its bytes, so storing it again, for a message that is delivered again,
changes nothing but its age.

CLS1  A body that was stored is durable, and whole: a store never shows part of one.
CLS2  `expire` never removes a body that is stored again at the same time.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from recado.journal.disk import FolderDisk

from ..errors import ClaimError
from ..extra import import_package

_PART_SUFFIX: Final = ".part"


class ClaimStore(Protocol):
    """Stores bodies by digest. Methods are called in threads."""

    def put(self, digest: str, body: bytes) -> None:
        """Store a body; it is durable on return."""

    def get(self, digest: str, size: int) -> bytes:
        """Return a body, or at most its first `size` + 1 bytes. Raises ClaimError if it is not there."""
        ...


class FolderClaimStore:
    """Bodies as files of a folder, which several machines may share. Files are synced to disk.

    Bodies stay until `expire` removes them: only the application knows when no message refers to them.
    """

    def __init__(self, folder: Path | str) -> None:
        self._disk = FolderDisk(folder)

    def put(self, digest: str, body: bytes) -> None:
        path = self._disk.folder / digest
        with suppress(FileNotFoundError), self._locked(fcntl.LOCK_SH):
            if path.stat().st_size == len(body):
                os.utime(path)  # so that `expire` does not remove it soon
                self._disk.sync_folder()  # another process may have stored it, and ended before its sync
                return
        part = f"{digest}.{secrets.token_hex(8)}{_PART_SUFFIX}"
        file = self._disk.open(part, create=True)
        try:
            file.write(0, body)
            file.sync()
        except BaseException:
            self._disk.remove(part)
            raise
        finally:
            file.close()
        with self._locked(fcntl.LOCK_SH):
            self._disk.rename(part, digest)
            self._disk.sync_folder()

    def get(self, digest: str, size: int) -> bytes:
        try:
            with (self._disk.folder / digest).open("rb") as file:
                return file.read(size + 1)
        except FileNotFoundError:
            raise _missing_error(digest, self._disk.folder) from None

    def expire(self, age: float) -> int:
        """Remove the bodies that were stored more than `age` seconds ago; return how many."""
        oldest = time.time() - age
        removed = 0
        for path in self._disk.folder.iterdir():
            with suppress(FileNotFoundError), self._locked(fcntl.LOCK_EX):
                if path.stat().st_mtime < oldest:
                    path.unlink()
                    removed += not path.name.endswith(_PART_SUFFIX)
        return removed

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        """Lock the folder, also against other processes (CLS2)."""
        descriptor = os.open(self._disk.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


class ObjectClaimStore:
    """Bodies as objects below a URI: `s3://bucket/prefix`, `gs://…`, `abfs://…`. Needs pyarrow.

    Credentials and region come from the environment, as for pyarrow; `?endpoint_override=HOST:PORT&scheme=http`
    selects another S3. Expire objects by a lifecycle rule of the bucket: storing a body again renews its age.
    """

    def __init__(self, uri: str) -> None:
        filesystem = import_package("pyarrow.fs", "feeds").FileSystem
        self._files, self._prefix = filesystem.from_uri(uri)
        self._uri = uri

    def put(self, digest: str, body: bytes) -> None:
        # The object exists when the stream is closed.
        with self._files.open_output_stream(f"{self._prefix}/{digest}") as file:
            file.write(body)

    def get(self, digest: str, size: int) -> bytes:
        try:
            with self._files.open_input_stream(f"{self._prefix}/{digest}") as file:
                body: bytes = file.read(size + 1)
                return body
        except FileNotFoundError:
            raise _missing_error(digest, self._uri.partition("?")[0]) from None


class MemoryClaimStore:
    """Bodies in memory, for tests."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, digest: str, body: bytes) -> None:
        self.bodies[digest] = body

    def get(self, digest: str, size: int) -> bytes:
        body = self.bodies.get(digest)
        if body is None:
            raise _missing_error(digest, "memory")
        return body[: size + 1]


def _missing_error(digest: str, where: object) -> ClaimError:
    return ClaimError(
        f"body {digest} is not in {where}: it has expired, or the store is another one"
    )
