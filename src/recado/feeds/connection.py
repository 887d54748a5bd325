"""A connection to the broker, or to a multicast group, that all feeds of a program share.

async with recado.feeds.connect("amqp://guest:guest@localhost") as connection:
    feed = connection.feed("quotes")

amqp://… amqps://…      a broker: recado or RabbitMQ
udp://239.255.42.1:PORT?interface=127.0.0.1      no broker: multicast on the local network
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from os import PathLike
from typing import TYPE_CHECKING, Final, Self

from .coalescer import BATCH_BYTES, MAX_IN_FLIGHT_BATCHES
from .driver import resolve_stack
from .errors import FeedClosedError
from .feed import Feed, ResumePoint
from .naming import check_feed_name, check_name
from .options import FeedOptions
from .transport.endpoint import FeedTransport
from .transport.factory import open_transport
from .views import Role

if TYPE_CHECKING:
    from .archiver import ArchiveOptions, Archiver

RECONNECT_TIMEOUT_S: Final = 300.0
"""Default of `reconnect_timeout`."""


class FeedConnection:
    """Opened by `async with`; leaving the block flushes and closes its feeds and archivers."""

    def __init__(
        self,
        url: str,
        *,
        options: FeedOptions | None = None,
        reconnect_timeout: float | None = RECONNECT_TIMEOUT_S,
        wait_for_broker: bool = False,
    ) -> None:
        """`reconnect_timeout` is the number of seconds to keep reconnecting to a lost broker before feeds fail
        with `TransportLostError`; None retries forever. If the broker is absent at the start, entering fails at
        once, unless `wait_for_broker` is set."""
        self.url = url
        self._wait_for_broker = wait_for_broker
        self._options = options or FeedOptions()
        self._reconnect_timeout = reconnect_timeout
        self._transport: FeedTransport | None = None
        self._feeds: list[Feed] = []
        self._archivers: list[Archiver] = []

    @classmethod
    def over_transport(
        cls, transport: FeedTransport, *, options: FeedOptions | None = None
    ) -> Self:
        """Return an open connection over an existing transport, such as one in memory."""
        link = cls("", options=options)
        link._transport = transport
        return link

    async def __aenter__(self) -> Self:
        if self._transport is None:
            self._transport = await open_transport(
                self.url, self._reconnect_timeout, wait_for_broker=self._wait_for_broker
            )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    async def close(self, *, flush: bool = True) -> None:
        transport, self._transport = self._transport, None
        if transport is None:
            return
        # Closes archivers and feeds, then the transport, also if closing one of them fails.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(transport.close)
            for feed in self._feeds:
                closing.push_async_callback(feed.close, flush=flush)
            for archive in self._archivers:
                closing.push_async_callback(archive.close)

    def _get_transport(self) -> FeedTransport:
        if self._transport is None:
            raise FeedClosedError(
                "the connection is not open: use `async with recado.feeds.connect(…) as connection`"
            )
        return self._transport

    @property
    def is_connected(self) -> bool:
        """Whether the connection is open, and not reconnecting to its broker at the moment."""
        return self._transport is not None and self._transport.is_connected

    def feed(
        self,
        name: str,
        *,
        stack: str | None = None,
        options: FeedOptions | None = None,
        batch_bytes: int = BATCH_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT_BATCHES,
        resume: ResumePoint | None = None,
    ) -> Feed:
        """Return a feed to publish on and to subscribe to.

        `stack` names the layers, top to bottom. `options` replaces those of the connection. A batch
        is sent when it reaches `batch_bytes`; `max_in_flight` limits the number of unconfirmed batches. With `resume`,
        continue as an earlier publisher. Raises `FeedClosedError` if the connection is not open, `StackError`
        for an invalid stack, `ValueError` for an invalid name.
        """
        transport = self._get_transport()
        resolve_stack(stack, Role.SUBSCRIBER, transport.layer_name)
        feed = Feed(
            transport,
            name,
            stack,
            options or self._options,
            batch_bytes=batch_bytes,
            max_in_flight=max_in_flight,
            resume=resume,
        )
        self._feeds = [*(each for each in self._feeds if not each.is_closed), feed]
        return feed

    def archive(
        self,
        feed: str,
        folder: str | PathLike[str],
        *,
        name: str = "archive",
        stack: str | None = None,
        options: FeedOptions | None = None,
        archive_options: ArchiveOptions | None = None,
    ) -> Archiver:
        """Return an archiver that stores a feed in a folder; it runs while its `async with` block lasts.

        `name` identifies the archive in the feed. `archive_options` say when rows are sealed and deleted.
        Raises `FeedClosedError` if the connection is not open, `StackError` for an invalid stack, `ValueError`
        for an invalid name.
        """
        from .archiver import ArchiveOptions, Archiver

        transport = self._get_transport()
        resolve_stack(stack, Role.ARCHIVE, transport.layer_name)
        archive = Archiver(
            transport,
            check_feed_name(feed),
            folder,
            check_name(name, "an archive"),
            stack=stack,
            options=options or self._options,
            archive_options=archive_options or ArchiveOptions(),
        )
        self._archivers = [*(each for each in self._archivers if not each.is_closed), archive]
        return archive
