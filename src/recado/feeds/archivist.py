"""An archive at work: a member of its feed with a store on disk.

    loop         the member decides; what it wants stored is appended
    a thread     syncs, again as soon as the last sync is done and something was appended meanwhile
    another      reads what somebody asks for again
    a third      seals what is old enough to Parquet, and collects what is too old to keep

AV1  The member is told `Stored` only of what a sync has covered.
AV2  What came through the carrier is settled only when it is stored, or refused as malformed: whatever a kill
     takes from our memory comes again. What is stored by nobody is settled too: the places of a total order,
     and what is of a publisher that is one too many.
AV3  A sync that fails is never tried again: the archive stops, and what it had not stored comes again in its
     next life.
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

from recado.journal.disk import InUse

from .archive.collection import Limits, Report
from .archive.damage import Damage
from .archive.errors import ArchiveError
from .archive.store import GRACE, SEAL_ROWS, SEAL_SECONDS, Store
from .boundary import ARCHIVES, Damaged, Entry, Options, Query, Recalled, Stored
from .driver import Station, join
from .errors import ArchiveStopped, CarrierLost, FeedError, MemberFailed
from .layers.archiver import MOST_WAITING
from .layers.reception import ORDERS
from .naming import new_id
from .transport.port import Carrier
from .vector import Vector
from .views import Role, View
from .wire import extent

T = TypeVar("T")

SYNC_SECONDS: Final = 0.01
"""Not more often than this: each sync costs half a millisecond of processor time, whatever it covers, and those
who wait for it wait for the disk anyhow."""
LOOK_SECONDS: Final = 1.0
"""How often it is seen whether something is to be sealed."""


log = logging.getLogger("recado.feeds")


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """When rows are sealed, and which are let go."""

    seal_rows: int = SEAL_ROWS
    seal_seconds: float = SEAL_SECONDS
    limits: Limits = Limits()
    grace: float = GRACE
    """Seconds for which a file that was let go stays, for those who read it."""
    collect_seconds: float = 60.0
    """How often it is seen whether something is to be let go."""


class Archivist(Station):
    """Entered once, by `async with`. Made by `Link.archive`."""

    def __init__(
        self,
        carrier: Carrier,
        feed: str,
        folder: str | PathLike[str],
        name: str,
        *,
        stack: str | None,
        options: Options,
        upkeep: Upkeep,
    ) -> None:
        self.feed = feed
        self.name = name
        self.folder = fspath(folder)
        self.view: View | None = None
        self._carrier = carrier
        self._stack = stack
        self._options = options
        self._upkeep = upkeep
        self._me = new_id(name)
        self._threads = ThreadPoolExecutor(3, f"recado-archive-{name}")
        self._store: Store | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._appended = asyncio.Event()
        self._recalls: asyncio.Queue[tuple[int, Query]] = asyncio.Queue()
        self._unsettled: deque[tuple[int, tuple[bytes, int] | None]] = deque()
        self._failure: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._member: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False

    # --- life

    @property
    def store(self) -> Store:
        """To be read."""
        assert self._store is not None, "the archive is not running: use `async with`"
        return self._store

    @property
    def vector(self) -> Vector:
        """What is safely stored."""
        return self.store.stable

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def __aenter__(self) -> Self:
        if self._driver is not None or self._closed:
            raise RuntimeError("an archive is entered once; make another")
        try:
            await self._beside(self._open)
            await join(
                *(self._carrier, self.feed, self._me, Role.ARCHIVE),
                *(self._stack, self._options, self, self.store.state()),
            )
            self._tasks = [
                asyncio.create_task(self._guarded(work()))
                for work in (self._sync, self._read, self._seal)
            ]
            await self._member
        except BaseException:
            await self.close()
            raise
        return self

    def _open(self) -> None:
        upkeep = self._upkeep
        try:
            self._store = Store(
                self.folder,
                self.feed,
                archive_id=self.name,
                seal_rows=upkeep.seal_rows,
                seal_seconds=upkeep.seal_seconds,
                grace=upkeep.grace,
            )
        except InUse as error:
            raise ArchiveStopped(
                f"{self.folder} is in use", "Another process runs this archive."
            ) from error
        except ArchiveError as error:
            raise ArchiveStopped(str(error)) from error
        if self._closed:  # nobody waits for it any more
            self._store.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self) -> None:
        """Until the archive has to stop; then it is told why."""
        raise await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Leave the feed, and let what is appended be durable."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._driver is not None and not self._failure.done():
                await self._synced()
        finally:
            if self._driver is not None:
                await self._driver.leave()
            if self._store is not None:
                await self._beside(self._store.close)
            await asyncio.to_thread(self._threads.shutdown)

    def _stopped(self, why: object) -> ArchiveStopped:
        return ArchiveStopped(f"the archive {self.name} of feed {self.feed} stops: {why}")

    def _stop(self, error: Exception) -> None:
        if not self._failure.done():
            self._failure.set_result(error)
        if not self._member.done():
            self._member.set_exception(error)

    async def _guarded(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            foreseen = isinstance(error, OSError | ArchiveError | FeedError)
            stopped = self._stopped(error)
            log.error("%s", stopped, exc_info=None if foreseen else error)
            self._stop(stopped)

    async def _beside(self, work: Callable[..., T], *arguments: object) -> T:
        """In a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    # --- beside the loop

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        begun = 0.0
        while True:
            await self._appended.wait()
            await asyncio.sleep(begun + SYNC_SECONDS - loop.time())
            begun = loop.time()
            await self._synced()

    async def _synced(self) -> None:
        self._appended.clear()
        await self._beside(self.store.sync)
        self.driver.handle(Stored(self.store.stable, self.store.durable_offset))
        self._settle()

    async def _read(self) -> None:
        while True:
            number, query = await self._recalls.get()
            found = await self._beside(self.store.recall, query)
            for damage in self.store.found_damages():
                await self._report(damage)
            self.driver.handle(
                Recalled(number, found.batches, found.more, found.reached, found.offset)
            )

    async def _report(self, damage: Damage) -> None:
        """A damaged file does not stop the archive: its messages are lost here, until another archive has
        them."""
        lost = await self._beside(self.store.lost_with, damage)
        log.error(
            "archive file damaged (archive=%s rows=%d-%d messages_lost=%d): %s; the archive serves all other "
            "rows and asks the other archives for these. `recado feed verify --repair` replaces the file",
            *(self.name, damage.first, damage.end - 1),
            *(sum(each.last - each.first + 1 for each in lost), damage.error),
        )
        if lost:
            self.driver.handle(Damaged(tuple(lost)))

    async def _seal(self) -> None:
        loop = asyncio.get_running_loop()
        collect_at = loop.time()
        while True:
            if self.store.wants_sealing:
                await self._beside(self.store.seal)
            if loop.time() >= collect_at:
                collect_at = loop.time() + self._upkeep.collect_seconds
                report: Report = await self._beside(self.store.collect, self._upkeep.limits)
                if report.files:
                    log.info("archive %s: let go %d messages", self.name, report.messages)
            await asyncio.sleep(LOOK_SECONDS)  # time itself makes rows old

    # --- for the driver

    def installed(self, view: View, cut: Vector) -> None:
        self.view = view
        if not self._member.done():
            self._member.set_result(None)

    def acknowledge(self, packet: bytes) -> None:
        self.driver.port.send(ARCHIVES, packet)

    def store_entries(self, entries: Sequence[Entry]) -> None:
        try:
            self.store.append(entries)
        except (OSError, ArchiveError) as error:
            self._stop(self._stopped(f"it cannot write: {error}"))
        else:
            self._appended.set()

    def recall(self, number: int, query: Query) -> None:
        if self._recalls.qsize() == MOST_WAITING:
            self._recalls.get_nowait()  # the member has forgotten that one, too
        self._recalls.put_nowait((number, query))

    def handled(self, packet: bytes, tag: int, *, refused: bool) -> None:
        messages = None if refused else extent(packet)
        if messages is not None:
            publisher = messages[0]
            if publisher.startswith(ORDERS) or not self.driver.member.follows(publisher):
                messages = None
        self._unsettled.append((tag, messages))
        self._settle()

    def _settle(self) -> None:
        stable = self.store.stable
        settled = 0
        while self._unsettled:
            tag, messages = self._unsettled[0]
            if messages is not None and messages[1] > stable.of(messages[0]):
                break
            settled = tag
            self._unsettled.popleft()
        if settled:
            self.driver.port.settle(settled)

    def failed(self, reason: str, *, recovery: bool) -> None:
        self._stop(self._stopped(reason))

    def broken(self, error: Exception) -> None:
        self._stop(CarrierLost(f"the feed {self.feed} is out of reach: {error}"))

    def faulted(self, fault: Exception) -> None:
        self._stop(MemberFailed(self.feed, fault))
