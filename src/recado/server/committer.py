"""Group commit without a timer: one thread syncs, and whoever comes meanwhile shares the next sync.

At the end of a turn of the loop `request` writes what the broker told its keeper. If the thread is idle it
begins to sync, else it will as soon as it returns; then everybody is told whose things are durable now. So with
one publisher every message is synced at once, and with many the batches grow by themselves.

M1  What is told to be durable was written before the sync began that made it so.
M2  A full disk is no failure: what does not fit is written once there is room, and nobody is told before.
    What was settled before it was full makes some.
M3  After a failed sync nobody knows any more what is on disk: nothing is promised again, the node ends.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from time import perf_counter

from recado.journal.disk_space import DiskSpace
from recado.journal.journal import DISK_FULL_ERRORS
from recado.journal.record import CorruptJournalError

from .store.compaction import Compactor
from .store.journal_store import JournalStore
from .store.sync import SyncJob

log = logging.getLogger("recado.server")

_COMPACTION_PAUSE_S = 0.005  # seconds between two slices of cleaning, for others

# To have the thread sync and tell costs two wake-ups, 50 to 100 µs each, and it takes the interpreter from the
# loop. So if somebody waits, for little, and a sync usually takes less than so many seconds, the loop does it:
# a confirm takes 436 µs instead of 581, and one each for fifty clients 57 µs of processor time instead of 75.
# For much, to read on meanwhile is worth more: 270,000 messages of 1 KiB a second instead of 150,000.
INLINE_SYNC_MAX_S = 0.001
INLINE_SYNC_MAX_BYTES = 64 << 10
SYNC_EWMA_WEIGHT = 0.2  # what the last sync counts for in what is usual
# In the thread a sync seems to take as long as the loop keeps the interpreter from it, so how long it takes is
# known from the loop's own ones only. With each one in the thread the last of them counts for less, until one
# is tried again: a disk that was slow for a moment is not left to the thread for ever (4,000 instead of
# 14,000 messages a second of fifty clients).
SYNC_EWMA_DECAY_FACTOR = 0.98


class Committer:
    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[str], None],
        disk_space: DiskSpace | None = None,
        on_full: Callable[[], None] | None = None,
        run_in_turn: Callable[..., None] | None = None,
    ) -> None:
        """`on_full` is told when a full disk is found, so that publishers wait at once.

        `turn` is how something is done in a turn of the loop, at the end of which `request` is called.
        """
        self._store = store
        self._loop = loop
        self._on_failure = on_failure
        self._disk_space = disk_space
        self._on_full = on_full
        self._run_in_turn = run_in_turn or _call_now
        self._compactor = Compactor(store)
        self._compaction_timer: asyncio.TimerHandle | None = None
        self._active_sync: SyncJob | None = None
        self._sync_ewma = 0.0  # seconds that a sync takes
        self.sync_count = 0
        self.sync_seconds = 0.0  # of all of them
        self._idle: asyncio.Future[None] | None = None  # somebody waits for the thread to return
        self._full = False
        self._low_on_disk = False  # of room: publishers wait, and it is noted what could be freed
        self._failed = False
        self._closed = False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, name="recado-sync", daemon=True)
        self._thread.start()
        store.on_failure = self.fail
        store.find_disk_shortage = self.disk_shortage

    # ── in the loop ───────────────────────────────────────────────────────────────────────────────────

    def commit(self) -> None:
        """At the end of a turn: write what is urgent with all else, and make it durable if somebody waits."""
        ledger = self._store
        if self._full or self._failed or self._closed:  # a full disk is tried again by `watch`
            return
        while ledger.has_pending_writes and self._write():
            if self._active_sync is not None or not ledger.needs_sync:
                return
            if not ledger.is_durable:
                self._begin_sync()
                return
            # All of it came to nothing: entered and settled in the same turn.
            self._finish_sync(ledger.begin_sync())

    def write_deferred(self) -> None:
        """What nobody waits for, if nothing came that it could have gone with."""
        if not (self._full or self._failed or self._closed):
            self._write()

    def _write(self) -> bool:
        try:
            self._store.write()
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                self.fail(f"the journal cannot be written: {error}")
            elif not self._full:
                self._full = True
                log.warning(
                    "the disk is full: publishers wait until there is room (path=%s)",
                    error.filename,
                )
                if self._on_full is not None:
                    self._on_full()
            return False
        if self._full:
            self._full = False
            log.warning("the disk has room again")
        if self._low_on_disk:
            self._store.segments.remember_droppable()
        return True

    def _begin_sync(self) -> None:
        little = self._store.needs_sync and self._store.unsynced_bytes < INLINE_SYNC_MAX_BYTES
        self._active_sync = sync = self._store.begin_sync()
        if little and self._sync_ewma < INLINE_SYNC_MAX_S:
            before = self.sync_seconds
            error = self._run_sync(sync)
            self._sync_ewma += (self.sync_seconds - before - self._sync_ewma) * SYNC_EWMA_WEIGHT
            self._on_sync_done(sync, error)
        else:
            self._sync_ewma *= SYNC_EWMA_DECAY_FACTOR
            self._jobs.put(partial(self._sync_in_thread, sync))

    def _run_sync(self, sync: SyncJob) -> OSError | None:
        """Gives what went wrong; here or in the thread, but never in both at once."""
        start = perf_counter()
        try:
            sync.run()
        except OSError as error:
            return error
        finally:
            self.sync_count += 1
            self.sync_seconds += perf_counter() - start
        return None

    def _on_sync_done(self, sync: SyncJob, error: OSError | None) -> None:
        self._active_sync = None
        if error is not None:
            self.fail(f"the journal cannot be synced, so nothing more can be promised: {error}")
        try:
            if not self._failed:
                self._finish_sync(sync)
        finally:  # somebody who was told may have failed
            if self._idle is not None:
                self._idle.set_result(None)
            else:
                self.commit()

    def _finish_sync(self, sync: SyncJob) -> None:
        try:
            self._store.end_sync(sync)
        finally:  # somebody who was told may have failed
            if sync.empty_segments:
                self._jobs.put(self._store.journal.close_dropped)

    def maintain(self) -> None:
        """Once a second: make durable what nobody waits for, try a full disk again, free segments."""
        if self._failed or self._closed:
            return
        if self._disk_space is not None:
            if self._full:  # publishers wait by now, so it is for what they had sent, and for acks
                self._disk_space.release_ballast()
            else:
                self._disk_space.restore_ballast()
        self._low_on_disk = self.disk_shortage() is not None
        written = self._write()
        if self._active_sync is not None:
            return
        if not written:
            self._free_segments()
            return
        if self._low_on_disk and self._store.segments.is_worth_rolling():
            self._store.roll()
            self._write()
        if not self._store.is_durable or self._store.segments.find_empty():
            self._begin_sync()
        if self._compaction_timer is None:
            self._compact()

    def _free_segments(self) -> None:
        """Nothing more can be written, but what was may have left segments empty."""
        if self._full and self._store.segments.droppable_when_full():
            self._active_sync = sync = self._store.begin_sync(disk_full=True)
            self._jobs.put(partial(self._sync_in_thread, sync))

    def _compact(self) -> None:
        self._compaction_timer = None
        if self._failed or self._closed or self._full:
            return
        try:
            more = self._compactor.compact(low_on_disk=self._low_on_disk)
        except (CorruptJournalError, OSError) as error:
            self.fail(f"the journal cannot be read: {error}")
            return
        if more:
            self._write()
            self._compaction_timer = self._loop.call_later(_COMPACTION_PAUSE_S, self._compact)

    def disk_shortage(self) -> str | None:
        short = self._full or (self._disk_space is not None and self._disk_space.is_low())
        return "low on disk" if short else None

    def fail(self, reason: str) -> None:
        """Once is enough: nobody is told anything any more (M3)."""
        if not self._failed:
            self._failed = True
            self._on_failure(reason)

    async def close(self) -> None:
        """Make everything durable, and let go of the files."""
        self._closed = True
        if self._compaction_timer is not None:
            self._compaction_timer.cancel()
        if self._active_sync is not None:
            self._idle = self._loop.create_future()
            await self._idle
        self._jobs.put(None)
        self._thread.join()
        try:
            self._store.close()
        except OSError as error:
            self.fail(f"the journal cannot be closed: {error}")

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _sync_in_thread(self, sync: SyncJob) -> None:
        error = self._run_sync(sync)
        with contextlib.suppress(RuntimeError):  # the loop may be gone: nobody wants to know then
            self._loop.call_soon_threadsafe(self._run_in_turn, self._on_sync_done, sync, error)


def _call_now(action: Callable[..., None], *args: object) -> None:
    action(*args)
