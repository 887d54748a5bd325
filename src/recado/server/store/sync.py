"""One turn of making things durable: the ledger's journal, and the others that go with it."""

from typing import Protocol

import msgspec

from recado.journal.journal import Journal


class SecondaryJournal(Protocol):
    """Another journal, or several. Its owner counts an entry for everything that somebody waits for."""

    @property
    def is_durable(self) -> bool: ...

    def write(self) -> None: ...

    def sync(self) -> object: ...

    def close(self) -> None: ...


class SyncJob(msgspec.Struct, frozen=True):
    """One turn of making things durable."""

    lsn: int
    journal: Journal
    secondaries: tuple[SecondaryJournal, ...]
    empty_segments: list[int]
    """Segments that nothing is live in: gone when this is done (LG5)."""

    def run(self) -> None:
        """For a thread; an OSError is the end."""
        self.journal.sync()
        if self.empty_segments:
            self.journal.sync_mark()
        for side in self.secondaries:
            side.sync()
