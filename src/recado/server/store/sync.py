"""One sync of the store: its own journal, and the journals that are synced together with it."""

from typing import Protocol

import msgspec

from recado.journal.journal import Journal


class SecondaryJournal(Protocol):
    """One or more further journals. Their owner counts `durable_ops` for operations that a reply waits for."""

    @property
    def is_durable(self) -> bool: ...

    def write(self) -> None: ...

    def sync(self) -> object: ...

    def close(self) -> None: ...


class SyncJob(msgspec.Struct, frozen=True):
    """The work of one sync, prepared in the loop and run in any thread."""

    lsn: int
    journal: Journal
    secondaries: tuple[SecondaryJournal, ...]
    empty_segments: list[int]
    """Bases of segments without live messages, to be dropped when the sync is done (ST5)."""

    def run(self) -> None:
        """Sync, in any thread. After an `OSError` the content of the disk is unknown."""
        self.journal.sync()
        if self.empty_segments:
            self.journal.sync_mark()
        for secondary in self.secondaries:
            secondary.sync()
