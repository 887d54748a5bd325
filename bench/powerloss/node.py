"""A complete broker on a machine, without sockets and threads.

The scenario executes the steps of each commit, so that anything may happen in between.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from recado.broker.access import Permission, User
from recado.broker.broker import Broker
from recado.journal.journal import Journal
from recado.server.store.compaction import Compactor
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker
from recado.server.store.sync import SyncJob

from .machine import Machine

if TYPE_CHECKING:
    from .client import Client


ROLL_EVERY = 10  # cleanings


class Shape(msgspec.Struct, frozen=True):
    """Sizes, all of them tiny, so that rare events happen every few turns."""

    segment_size: int = 1500
    room: int = 300
    slice_size: int = 500
    spare_segments: int = 0


class NodeFailedError(Exception):
    """The disk failed, and the node ends itself: it cannot guarantee anything."""


class UnreadableDataError(Exception):
    """The stored data of the node cannot be read."""


class Node:
    def __init__(self, machine: Machine, shape: Shape, now: int) -> None:
        """Recover the stored state. Raises the errors of recovery."""
        self.machine = machine
        self.now = now
        self.clients: dict[Client, None] = {}
        self.is_full = False
        journal = Journal(machine.journal, segment_bytes=shape.segment_size)
        self.store = JournalStore(journal, machine, page_out_bytes=shape.room)
        self.store.on_failure = self._fail
        names = count(1)
        self.broker = Broker(lambda: f"name-{next(names)}", store=self.store)
        self.broker.coalescer.is_enabled = True
        self.broker.add_user(User("guest", permissions={"/": Permission(".*", ".*", ".*")}))
        restore_broker(self.store, self.broker, now)
        self._cleaner = Compactor(
            self.store, slice_bytes=shape.slice_size, garbage_segments_min=shape.spare_segments
        )
        self._synced: SyncJob | None = None
        self._cleanings = 0

    def _fail(self, reason: str) -> None:
        raise UnreadableDataError(reason)

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds
        deadline = self.broker.deadline()
        if deadline is not None and deadline <= self.now:
            self.broker.tick(self.now)

    # ── the committer's work ──────────────────────────────────────────────────────────────────────

    def flush_coalesced(self) -> None:
        """Flush coalesced publishes."""
        self.broker.coalescer.flush(self.now)

    def write(self) -> bool:
        """Whether there was room for all."""
        self.flush_coalesced()
        try:
            self.store.write()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise NodeFailedError(str(error)) from error
            self.is_full = True
            return False
        self.is_full = False
        self.store.segments.remember_droppable()
        return True

    @property
    def is_syncing(self) -> bool:
        return self._synced is not None

    def sync(self, meanwhile: Callable[[], None] | None) -> None:
        """Start an fsync after a write. Clients may act meanwhile; their answers wait."""
        self._synced = self.store.begin_sync()
        self._run(self._synced, meanwhile)

    def free(self) -> None:
        """The disk is full: drop records that were obsolete before."""
        if self.store.segments.droppable_when_full():
            sync = self.store.begin_sync(disk_full=True)
            self._run(sync, None)
            self.store.end_sync(sync)

    def _run(self, sync: SyncJob, meanwhile: Callable[[], None] | None) -> None:
        self.machine.meanwhile = meanwhile
        try:
            sync.run()
        except OSError as error:
            raise NodeFailedError(str(error)) from error
        finally:
            self.machine.meanwhile = None

    def end_sync(self) -> None:
        """Send the waiting answers, and free what is obsolete."""
        assert self._synced is not None
        sync, self._synced = self._synced, None
        self.store.end_sync(sync)

    def clean(self) -> None:
        self._cleanings += 1
        if self._cleanings % ROLL_EVERY == 0:  # as the committer does on a disk short of room
            self.store.segments.roll()
        if not self.is_full and self._cleaner.compact():
            self.write()

    def commit(self) -> None:
        """Make everything durable, and send and read all answers."""
        while True:
            if self.is_syncing:
                self.end_sync()
            for client in list(self.clients):
                client.read()
            if not self.broker.has_pending_work:
                return
            if not self.write():
                self.machine.fill(None)
            else:
                self.sync(None)

    def check(self) -> None:
        """The store's own invariants."""
        live = dict.fromkeys(self.store.segments.all_stats(), 0)
        for index in self.store.queue_indexes.values():
            index.check()
            for extents in index.segment_extents:
                live[extents.stats] = live.get(extents.stats, 0) + extents.live_count
        for page, number in live.items():
            assert page.live_count == number, "A3"
