"""Archives that a node runs beside its broker, by its configuration: `[feeds.archives.NAME]`.

They are ordinary members of their feeds, on a connection of their own to this very broker. Nothing of feeds is
loaded by a node without them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.retention import RetentionLimits
from recado.feeds.archiver import ArchiveOptions, Archiver
from recado.feeds.connection import FeedConnection
from recado.feeds.errors import FeedError
from recado.feeds.stack import StackError
from recado.node.login import build_local_url
from recado.node.settings import ArchiveSettings, Settings

log = logging.getLogger("recado.node")

ARCHIVES_FOLDER = "feeds"
"""Within the data folder, for those that have none of their own."""


class ArchiveStartError(OSError):
    """An archive of the configuration does not start; the text says which, and why."""


class NodeArchives:
    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: Settings, address: str) -> NodeArchives:
        """All of them, or none: what prevents one is raised."""
        archives = cls()
        try:
            for name, chosen in settings.feeds.archives.items():
                await archives._start_archive(name, chosen, settings, address)
        except BaseException:
            await archives.stop()
            raise
        return archives

    async def _start_archive(
        self, name: str, chosen: ArchiveSettings, settings: Settings, address: str
    ) -> None:
        try:
            url = build_local_url(settings, address, chosen.vhost)
            link = await self._stack.enter_async_context(
                FeedConnection(url, reconnect_timeout=None)
            )
            archive = link.archive(
                chosen.feed,
                archive_folder(settings, name),
                name=name,
                stack=chosen.stack,
                archive_options=build_upkeep(chosen),
            )
            await self._stack.enter_async_context(archive)
        except (FeedError, ArchiveError, StackError, ValueError) as error:
            raise ArchiveStartError(f"feeds.archives.{name}: {error}") from error
        self._tasks.append(asyncio.create_task(run_archive(name, archive)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()


async def run_archive(name: str, archive: Archiver) -> None:
    """The broker goes on without an archive that had to stop; what it misses waits in its queue."""
    try:
        await archive.run()
    except FeedError as error:
        log.error("feeds.archives.%s: %s", name, error)


def archive_folder(settings: Settings, name: str) -> Path:
    """Where the archive of that name is."""
    folder = settings.feeds.archives[name].folder
    return Path(folder) if folder else Path(settings.node.data or ".") / ARCHIVES_FOLDER / name


def build_upkeep(chosen: ArchiveSettings) -> ArchiveOptions:
    return ArchiveOptions(
        seal_rows=chosen.seal_rows,
        seal_interval=chosen.seal_interval,
        grace=chosen.grace,
        retention=RetentionLimits(chosen.max_age, chosen.max_messages, chosen.max_share),
    )
