"""Group commit without a timer: one fsync covers everything that was written while the previous one ran.

At the end of a turn of the loop, `commit` writes the records that the store collected. If a durable operation is
not covered by a sync yet, and no sync is running, it starts one. When a sync is done, the listeners whose
operations it covers are notified, and `commit` runs again for what was added meanwhile. So with one publisher
each message is synced at once, and with many publishers the batches grow by themselves. Records that no client
waits for, such as acks, are written some milliseconds later (`write_deferred`) and synced with the next durable
operation, or by `maintain` after at most a second.

CM1  An operation is reported durable only if it was written before the sync began that covers it.
CM2  A full disk is not a failure. Records that do not fit are written once there is space, and their clients
     are notified no earlier. Segments that were empty before the disk was full are freed meanwhile.
CM3  After a failed sync the content of the disk is unknown: nothing is reported durable again, and the node
     ends. That includes ENOSPC: only a write that fails for lack of space counts as a full disk.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from queue import SimpleQueue
from time import perf_counter

from recado.broker.histogram import Histogram
from recado.journal.disk_space import DiskSpace
from recado.journal.journal import DISK_FULL_ERRORS
from recado.journal.record import CorruptJournalError

from .store.compaction import Compactor
from .store.journal_store import JournalStore
from .store.sync import SyncJob

log = logging.getLogger("recado.server")

_COMPACTION_PAUSE_S = 0.005  # between two slices, for other work of the loop

# Syncing in the thread costs two wake-ups of 50 to 100 µs each, and takes the interpreter lock from the loop.
# So the loop syncs itself if a durable operation needs it (`needs_sync`: a declaration or a persistent message,
# also without confirms; not acks alone), few bytes are unsynced, and syncs are usually fast: a confirm takes
# 436 µs instead of 581, and for fifty clients 57 µs of CPU time each instead of 75. With many unsynced bytes a
# sync takes long, and it is better to continue reading meanwhile: 270,000 messages of 1 KiB a second instead of
# 150,000.
INLINE_SYNC_MAX_S = 0.001
INLINE_SYNC_MAX_BYTES = 64 << 10
SYNC_EWMA_WEIGHT = 0.2  # of the newest sync in the moving average
# A sync in the thread seems to take longer than it does, because the loop holds the interpreter lock. So only
# syncs in the loop are measured, and each sync in the thread lets the average decay, until the loop tries
# again. Without the decay, a short period of slow syncs made all later ones run in the thread (4,000 instead of
# 14,000 messages a second from fifty clients).
SYNC_EWMA_DECAY_FACTOR = 0.98

SYNC_LIMITS_S = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Of the buckets in which the durations of syncs are counted."""
COMMIT_LIMITS_COUNT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Of the buckets in which the operations that a sync covers are counted."""


class CommitterState(Enum):
    """Whether records can be written."""

    RUNNING = auto()
    DISK_FULL = auto()  # writing is retried by `maintain`
    FAILED = auto()
    CLOSED = auto()


class Committer:
    """Writes and syncs a `JournalStore`, in the loop and in a thread of its own."""

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[str], None],
        disk_space: DiskSpace | None = None,
        on_full: Callable[[], None] | None = None,
        run_in_turn: Callable[..., None] | None = None,
    ) -> None:
        """Commit a store; `close` ends it.

        `on_failure` is called once if nothing can be made durable any more, `on_full` when the disk is found to
        be full, so that publishers are blocked at once. `run_in_turn(action, *args)` must call the action in a
        turn of the loop, at the end of which `commit` is called.
        """
        self._store = store
        self._loop = loop
        self._on_failure = on_failure
        self._disk_space = disk_space
        self._on_full = on_full
        self._run_in_turn = run_in_turn or _call_now
        self._compactor = Compactor(store)
        self._compaction_timer: asyncio.TimerHandle | None = None
        self._state = CommitterState.RUNNING
        self._low_on_disk = False  # publishers are blocked, and droppable segments are remembered
        self._active_sync: SyncJob | None = None
        self._sync_ewma = 0.0  # seconds
        self.sync_durations = Histogram(SYNC_LIMITS_S)
        self.commit_sizes = Histogram(COMMIT_LIMITS_COUNT)  # of syncs that an operation waits for
        self._idle: asyncio.Future[None] | None = None  # `close` waits for the running sync
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run_jobs, name="recado-sync", daemon=True)
        self._thread.start()
        store.attach(on_failure=self.fail, find_disk_shortage=self.disk_shortage)

    # ── in the loop ───────────────────────────────────────────────────────────────────────────────────

    def commit(self) -> None:
        """At the end of a turn: write the collected records, and sync them if a durable operation needs it."""
        store = self._store
        if self._state is not CommitterState.RUNNING:
            return
        while store.has_pending_writes and self._write():
            if self._active_sync is not None or not store.needs_sync:
                return
            if not store.is_durable:
                self._begin_sync()
                return
            # Nothing was written: every message was settled in the turn in which it was published.
            self._finish_sync(store.begin_sync())

    def write_deferred(self) -> None:
        """Write records that no client waits for, such as acks, if no commit has written them meanwhile."""
        if self._state is CommitterState.RUNNING:
            self._write()

    def _write(self) -> bool:
        """Write the collected records; return whether that was possible."""
        try:
            self._store.write()
        except OSError as error:
            if error.errno not in DISK_FULL_ERRORS:
                self.fail(f"the journal cannot be written: {error}")
            elif self._state is CommitterState.RUNNING:
                self._state = CommitterState.DISK_FULL
                log.warning(
                    "disk full: publishers are blocked until there is space (path=%s)",
                    error.filename,
                )
                if self._on_full is not None:
                    self._on_full()
            return False
        if self._state is CommitterState.DISK_FULL:
            self._state = CommitterState.RUNNING
            log.warning("disk full: there is space again")
        if self._low_on_disk:
            self._store.segments.remember_droppable()
        return True

    @property
    def sync_count(self) -> int:
        return self.sync_durations.count

    @property
    def sync_seconds(self) -> float:
        """The total duration of syncs."""
        return self.sync_durations.total

    def _begin_sync(self) -> None:
        is_small = self._store.needs_sync and self._store.unsynced_bytes < INLINE_SYNC_MAX_BYTES
        if self._store.unsynced_ops:
            self.commit_sizes.observe(self._store.unsynced_ops)
        self._active_sync = sync = self._store.begin_sync()
        if is_small and self._sync_ewma < INLINE_SYNC_MAX_S:
            seconds_before = self.sync_seconds
            error = self._run_sync(sync)
            duration = self.sync_seconds - seconds_before
            self._sync_ewma += (duration - self._sync_ewma) * SYNC_EWMA_WEIGHT
            self._on_sync_done(sync, error)
        else:
            self._sync_ewma *= SYNC_EWMA_DECAY_FACTOR
            self._jobs.put(partial(self._sync_in_thread, sync))

    def _run_sync(self, sync: SyncJob) -> OSError | None:
        """Run a sync in the loop or in the thread, never in both at once; return its error."""
        start = perf_counter()
        try:
            sync.run()
        except OSError as error:
            return error
        finally:
            self.sync_durations.observe(perf_counter() - start)
        return None

    def _on_sync_done(self, sync: SyncJob, error: OSError | None) -> None:
        self._active_sync = None
        if error is not None:
            self.fail(
                f"the journal cannot be synced, so nothing can be confirmed any more: {error}"
            )
        try:
            if self._state is not CommitterState.FAILED:
                self._finish_sync(sync)
        finally:  # a listener may have raised
            if self._idle is not None:
                self._idle.set_result(None)
            else:
                self.commit()

    def _finish_sync(self, sync: SyncJob) -> None:
        try:
            self._store.end_sync(sync)
        finally:  # a listener may have raised
            if sync.empty_segments:
                self._jobs.put(self._store.journal.close_dropped)

    def maintain(self) -> None:
        """Once a second: sync deferred records, retry a full disk, drop and compact segments."""
        if self._state in (CommitterState.FAILED, CommitterState.CLOSED):
            return
        if self._disk_space is not None:
            # Publishers are blocked by now, so the space of the ballast is used only for messages that had
            # arrived before, and for acks.
            if self._state is CommitterState.DISK_FULL:
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
        """On a full disk: sync the last complete write, so that empty segments can be dropped."""
        if self._state is CommitterState.DISK_FULL and self._store.segments.droppable_when_full():
            self._active_sync = sync = self._store.begin_sync(disk_full=True)
            self._jobs.put(partial(self._sync_in_thread, sync))

    def _compact(self) -> None:
        self._compaction_timer = None
        if self._state is not CommitterState.RUNNING:
            return
        try:
            has_more = self._compactor.compact(low_on_disk=self._low_on_disk)
        except (CorruptJournalError, OSError) as error:
            self.fail(f"the journal cannot be read: {error}")
            return
        if has_more:
            self._write()
            self._compaction_timer = self._loop.call_later(_COMPACTION_PAUSE_S, self._compact)

    def disk_shortage(self) -> str | None:
        """Return the reason for connection.blocked if there is too little disk space."""
        is_short = self._state is CommitterState.DISK_FULL or (
            self._disk_space is not None and self._disk_space.is_low()
        )
        return "low on disk" if is_short else None

    def fail(self, reason: str) -> None:
        """Report a failure, once; from now on no operation is reported durable (CM3)."""
        if self._state is not CommitterState.FAILED:
            self._state = CommitterState.FAILED
            self._on_failure(reason)

    async def close(self) -> None:
        """Make everything durable and close the files."""
        if self._state is not CommitterState.FAILED:
            self._state = CommitterState.CLOSED
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
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._run_in_turn, self._on_sync_done, sync, error)


def _call_now(action: Callable[..., None], *args: object) -> None:
    action(*args)
