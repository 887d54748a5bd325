"""An archiver: a member of its feed that stores all messages on disk.

    event loop   the member decides; entries are appended to the journal
    thread 1     syncs the journal (fsync) while there are appended entries to cover, at most once in 10 ms
    thread 2     reads messages that members request
    thread 3     seals old rows to Parquet, and deletes expired files

AV1  The member receives `EntriesStored` only for entries that a sync has covered.
AV2  A packet is settled (acked to the broker) only when its messages are stored, or when it is malformed: after
     a kill, the broker redelivers everything that was only in memory. Packets that no archive stores are
     settled, too: positions of a total order, and messages of publishers that exceed the limit of publishers
     (RB5).
AV3  A failed sync is never retried: the archiver stops, and the broker redelivers unsettled packets to its next
     incarnation.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike, fspath
from typing import Final, Self, TypeVar

import msgspec

from recado.journal.disk import FolderInUseError

from .archive.damage import FileDamage
from .archive.errors import ArchiveError
from .archive.retention import RetentionLimits, RetentionReport
from .archive.search import ArchiveSearch, SearchResult, search_archive
from .archive.store import (
    GRACE_PERIOD_S,
    SEAL_INTERVAL_S,
    SEAL_ROW_COUNT,
    ArchiveProgress,
    ArchiveStore,
)
from .archive_summary import (
    ArchiveSummary,
    SubscriberDelivery,
    assess_subscriber,
    summarize,
)
from .boundary import (
    ARCHIVES,
    ArchiveDamaged,
    ArchiveEntry,
    ArchiveQuery,
    ArchiveRead,
    EntriesStored,
)
from .driver import MemberListener, join_feed
from .errors import ArchiveStoppedError, FeedError, MemberFailedError, TransportLostError
from .layers.archiver import MAX_PENDING_READS
from .layers.receive_buffer import ORDER_PREFIX
from .naming import new_member_id
from .options import FeedOptions
from .transport.endpoint import FeedTransport
from .vector import Vector
from .views import Role, View
from .wire import read_message_extent

T = TypeVar("T")

MIN_SYNC_INTERVAL_S: Final = 0.01
"""Between the starts of two syncs. Each costs 0.5 ms of CPU time, however few entries it covers."""
SEAL_CHECK_INTERVAL_S: Final = 1.0
"""How often to check whether rows are due to be sealed."""


log = logging.getLogger("recado.feeds")


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When rows are sealed, and which are deleted."""

    seal_rows: int = SEAL_ROW_COUNT
    seal_interval: float = SEAL_INTERVAL_S
    retention: RetentionLimits = RetentionLimits()
    grace: float = GRACE_PERIOD_S
    """Seconds before a removed file is deleted, so that readers can finish."""
    retention_interval: float = 60.0
    """Seconds between checks of the retention limits."""


class Archiver:
    """Runs an archive of a feed; made by `FeedConnection.archive` and entered once, by `async with`."""

    def __init__(
        self,
        transport: FeedTransport,
        feed: str,
        folder: str | PathLike[str],
        name: str,
        *,
        stack: str | None,
        options: FeedOptions,
        archive_options: ArchiveOptions,
    ) -> None:
        self.feed = feed
        self.name = name
        self.folder = fspath(folder)
        self.view: View | None = None
        self._transport = transport
        self._stack = stack
        self._options = options
        self._archive_options = archive_options
        self._member_id = new_member_id(name)
        self._threads = ThreadPoolExecutor(3, f"recado-archive-{name}")
        self._store: ArchiveStore | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._appended = asyncio.Event()
        self._queries: asyncio.Queue[tuple[int, ArchiveQuery]] = asyncio.Queue()
        self._unsettled: deque[tuple[int, tuple[bytes, int] | None]] = deque()
        """Tags of handled packets, with publisher and last sequence if their messages are stored."""
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._assessing = asyncio.Lock()
        self._listener = _ArchiverListener(self)

    # --- lifecycle

    @property
    def _opened_store(self) -> ArchiveStore:
        assert self._store is not None, "the archive is not running: use `async with`"
        return self._store

    @property
    def vector(self) -> Vector:
        """The durable messages."""
        return self._opened_store.durable_vector

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_storing(self) -> bool:
        """Whether it is neither closed nor stopped by an error."""
        return not self._closed and not self._failure.done()

    def measure_progress(self) -> ArchiveProgress:
        """Return what is on disk, and what is not yet."""
        return self._opened_store.measure_progress()

    def summarize(self) -> ArchiveSummary:
        """Return what the archive knows about its feed."""
        return summarize(self.name, self._opened_store, self.view, is_storing=self.is_storing)

    async def assess_subscriber(self, subscriber: str) -> SubscriberDelivery | None:
        """Return which messages a subscriber has certainly received, and which it may have received.

        Returns None if the archive has no record of it.
        """
        # One at a time, and not in the threads that sync and read.
        async with self._assessing:
            state = await asyncio.to_thread(self._opened_store.archive_state)
            return await asyncio.to_thread(assess_subscriber, self.name, subscriber, state)

    async def search(self, wanted: ArchiveSearch) -> SearchResult:
        """Search the rows on disk. Raises `ArchiveError`."""
        async with self._assessing:
            return await asyncio.to_thread(search_archive, self.folder, wanted)

    async def __aenter__(self) -> Self:
        if self._listener.attached is not None or self._closed:
            raise RuntimeError("an archiver can be entered only once; create another one")
        try:
            await self._run_in_thread(self._open_store)
            await join_feed(
                self._transport,
                self.feed,
                self._member_id,
                Role.ARCHIVE,
                self._stack,
                self._options,
                self._listener,
                self._opened_store.archive_state(),
            )
            self._tasks = [
                asyncio.create_task(self._supervise(work()))
                for work in (self._sync_loop, self._query_loop, self._maintenance_loop)
            ]
            await self._joined
        except BaseException:
            await self.close()
            raise
        return self

    def _open_store(self) -> None:
        archive_options = self._archive_options
        try:
            self._store = ArchiveStore(
                self.folder,
                self.feed,
                archive_name=self.name,
                seal_rows=archive_options.seal_rows,
                seal_interval=archive_options.seal_interval,
                grace=archive_options.grace,
            )
        except FolderInUseError as error:
            raise ArchiveStoppedError(
                f"{self.folder} is in use", "Another process writes this archive; stop it first."
            ) from error
        except ArchiveError as error:
            raise ArchiveStoppedError(str(error)) from error
        if self._closed:  # closed while it was opened
            self._store.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Wait until the archiver has to stop, and raise the reason."""
        raise await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Leave the feed and make appended entries durable."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._listener.attached is not None and not self._failure.done():
                await self._sync_once()
        finally:
            if self._listener.attached is not None:
                await self._listener.attached.leave()
            if self._store is not None:
                await self._run_in_thread(self._store.close)
            await asyncio.to_thread(self._threads.shutdown)

    def _stop_error(self, reason: object) -> ArchiveStoppedError:
        return ArchiveStoppedError(f"archive {self.name} of feed {self.feed} stopped: {reason}")

    def _stop(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_result(error)
        if not self._joined.done():
            self._joined.set_exception(error)

    async def _supervise(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            is_expected = isinstance(error, OSError | FeedError)
            log.error(
                "archiver stopped (archive=%s feed=%s error=%s)",
                self.name,
                self.feed,
                error,
                exc_info=None if is_expected else error,
            )
            self._stop(self._stop_error(error))

    async def _run_in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Run a function in a thread of the pool."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    # --- background tasks

    async def _sync_loop(self) -> None:
        loop = asyncio.get_running_loop()
        started_at = 0.0
        while True:
            await self._appended.wait()
            await asyncio.sleep(started_at + MIN_SYNC_INTERVAL_S - loop.time())
            started_at = loop.time()
            await self._sync_once()

    async def _sync_once(self) -> None:
        self._appended.clear()
        await self._run_in_thread(self._opened_store.sync)
        self._listener.driver.handle(
            EntriesStored(self._opened_store.durable_vector, self._opened_store.durable_offset)
        )
        self._settle_stored()

    async def _query_loop(self) -> None:
        while True:
            number, query = await self._queries.get()
            result = await self._run_in_thread(self._opened_store.query, query)
            for damage in self._opened_store.take_new_damages():
                await self._report_damage(damage)
            self._listener.driver.handle(
                ArchiveRead(number, result.batches, result.has_more, result.reached, result.offset)
            )

    async def _report_damage(self, damage: FileDamage) -> None:
        """Report a damaged file. It does not stop the archiver: its messages count as lost until another
        archive sends them."""
        lost = await self._run_in_thread(self._opened_store.find_lost, damage)
        log.error(
            "archive file damaged (archive=%s rows=%d-%d messages_lost=%d error=%s): other rows are served and "
            "these are requested from the other archives; to repair: recado feed verify --repair",
            self.name,
            damage.first,
            damage.end - 1,
            sum(each.last - each.first + 1 for each in lost),
            damage.error,
        )
        if lost:
            self._listener.driver.handle(ArchiveDamaged(tuple(lost)))

    async def _maintenance_loop(self) -> None:
        loop = asyncio.get_running_loop()
        retention_due = loop.time()
        while True:
            if self._opened_store.needs_sealing:
                await self._run_in_thread(self._opened_store.seal)
            if loop.time() >= retention_due:
                retention_due = loop.time() + self._archive_options.retention_interval
                report: RetentionReport = await self._run_in_thread(
                    self._opened_store.apply_retention, self._archive_options.retention
                )
                if report.files:
                    log.info(
                        "archive files expired (archive=%s files=%d messages=%d)",
                        self.name,
                        report.files,
                        report.messages,
                    )
            await asyncio.sleep(SEAL_CHECK_INTERVAL_S)  # rows also become due by age

    # --- settling

    def _settle_stored(self) -> None:
        """Settle the packets whose messages are durable (AV2)."""
        durable = self._opened_store.durable_vector
        last_tag = 0
        while self._unsettled:
            tag, messages = self._unsettled[0]
            if messages is not None and messages[1] > durable.last_of(messages[0]):
                break
            last_tag = tag
            self._unsettled.popleft()
        if last_tag:
            self._listener.driver.endpoint.settle(last_tag)


class _ArchiverListener(MemberListener):
    """Stores the entries of a member, queues its queries, and settles its packets."""

    def __init__(self, archiver: Archiver) -> None:
        self._archiver = archiver

    def view_installed(self, view: View, cut: Vector) -> None:
        self._archiver.view = view
        if not self._archiver._joined.done():
            self._archiver._joined.set_result(None)

    def acknowledge(self, packet: bytes) -> None:
        self.driver.endpoint.send(ARCHIVES, packet)

    def store_entries(self, entries: Sequence[ArchiveEntry]) -> None:
        archiver = self._archiver
        try:
            archiver._opened_store.append(entries)
        except (OSError, ArchiveError) as error:
            archiver._stop(archiver._stop_error(f"cannot write: {error}"))
        else:
            archiver._appended.set()

    def read_archive(self, query_number: int, query: ArchiveQuery) -> None:
        queries = self._archiver._queries
        if queries.qsize() == MAX_PENDING_READS:
            queries.get_nowait()  # the member has dropped that query, too
        queries.put_nowait((query_number, query))

    def packet_handled(self, packet: bytes, tag: int, *, is_malformed: bool) -> None:
        messages = None if is_malformed else read_message_extent(packet)
        if messages is not None:
            publisher = messages[0]
            if publisher.startswith(ORDER_PREFIX) or not self.driver.member.is_tracking(publisher):
                messages = None
        self._archiver._unsettled.append((tag, messages))
        self._archiver._settle_stored()

    def feed_failed(self, reason: str, *, is_recovery: bool) -> None:
        self._archiver._stop(self._archiver._stop_error(reason))

    def transport_lost(self, error: Exception) -> None:
        feed = self._archiver.feed
        self._archiver._stop(TransportLostError(f"feed {feed}: transport lost: {error}"))

    def internal_error(self, error: Exception) -> None:
        self._archiver._stop(MemberFailedError(self._archiver.feed, error))
