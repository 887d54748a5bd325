"""Feeds for programs without an event loop: the same names, and calls that return when it is done.

    with recado.connect_blocking("amqp://guest:guest@localhost") as link:
        feed = link.feed("quotes")
        feed.publish(b"…", key="PETR4")
        with feed.subscribe("desk-1", recovery="pessimistic") as messages:
            for message in messages:
                …

All of a link runs in one thread with a loop of its own. Many messages at a time cost one hand-over:
publish_many, and the batches that iteration fetches by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from os import PathLike
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

from recado.amqp.properties import Properties
from recado.amqp.values import Value

from .boundary import Options
from .feed import Feed
from .gathering import BATCH_BYTES, WINDOW
from .link import GIVE_UP, Link
from .message import Message
from .subscription import Messages, OnView, Recovery, Subscription
from .vector import Vector
from .views import Lost, View

if TYPE_CHECKING:
    from .archivist import Archivist, Upkeep

T = TypeVar("T")


class LoopThread:
    """A thread that runs a loop, and what is given to it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._live, name="recado-feeds", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Its result. A `TimeoutError` ends the work."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class BlockingLink:
    def __init__(
        self,
        url: str,
        *,
        options: Options | None = None,
        give_up: float | None = GIVE_UP,
        patient: bool = False,
    ) -> None:
        self.url = url
        self._thread: LoopThread | None = None
        self._link = Link(url, options=options, give_up=give_up, patient=patient)

    def __enter__(self) -> Self:
        self._thread = LoopThread()
        try:
            self._thread.run(self._link.__aenter__())
        except BaseException:
            self._thread.end()
            self._thread = None
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.run(self._link.close(flush=kind is None))
            finally:
                thread.end()

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError(
                "the link is not open: use `with recado.connect_blocking(…) as link`"
            )
        return self._thread

    def feed(
        self,
        name: str,
        *,
        stack: str | None = None,
        options: Options | None = None,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW,
    ) -> BlockingFeed:
        thread = self._running()
        feed = thread.run(
            self._link.feed(
                name, stack=stack, options=options, batch_bytes=batch_bytes, window=window
            )
        )
        return BlockingFeed(thread, feed)

    def archive(
        self,
        feed: str,
        folder: str | PathLike[str],
        *,
        name: str = "archive",
        stack: str | None = None,
        options: Options | None = None,
        upkeep: Upkeep | None = None,
    ) -> BlockingArchive:
        async def make() -> Archivist:
            return self._link.archive(
                feed, folder, name=name, stack=stack, options=options, upkeep=upkeep
            )

        thread = self._running()
        return BlockingArchive(thread, thread.run(make()))


class BlockingFeed:
    def __init__(self, thread: LoopThread, feed: Feed) -> None:
        self._thread = thread
        self._feed = feed
        self.name = feed.name

    @property
    def publisher(self) -> bytes:
        return self._feed.publisher

    @property
    def published(self) -> int:
        return self._feed.published

    @property
    def confirmed(self) -> int:
        return self._feed.confirmed

    def publish(
        self,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, Value] | None = None,
        message_id: str = "",
        properties: Properties | None = None,
    ) -> int:
        return self._thread.run(
            self._feed.publish(
                body, key=key, headers=headers, message_id=message_id, properties=properties
            )
        )

    def publish_many(
        self,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] | str = "",
        message_ids: Sequence[str] | str = "",
        headers: Mapping[str, Value] | None = None,
        properties: Properties | None = None,
    ) -> range:
        return self._thread.run(
            self._feed.publish_many(
                bodies, keys=keys, message_ids=message_ids, headers=headers, properties=properties
            )
        )

    def flush(self, timeout: float | None = None) -> None:
        self._thread.run(self._feed.flush(), timeout)

    def subscribe(
        self,
        name: str,
        *,
        selector: str | None = None,
        recovery: Recovery = None,
        live_without_archive: bool = False,
        on_view: OnView | None = None,
    ) -> BlockingSubscription:
        """`on_view` is called in the link's thread."""

        async def make() -> Subscription:
            return self._feed.subscribe(
                name,
                selector=selector,
                recovery=recovery,
                live_without_archive=live_without_archive,
                on_view=on_view,
            )

        return BlockingSubscription(self._thread, self._thread.run(make()))

    def close(self) -> None:
        self._thread.run(self._feed.close())


class BlockingSubscription:
    def __init__(self, thread: LoopThread, subscription: Subscription) -> None:
        self._thread = thread
        self._subscription = subscription

    @property
    def vector(self) -> Vector:
        return self._subscription.vector

    @property
    def view(self) -> View | None:
        return self._subscription.view

    @property
    def lost(self) -> list[Lost]:
        return self._subscription.lost

    @property
    def is_live(self) -> bool:
        return self._subscription.is_live

    def __enter__(self) -> Self:
        self._thread.run(self._subscription.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.run(self._subscription.close(finished=kind is None))

    def __iter__(self) -> Iterator[Message]:
        while (batch := self._thread.run(self._subscription.take())) is not None:
            yield from self._subscription.walk(batch)

    def next_batch(self, timeout: float | None = None) -> Messages | None:
        """None when the subscription was closed; `TimeoutError` if nothing came."""
        return self._thread.run(self._subscription.next_batch(), timeout)


class BlockingArchive:
    def __init__(self, thread: LoopThread, archive: Archivist) -> None:
        self._thread = thread
        self._archive = archive

    @property
    def vector(self) -> Vector:
        return self._archive.vector

    def __enter__(self) -> Self:
        self._thread.run(self._archive.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._archive.close())

    def run(self, timeout: float | None = None) -> None:
        """Until it has to stop, which is an error, or for so many seconds: a `TimeoutError`."""
        self._thread.run(self._archive.run(), timeout)
