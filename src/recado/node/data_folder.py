"""The data folder of a node: what is in it, and the ledger on it.

DIR/LOCK        held while a node runs
DIR/BALLAST     of no use but for the room it takes up: see recado.journal.disk_space
DIR/journal/    the journal of all queues
DIR/streams/N/  the journal of a stream, by the number of its queue
"""

from __future__ import annotations

import logging
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
    """A data folder that is ours until `release`."""

    def __init__(self, data: str) -> None:
        """Raises `FolderInUseError` if another node has it."""
        folder = Path(data)
        self._folder = FolderDisk(folder)
        self._folder.lock()
        self.store = JournalStore(
            Journal(FolderDisk(folder / JOURNAL_FOLDER)), DiskStreamFolders(folder / STREAMS_FOLDER)
        )

    def recover(self, broker: Broker, now: int) -> None:
        """Make a new broker what it was; raises `CorruptJournalError` if what was safe is not there any more."""
        restore_broker(self.store, broker, now)
        cut = self.store.truncated_bytes
        if cut:
            log.warning(
                "the last %d bytes of the journal were not whole: nobody was told of them", cut
            )

    def attach(self, server: Server, min_free_bytes: int) -> None:
        """From now on all that is kept is written at the end of each turn."""
        server.committer = Committer(
            self.store,
            server.loop,
            server.fail,
            disk_space=DiskSpace(self._folder, min_free_bytes),
            on_full=server.check_resources,
            run_in_turn=server.run_in_turn,
        )

    def free_bytes(self) -> int:
        """Bytes that are left on the disk."""
        return self._folder.free_bytes()

    def journal_bytes(self) -> int:
        return sum(segment.end - segment.base for segment in self.store.journal.segments)

    def release(self) -> None:
        """Let others have the folder; the ledger is closed by then."""
        self._folder.close()
