"""Archives of the feeds, from before the job starts until everything is counted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import recado.feeds
from bench.pipeline_crash.routes import Layout
from recado.feeds.archive.archive import Archive
from recado.feeds.blocking import BlockingArchiver, BlockingFeedConnection

END: Final = b"end"
PATIENCE: Final = 60.0  # seconds until an archive must have all that was published
LOOK: Final = 0.05


class ListenerSilentError(RuntimeError):
    """An archive did not receive a published message."""


class Listener:
    def __init__(
        self, folder: Path, link: BlockingFeedConnection, archives: Mapping[str, BlockingArchiver]
    ) -> None:
        self._folder = folder
        self._link = link
        self._archives = archives

    def heard(self, feed: str) -> list[tuple[int, str]]:
        """The numbers on the feed, and the ids of their messages, when all is there that was published."""
        self._await_end(feed)
        with Archive.open(self._folder / feed) as archive:
            return [
                (int(message.body), message.message_id or "")
                for message in archive.messages()
                if message.body != END
            ]

    def _await_end(self, feed: str) -> None:
        """On a broker of recado all queues see one order, so earlier messages arrive earlier."""
        publishing = self._link.feed(feed)
        publishing.publish(END)
        publishing.flush(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while not self._archives[feed].vector.last_of(publishing.publisher):
            if time.monotonic() > deadline:
                raise ListenerSilentError(
                    f"the archive of {feed} did not hear its end within {PATIENCE:g} s"
                )
            time.sleep(LOOK)  # an archive reports no progress


@contextmanager
def listening(folder: Path, layout: Layout) -> Iterator[Listener]:
    folder.mkdir()
    with ExitStack() as stack:
        link = stack.enter_context(recado.feeds.connect_blocking(layout.urls["recado"]))
        archives = {
            feed: stack.enter_context(link.archive(feed, folder / feed)) for feed in layout.feeds
        }
        yield Listener(folder, link, archives)
