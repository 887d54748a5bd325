"""The link: where a program meets feeds. One for a program is enough; all its feeds share it.

async with recado.connect("amqp://guest:guest@localhost") as link:
    feed = await link.feed("quotes")

amqp://… amqps://…      a broker: recado or RabbitMQ
udp://239.255.42.1:PORT?interface=127.0.0.1      no broker: multicast on the local network
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from os import PathLike
from typing import TYPE_CHECKING, Final, Self

from .boundary import Options
from .driver import stack_for
from .errors import FeedClosed
from .feed import Earlier, Feed
from .gathering import BATCH_BYTES, WINDOW
from .naming import check_feed, check_name
from .transport.opening import carrier_for
from .transport.port import Carrier
from .views import Role

if TYPE_CHECKING:
    from .archivist import Archivist, Upkeep

GIVE_UP: Final = 300.0
"""Seconds without a broker."""


class Link:
    """Opened by `async with`; leaving it flushes and closes what was made of it."""

    def __init__(
        self,
        url: str,
        *,
        options: Options | None = None,
        give_up: float | None = GIVE_UP,
        patient: bool = False,
    ) -> None:
        """`give_up` is after how many seconds without a broker everything fails; None is never.

        Without a broker at the start it fails at once, unless it is `patient`.
        """
        self.url = url
        self._patient = patient
        self._options = options or Options()
        self._give_up = give_up
        self._carrier: Carrier | None = None
        self._feeds: list[Feed] = []
        self._archives: list[Archivist] = []

    @classmethod
    def over(cls, carrier: Carrier, *, options: Options | None = None) -> Self:
        """A link over a carrier that is there already, such as one in memory; it is open."""
        link = cls("", options=options)
        link._carrier = carrier
        return link

    async def __aenter__(self) -> Self:
        if self._carrier is None:
            self._carrier = await carrier_for(self.url, self._give_up, patient=self._patient)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(flush=kind is None)

    async def close(self, *, flush: bool = True) -> None:
        carrier, self._carrier = self._carrier, None
        if carrier is None:
            return
        async with AsyncExitStack() as closing:  # archives, feeds, the carrier: all, whatever fails
            closing.push_async_callback(carrier.close)
            for feed in self._feeds:
                closing.push_async_callback(feed.close, flush=flush)
            for archive in self._archives:
                closing.push_async_callback(archive.close)

    def _open(self) -> Carrier:
        if self._carrier is None:
            raise FeedClosed("the link is not open: use `async with recado.connect(…) as link`")
        return self._carrier

    async def feed(
        self,
        name: str,
        *,
        stack: str | None = None,
        options: Options | None = None,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW,
        earlier: Earlier | None = None,
    ) -> Feed:
        """A feed to publish on and to subscribe to.

        `stack` names the layers, top to bottom; a wrong one is a `StackError` that says what would be right.
        """
        carrier = self._open()
        stack_for(stack, Role.SUBSCRIBER, carrier.transport)
        feed = Feed(
            carrier,
            name,
            stack,
            options or self._options,
            batch_bytes=batch_bytes,
            window=window,
            earlier=earlier,
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
        options: Options | None = None,
        upkeep: Upkeep | None = None,
    ) -> Archivist:
        """An archive of a feed, in a folder of its own; it runs while its `async with` lasts."""
        from .archivist import Archivist, Upkeep

        carrier = self._open()
        stack_for(stack, Role.ARCHIVE, carrier.transport)
        archive = Archivist(
            carrier,
            check_feed(feed),
            folder,
            check_name(name, "an archive"),
            stack=stack,
            options=options or self._options,
            upkeep=upkeep or Upkeep(),
        )
        self._archives = [*(each for each in self._archives if not each.is_closed), archive]
        return archive
