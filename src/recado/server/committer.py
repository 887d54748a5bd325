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

from recado.journal.journal import FULL
from recado.journal.record import Corrupt
from recado.journal.room import Room

from .ledger.cleaning import Cleaner
from .ledger.ledger import Ledger
from .ledger.sync import Sync

log = logging.getLogger("recado.server")

_PAUSE = 0.005  # seconds between two slices of cleaning, for others

# To have the thread sync and tell costs two wake-ups, 50 to 100 µs each, and it takes the interpreter from the
# loop. So if somebody waits, for little, and a sync usually takes less than so many seconds, the loop does it:
# a confirm takes 436 µs instead of 581, and one each for fifty clients 57 µs of processor time instead of 75.
# For much, to read on meanwhile is worth more: 270,000 messages of 1 KiB a second instead of 150,000.
QUICK = 0.001
LITTLE = 64 << 10
NEWEST = 0.2  # what the last sync counts for in what is usual
# In the thread a sync seems to take as long as the loop keeps the interpreter from it, so how long it takes is
# known from the loop's own ones only. With each one in the thread the last of them counts for less, until one
# is tried again: a disk that was slow for a moment is not left to the thread for ever (4,000 instead of
# 14,000 messages a second of fifty clients).
FORGOTTEN = 0.98


class Committer:
    def __init__(
        self,
        ledger: Ledger,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[str], None],
        room: Room | None = None,
        on_full: Callable[[], None] | None = None,
        turn: Callable[..., None] | None = None,
    ) -> None:
        """`on_full` is told when a full disk is found, so that publishers wait at once.

        `turn` is how something is done in a turn of the loop, at the end of which `request` is called.
        """
        self._ledger = ledger
        self._loop = loop
        self._on_failure = on_failure
        self._room = room
        self._on_full = on_full
        self._turn = turn or _at_once
        self._cleaner = Cleaner(ledger)
        self._cleaning: asyncio.TimerHandle | None = None
        self._syncing: Sync | None = None
        self._usual = 0.0  # seconds that a sync takes
        self.syncs = 0
        self.sync_seconds = 0.0  # of all of them
        self._idle: asyncio.Future[None] | None = None  # somebody waits for the thread to return
        self._full = False
        self._short = False  # of room: publishers wait, and it is noted what could be freed
        self._failed = False
        self._closed = False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="recado-sync", daemon=True)
        self._thread.start()
        ledger.on_failure = self.fail
        ledger.shortage_now = self.shortage

    # ── in the loop ───────────────────────────────────────────────────────────────────────────────────

    def request(self) -> None:
        """At the end of a turn: write what is urgent with all else, and make it durable if somebody waits."""
        ledger = self._ledger
        if self._full or self._failed or self._closed:  # a full disk is tried again by `watch`
            return
        while ledger.has_more and self._write():
            if self._syncing is not None or not ledger.is_awaited:
                return
            if not ledger.is_durable:
                self._begin()
                return
            # All of it came to nothing: entered and settled in the same turn.
            self._end(ledger.begin_sync())

    def write_rest(self) -> None:
        """What nobody waits for, if nothing came that it could have gone with."""
        if not (self._full or self._failed or self._closed):
            self._write()

    def _write(self) -> bool:
        try:
            self._ledger.write()
        except OSError as error:
            if error.errno not in FULL:
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
        if self._short:
            self._ledger.pages.note_spare()
        return True

    def _begin(self) -> None:
        little = self._ledger.is_awaited and self._ledger.unsynced < LITTLE
        self._syncing = sync = self._ledger.begin_sync()
        if little and self._usual < QUICK:
            before = self.sync_seconds
            error = self._run(sync)
            self._usual += (self.sync_seconds - before - self._usual) * NEWEST
            self._done(sync, error)
        else:
            self._usual *= FORGOTTEN
            self._jobs.put(partial(self._run_and_tell, sync))

    def _run(self, sync: Sync) -> OSError | None:
        """Gives what went wrong; here or in the thread, but never in both at once."""
        start = perf_counter()
        try:
            sync.run()
        except OSError as error:
            return error
        finally:
            self.syncs += 1
            self.sync_seconds += perf_counter() - start
        return None

    def _done(self, sync: Sync, error: OSError | None) -> None:
        self._syncing = None
        if error is not None:
            self.fail(f"the journal cannot be synced, so nothing more can be promised: {error}")
        try:
            if not self._failed:
                self._end(sync)
        finally:  # somebody who was told may have failed
            if self._idle is not None:
                self._idle.set_result(None)
            else:
                self.request()

    def _end(self, sync: Sync) -> None:
        try:
            self._ledger.end_sync(sync)
        finally:  # somebody who was told may have failed
            if sync.empty:
                self._jobs.put(self._ledger.journal.let_go)

    def watch(self) -> None:
        """Once a second: make durable what nobody waits for, try a full disk again, free segments."""
        if self._failed or self._closed:
            return
        if self._room is not None:
            if self._full:  # publishers wait by now, so it is for what they had sent, and for acks
                self._room.give_up()
            else:
                self._room.restore()
        self._short = self.shortage() is not None
        written = self._write()
        if self._syncing is not None:
            return
        if not written:
            self._free()
            return
        if self._short and self._ledger.pages.is_worth_rolling():
            self._ledger.roll()
            self._write()
        if not self._ledger.is_durable or self._ledger.pages.empty():
            self._begin()
        if self._cleaning is None:
            self._clean()

    def _free(self) -> None:
        """Nothing more can be written, but what was may have left segments empty."""
        if self._full and self._ledger.pages.spare():
            self._syncing = sync = self._ledger.begin_sync(full=True)
            self._jobs.put(partial(self._run_and_tell, sync))

    def _clean(self) -> None:
        self._cleaning = None
        if self._failed or self._closed or self._full:
            return
        try:
            more = self._cleaner.clean(short=self._short)
        except (Corrupt, OSError) as error:
            self.fail(f"the journal cannot be read: {error}")
            return
        if more:
            self._write()
            self._cleaning = self._loop.call_later(_PAUSE, self._clean)

    def shortage(self) -> str | None:
        short = self._full or (self._room is not None and self._room.is_short())
        return "low on disk" if short else None

    def fail(self, reason: str) -> None:
        """Once is enough: nobody is told anything any more (M3)."""
        if not self._failed:
            self._failed = True
            self._on_failure(reason)

    async def close(self) -> None:
        """Make everything durable, and let go of the files."""
        self._closed = True
        if self._cleaning is not None:
            self._cleaning.cancel()
        if self._syncing is not None:
            self._idle = self._loop.create_future()
            await self._idle
        self._jobs.put(None)
        self._thread.join()
        try:
            self._ledger.close()
        except OSError as error:
            self.fail(f"the journal cannot be closed: {error}")

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _run_and_tell(self, sync: Sync) -> None:
        error = self._run(sync)
        with contextlib.suppress(RuntimeError):  # the loop may be gone: nobody wants to know then
            self._loop.call_soon_threadsafe(self._turn, self._done, sync, error)


def _at_once(action: Callable[..., None], *args: object) -> None:
    action(*args)
