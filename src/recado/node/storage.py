"""The data folder of a node: what is in it, and the ledger on it.

DIR/LOCK        held while a node runs
DIR/BALLAST     of no use but for the room it takes up: see recado.journal.room
DIR/journal/    the journal of all queues
DIR/streams/N/  the journal of a stream, by the number of its queue
"""

from __future__ import annotations

import logging
from pathlib import Path

from recado.broker.broker import Broker
from recado.journal.disk import FolderDisk
from recado.journal.journal import Journal
from recado.journal.room import Room
from recado.server.committer import Committer
from recado.server.ledger.ledger import Ledger
from recado.server.ledger.recovery import recover
from recado.server.ledger.streams import RealFolders
from recado.server.listener import Server

log = logging.getLogger("recado.node")

JOURNAL, STREAMS = "journal", "streams"


class Storage:
    """A data folder that is ours until `release`."""

    def __init__(self, data: str) -> None:
        """Raises `InUse` if another node has it."""
        folder = Path(data)
        self._folder = FolderDisk(folder)
        self._folder.lock()
        self.ledger = Ledger(Journal(FolderDisk(folder / JOURNAL)), RealFolders(folder / STREAMS))

    def recover(self, broker: Broker, now: int) -> None:
        """Make a new broker what it was; raises `Corrupt` if what was safe is not there any more."""
        recover(self.ledger, broker, now)
        cut = self.ledger.cut
        if cut:
            log.warning(
                "the last %d bytes of the journal were not whole: nobody was told of them", cut
            )

    def serve(self, server: Server, least_free: int) -> None:
        """From now on all that is kept is written at the end of each turn."""
        server.committer = Committer(
            self.ledger,
            server.loop,
            server.fail,
            room=Room(self._folder, least_free),
            on_full=server.watch_resources,
            turn=server.turn,
        )

    def free(self) -> int:
        """Bytes that are left on the disk."""
        return self._folder.free()

    def journal_bytes(self) -> int:
        return sum(segment.end - segment.base for segment in self.ledger.journal.segments)

    def release(self) -> None:
        """Let others have the folder; the ledger is closed by then."""
        self._folder.close()
