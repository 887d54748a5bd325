"""The data folder of a node, and the message store in it.

DIR/LOCK        names the process that has locked the folder
DIR/BALLAST     reserves disk space: see `recado.journal.disk_space`
DIR/journal/    the journal of all queues
DIR/streams/N/  the journal of a stream, by the id of its queue
DIR/feeds/NAME/ the archive of a feed without a folder of its own: see `recado.node.archives`
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from recado.broker.broker import Broker
from recado.journal.disk import FolderDisk
from recado.journal.disk_space import DiskSpace
from recado.journal.journal import Journal
from recado.server.committer import Committer
from recado.server.server import Server
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from recado.server.store.streams import DiskStreamFolders

log = logging.getLogger("recado.node")

JOURNAL_FOLDER, STREAMS_FOLDER = "journal", "streams"


class DataFolder:
    """The data folder of a node, locked until `release`."""

    def __init__(self, data: str) -> None:
        """Open and lock a folder, which is created if needed. Raises `FolderInUseError` if a node uses it."""
        folder = self.path = Path(data)
        self._folder = FolderDisk(folder)
        self._folder.lock()
        self.store = JournalStore(
            Journal(FolderDisk(folder / JOURNAL_FOLDER)), DiskStreamFolders(folder / STREAMS_FOLDER)
        )

    def recover(self, broker: Broker, now: int) -> None:
        """Restore the stored state to a new broker.

        Raises `CorruptJournalError` if a durable record is missing or damaged.
        """
        restore_broker(self.store, broker, now)
        truncated_bytes = self.store.truncated_bytes
        if truncated_bytes:
            log.warning(
                "journal truncated: removed an incomplete write that was never confirmed (bytes=%d)",
                truncated_bytes,
            )

    def attach(self, server: Server, min_free_bytes: int) -> None:
        """Make the server commit the store, and block publishers below `min_free_bytes` of free disk space."""
        committer = Committer(
            self.store,
            server.loop,
            server.fail,
            disk_space=DiskSpace(self._folder, min_free_bytes),
            on_full=server.check_resources,
            run_in_turn=server.run_in_turn,
        )
        server.attach_committer(committer)

    def free_bytes(self) -> int:
        """Return the free space of the disk."""
        return self._folder.free_bytes()

    def journal_bytes(self) -> int:
        return _size_of(self.store.journal)[0]

    def journals(self) -> Iterator[tuple[str, int, int]]:
        """Yield kind ("queues" or "streams"), size in bytes and number of files of each journal."""
        yield "queues", *_size_of(self.store.journal)
        if self.store.streams is not None:
            for journal in self.store.streams.journals():
                yield "streams", *_size_of(journal)

    def release(self) -> None:
        """Unlock the folder; the store must be closed before."""
        self._folder.close()


def _size_of(journal: Journal) -> tuple[int, int]:
    """Return the size of a journal in bytes, and the number of its files."""
    segments = journal.segments
    return sum(segment.end - segment.base for segment in segments), len(segments)
