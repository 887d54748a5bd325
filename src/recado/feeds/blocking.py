"""Feeds for programs without an event loop: the same names, with calls that block until they are done.

    with recado.feeds.connect_blocking("amqp://guest:guest@localhost") as connection:
        feed = connection.feed("quotes")
        feed.publish(b"…", key="PETR4")
        with feed.subscribe("desk-1", recovery="pessimistic") as messages:
            for message in messages:
                …

A connection has one thread with an event loop; `on_view` callbacks run there. Each call is handed over to that
thread, so `publish_many`, and the batches that iteration fetches, cost much less per message.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from recado.client.loop_thread import (
    LoopThread,
    LoopThreadProxy,
    make_blocking_factory,
    make_blocking_method,
)

from .connection import FeedConnection
from .errors import FeedClosedError
from .feed import Feed
from .message import Message
from .subscription import DeliveredBatch, Subscription
from .vector import Vector
from .views import LostRange, View

if TYPE_CHECKING:
    from .archiver import Archiver

P = ParamSpec("P")
T = TypeVar("T")


def call_in_loop(method: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Wrap a function that waits for nothing but must run in the event loop."""

    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(*args, **kwargs)

    return update_wrapper(call, method)


class BlockingSubscription(LoopThreadProxy[Subscription]):
    @property
    def vector(self) -> Vector:
        return self._inner.vector

    @property
    def view(self) -> View | None:
        return self._inner.view

    @property
    def lost(self) -> list[LostRange]:
        return self._inner.lost

    @property
    def is_live(self) -> bool:
        return self._inner.is_live

    def __enter__(self) -> Self:
        self._run(self._inner.__aenter__())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._run(self._inner.close(finished=kind is None))

    def __iter__(self) -> Iterator[Message]:
        while (batch := self._run(self._inner._take_batch())) is not None:
            yield from self._inner._iterate_batch(batch)

    def next_batch(self, timeout: float | None = None) -> DeliveredBatch | None:
        """Return the next batch, or None when the subscription is closed. Raises `TimeoutError`."""
        return self._run(self._inner.next_batch(), timeout)


class BlockingFeed(LoopThreadProxy[Feed]):
    publish = make_blocking_method(Feed.publish)
    publish_many = make_blocking_method(Feed.publish_many)
    subscribe = make_blocking_factory(BlockingSubscription, call_in_loop(Feed.subscribe))
    close = make_blocking_method(Feed.close)

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def publisher(self) -> bytes:
        return self._inner.publisher

    @property
    def last_sequence(self) -> int:
        return self._inner.last_sequence

    @property
    def confirmed_sequence(self) -> int:
        return self._inner.confirmed_sequence

    def flush(self, timeout: float | None = None) -> None:
        self._run(self._inner.flush(), timeout)


class BlockingArchiver(LoopThreadProxy["Archiver"]):
    _inner: Archiver  # not imported at run time, because its module needs pyarrow

    @property
    def vector(self) -> Vector:
        return self._inner.vector

    def __enter__(self) -> Self:
        self._run(self._inner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._inner.close())

    def run(self, timeout: float | None = None) -> None:
        """Block until the archiver has to stop, and raise the error; with `timeout`, raise `TimeoutError` after
        that many seconds."""
        self._run(self._inner.run(), timeout)


class BlockingFeedConnection(LoopThreadProxy[FeedConnection]):
    """The blocking twin of `FeedConnection`; its thread runs inside the `with` block."""

    def __init__(self, connection: FeedConnection) -> None:
        super().__init__(LoopThread("recado feeds", connection_closed_error), connection)

    @property
    def url(self) -> str:
        return self._inner.url

    feed = make_blocking_factory(BlockingFeed, call_in_loop(FeedConnection.feed))
    archive = make_blocking_factory(BlockingArchiver, call_in_loop(FeedConnection.archive))

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._inner.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._run(self._inner.close(flush=kind is None))
        finally:
            self._thread.stop()


def connection_closed_error() -> FeedClosedError:
    return FeedClosedError(
        "the connection is not open: use `with recado.feeds.connect_blocking(…) as connection`"
    )
