"""Archives that a node runs beside its broker, by its configuration: `[feeds.archives.NAME]`.

They are ordinary members of their feeds, on a connection of their own to this very broker. Nothing of feeds is
loaded by a node without them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path

from recado.feeds.archive.collection import Limits
from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archivist import Archivist, Upkeep
from recado.feeds.errors import FeedError
from recado.feeds.link import Link
from recado.feeds.stack import StackError
from recado.node.login import url_for
from recado.node.settings import ArchiveSettings, Settings

log = logging.getLogger("recado.node")

FOLDER = "feeds"
"""Within the data folder, for those that have none of their own."""


class CannotArchive(OSError):
    """An archive of the configuration does not start; the text says which, and why."""


class Archives:
    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._watches: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: Settings, address: str) -> Archives:
        """All of them, or none: what prevents one is raised."""
        archives = cls()
        try:
            for name, chosen in settings.feeds.archives.items():
                await archives._begin(name, chosen, settings, address)
        except BaseException:
            await archives.stop()
            raise
        return archives

    async def _begin(
        self, name: str, chosen: ArchiveSettings, settings: Settings, address: str
    ) -> None:
        try:
            url = url_for(settings, address, chosen.vhost)
            link = await self._stack.enter_async_context(Link(url, give_up=None))
            archive = link.archive(
                chosen.feed,
                folder_for(settings, name),
                name=name,
                stack=chosen.stack,
                upkeep=upkeep_of(chosen),
            )
            await self._stack.enter_async_context(archive)
        except (FeedError, ArchiveError, StackError, ValueError) as error:
            raise CannotArchive(f"feeds.archives.{name}: {error}") from error
        self._watches.append(asyncio.create_task(watch(name, archive)))

    async def stop(self) -> None:
        for task in self._watches:
            task.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self._stack.aclose()


async def watch(name: str, archive: Archivist) -> None:
    """The broker goes on without an archive that had to stop; what it misses waits in its queue."""
    try:
        await archive.run()
    except FeedError as error:
        log.error("feeds.archives.%s: %s", name, error)


def folder_for(settings: Settings, name: str) -> Path:
    """Where the archive of that name is."""
    folder = settings.feeds.archives[name].folder
    return Path(folder) if folder else Path(settings.node.data or ".") / FOLDER / name


def upkeep_of(chosen: ArchiveSettings) -> Upkeep:
    return Upkeep(
        seal_rows=chosen.seal_rows,
        seal_seconds=chosen.seal_seconds,
        grace=chosen.grace,
        limits=Limits(chosen.max_age, chosen.max_messages, chosen.max_share),
    )
