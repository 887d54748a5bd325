"""The archives that a node runs beside its broker, as configured by `[feeds.archives.NAME]`.

They are ordinary members of their feeds, each on a connection of its own to the node's broker. A node without
archives does not import feeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archive.search import ArchiveSearch, SearchResult
from recado.feeds.archive_summary import ArchiveSummary, SubscriberDelivery
from recado.feeds.archiver import ArchiveOptions, Archiver
from recado.feeds.connection import FeedConnection
from recado.feeds.errors import FeedError
from recado.feeds.naming import archive_queue_name
from recado.feeds.stack import StackError
from recado.node.address import build_local_url
from recado.node.settings import ArchiveSettings, Settings

log = logging.getLogger("recado.node")

ARCHIVES_FOLDER = "feeds"
"""Within the data folder, for archives without a folder of their own."""


class ArchiveStartError(OSError):
    """A configured archive does not start; the text names it and the reason."""


class NodeArchive(msgspec.Struct, frozen=True):
    """The progress of an archive that the node runs."""

    name: str
    feed: str
    vhost: str
    queue: str
    """Where the packets of the feed wait until they are stored."""
    is_storing: bool
    stored_count: int
    """Rows on disk since the archive was created, deleted ones included."""
    unsynced_count: int
    unsealed_count: int
    """Rows on disk that are in the journal, not yet in a Parquet file."""
    lag_s: float


class NodeArchives:
    """The running archives of a node."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._archivers: list[tuple[str, Archiver]] = []
        """With the vhost of each."""

    @classmethod
    async def start(cls, settings: Settings, address: str) -> NodeArchives:
        """Start all configured archives. If one fails, stop the others and raise `ArchiveStartError`."""
        archives = cls()
        try:
            for name, archive_settings in settings.feeds.archives.items():
                await archives._start_archive(name, archive_settings, settings, address)
        except BaseException:
            await archives.stop()
            raise
        return archives

    async def _start_archive(
        self, name: str, archive_settings: ArchiveSettings, settings: Settings, address: str
    ) -> None:
        try:
            url = build_local_url(settings, address, archive_settings.vhost)
            link = await self._stack.enter_async_context(
                FeedConnection(url, reconnect_timeout=None)
            )
            archive = link.archive(
                archive_settings.feed,
                archive_folder(settings, name),
                name=name,
                stack=archive_settings.stack,
                archive_options=build_archive_options(archive_settings),
            )
            await self._stack.enter_async_context(archive)
        except (FeedError, ArchiveError, StackError, ValueError) as error:
            raise ArchiveStartError(f"feeds.archives.{name}: {error}") from error
        self._archivers.append((archive_settings.vhost, archive))
        self._tasks.append(asyncio.create_task(run_archive(name, archive)))

    def measure_progress(self) -> Iterator[NodeArchive]:
        """Return the progress of each archive."""
        for vhost, archiver in self._archivers:
            progress = archiver.measure_progress()
            yield NodeArchive(
                name=archiver.name,
                feed=archiver.feed,
                vhost=vhost,
                queue=archive_queue_name(archiver.feed, archiver.name),
                is_storing=archiver.is_storing,
                stored_count=progress.durable_offset,
                unsynced_count=progress.unsynced_count,
                unsealed_count=max(progress.durable_offset - progress.sealed_offset, 0),
                lag_s=progress.lag_s,
            )

    def summarize(self, vhost: str, feed: str) -> list[ArchiveSummary]:
        """Return the summaries of the archives of a feed."""
        return [archiver.summarize() for archiver in self._archivers_of(vhost, feed)]

    async def assess_subscriber(
        self, vhost: str, feed: str, subscriber: str
    ) -> list[SubscriberDelivery]:
        """Return what each archive of a feed knows about a subscriber; those without a record of it are left out."""
        found = [
            await archiver.assess_subscriber(subscriber)
            for archiver in self._archivers_of(vhost, feed)
        ]
        return [each for each in found if each is not None]

    async def search(
        self, vhost: str, feed: str, name: str | None, wanted: ArchiveSearch
    ) -> tuple[str, SearchResult] | None:
        """Search an archive of a feed, the first one without a name; None if there is none. Raises `ArchiveError`."""
        for archiver in self._archivers_of(vhost, feed):
            if name in (None, archiver.name):
                return archiver.name, await archiver.search(wanted)
        return None

    def _archivers_of(self, vhost: str, feed: str) -> list[Archiver]:
        return [
            archiver
            for of_vhost, archiver in self._archivers
            if of_vhost == vhost and archiver.feed == feed
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


async def run_archive(name: str, archive: Archiver) -> None:
    """Run an archive until it fails. The broker continues without it; its messages wait in its queue."""
    try:
        await archive.run()
    except FeedError as error:
        log.error("archive stopped: %s (archive=feeds.archives.%s)", error, name)


def archive_folder(settings: Settings, name: str) -> Path:
    """Return the folder of a configured archive."""
    folder = settings.feeds.archives[name].folder
    return Path(folder) if folder else Path(settings.node.data or ".") / ARCHIVES_FOLDER / name


def build_archive_options(settings: ArchiveSettings) -> ArchiveOptions:
    return ArchiveOptions(
        seal_rows=settings.seal_rows,
        seal_interval=settings.seal_interval,
        grace=settings.grace,
        retention=RetentionLimits(settings.max_age, settings.max_messages, settings.max_share),
    )
