"""Feeds as sources of endpoints: deliveries that advance the position of a subscription when they are settled.

    feed ─→ subscription ─→ batch ─→ deliveries ─→ processor ─→ all settled ─→ next batch

PFS1  A message counts as processed for the feed, and so for its archives, only when its delivery is acknowledged, and
      with it all earlier ones of its batch: after the handler, and after what follows from the message is confirmed.
PFS2  The next batch is taken when all messages of the last one are settled. A rejected delivery comes again.
PFS3  Messages that the selector does not match never become deliveries.

A message has an id in any case, its own one or `<publisher>-<sequence>`. So idempotent handlers, and steps with state,
recognise a message that is received again after a kill. Importing this module does not load the core of feeds.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

import recado.feeds
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import FieldValue
from recado.client import Delivery
from recado.client.messages import DeliverySource
from recado.feeds.errors import InvalidUrlError
from recado.selector import SelectorError

from .destination import Destination, DestinationLike
from .errors import CompositionError

if TYPE_CHECKING:
    from recado.feeds import FeedConnection, FeedOptions, Message, Subscription
    from recado.feeds.subscription import Recovery

PUBLISHER_HEADER: Final = "x-feed-publisher"
SEQUENCE_HEADER: Final = "x-feed-sequence"
CERTAINTY_HEADER: Final = "x-feed-certainty"


class FeedSource(msgspec.Struct, frozen=True):
    """A feed of that name, from which an endpoint receives missed messages first, then live ones.

    Args:
        name: of the feed.
        subscriber: by which archives identify the endpoint over restarts. Programs do not share the messages of a
            subscriber, so each needs a name of its own.
        recovery: which missed messages come first, as for `recado.feeds.Feed.subscribe`; default none.
        live_without_archive: whether a recovery that finds no archive leaves a gap instead of waiting for one.
        url: of the broker or multicast group of the feed; default the broker of the application.
        stack: the layers of the feed, which all its members share.
        options: timeouts and limits of the feed, which all its members share.
    """

    name: str
    subscriber: str
    recovery: "Recovery" = None
    live_without_archive: bool = False
    url: str | None = None
    stack: str | None = None
    options: "FeedOptions | None" = None

    def __post_init__(self) -> None:
        from recado.feeds.naming import check_feed_name, check_name
        from recado.feeds.subscription import parse_recovery

        try:
            check_feed_name(self.name)
            check_name(self.subscriber, "a subscriber")
            parse_recovery(self.recovery)
        except ValueError as error:
            raise CompositionError(f"feed {self.name!r:.100}: {error}") from None

    def check_selector(self, selector: str) -> None:
        """Raise `CompositionError` with the position of the error if the feed cannot evaluate a selector."""
        from recado.feeds.selector_fields import compile_selector

        try:
            compile_selector(selector, self.name)
        except SelectorError as error:
            raise CompositionError(str(error)) from None


Source: TypeAlias = Destination | FeedSource
SourceLike: TypeAlias = DestinationLike | FeedSource


class FeedIntake:
    """The messages of a subscription as deliveries; it has the interface of a consumer that processors use."""

    def __init__(self, connection: "FeedConnection", subscription: "Subscription") -> None:
        self._connection = connection
        self._subscription = subscription
        self._batch: _FeedBatch | None = None
        self._ready: deque[Delivery] = deque()
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()  # held by the worker that waits for deliveries
        self._is_cancelled = False

    @property
    def is_connected(self) -> bool:
        return self._connection.is_connected

    @property
    def is_receiving(self) -> bool:
        """Whether a recovery, if there is one, has brought messages or has ended."""
        return self._batch is not None or self._subscription.is_live

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        async with self._lock:
            await self._wait_ready()
            if not self._ready:
                raise StopAsyncIteration
            return self._ready.popleft()

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """Iterate over batches."""
        while batch := await self.next_batch():
            yield batch

    async def next_batch(self) -> list[Delivery]:
        """Wait for deliveries and return them; an empty list if this program has cancelled the intake."""
        async with self._lock:
            await self._wait_ready()
            batch = list(self._ready)
            self._ready.clear()
            return batch

    async def _wait_ready(self) -> None:
        """Wait until a delivery is ready, or the intake is cancelled."""
        while not self._ready and not self._is_cancelled:
            if self._batch is None or self._batch.is_settled:
                messages = await self._subscription.next_batch()
                if messages is None:
                    self._is_cancelled = True
                else:
                    self._batch = _FeedBatch(messages, self._handle_settled)
                    self._ready.extend(self._batch.deliveries())
            else:
                self._changed.clear()
                await self._changed.wait()

    def _handle_settled(self, rejected: Delivery | None) -> None:
        if rejected is not None and not self._is_cancelled:
            self._ready.appendleft(rejected)
        self._changed.set()

    async def cancel(self) -> None:
        """Let the processor end after the messages that it handles; the others are not acknowledged."""
        self._is_cancelled = True
        self._ready.clear()
        self._changed.set()
        if self._batch is None or self._batch.is_settled:
            await self.close()  # which ends waiting for the next batch

    async def close(self) -> None:
        """Leave the feed, and acknowledge the messages that were settled."""
        is_finished = True
        batch = self._batch
        if batch is not None and batch.is_open:
            batch.is_open = False
            if not batch.is_settled:
                last = batch.last_of_settled
                if last is None:
                    is_finished = False
                else:
                    self._subscription.mark_finished(last)
        await self._subscription.close(finished=is_finished)

    def next_recovery(self, recovery: "Recovery") -> "Recovery":
        """Return where the next subscription begins: after what this one has processed, if it began at a vector."""
        if isinstance(recovery, recado.feeds.Vector):
            return self._subscription.vector
        return recovery


@asynccontextmanager
async def open_feed(
    source: FeedSource, url: str, selector: str | None, recovery: "Recovery"
) -> AsyncIterator[FeedIntake]:
    """Join a feed, and leave it at the end of the block.

    Raises `CompositionError` for a URL or stack that is invalid, otherwise the errors of `recado.feeds`.
    """
    opening = recado.feeds.connect(
        source.url or url,
        options=source.options,
        reconnect_timeout=None,
        wait_for_broker=source.url is None,
    )
    try:
        connection = await opening.__aenter__()
    except InvalidUrlError as error:
        raise CompositionError(f"feed '{source.name}': {error}") from error
    try:
        try:
            subscription = connection.feed(source.name, stack=source.stack).subscribe(
                source.subscriber,
                selector=selector,
                recovery=recovery,
                live_without_archive=source.live_without_archive,
            )
        except recado.feeds.StackError as error:
            raise CompositionError(f"feed '{source.name}': {error}") from error
        async with subscription:
            intake = FeedIntake(connection, subscription)
            try:
                yield intake
            finally:
                await intake.close()
    finally:
        await connection.close(flush=False)


class _FeedBatch:
    """Consecutive messages of one publisher: the channel of their deliveries, which learns how each ends."""

    def __init__(
        self, messages: "Sequence[Message]", on_settled: Callable[[Delivery | None], object]
    ) -> None:
        self.is_open = True
        self._messages = messages
        self._is_acknowledged = [False] * len(messages)
        self._left_count = len(messages)
        self._on_settled = on_settled

    @property
    def is_settled(self) -> bool:
        return not self._left_count

    @property
    def last_of_settled(self) -> "Message | None":
        """The last message before the first one that is not acknowledged."""
        first_open = self._is_acknowledged.index(False)
        return self._messages[first_open - 1] if first_open else None

    def deliveries(self) -> list[Delivery]:
        return [self._to_delivery(number, each) for number, each in enumerate(self._messages)]

    def _to_delivery(self, number: int, message: "Message") -> Delivery:
        is_repeated = message.certainty is recado.feeds.Certainty.UNCERTAIN
        source = DeliverySource(self, "", is_repeated, f"feed.{message.feed}", message.key, False)
        return Delivery(source, number, _encode_properties(message), message.body)

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        first = 0 if multiple else delivery.delivery_tag
        for number in range(first, delivery.delivery_tag + 1):
            if not self._is_acknowledged[number]:
                self._is_acknowledged[number] = True
                self._left_count -= 1
        self._on_settled(None)
        return self.is_open

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        """Deliver a message again; without `requeue` it is acknowledged. `multiple` is not used by processors."""
        assert not multiple
        if not requeue:
            return self.ack(delivery)
        source = msgspec.structs.replace(delivery.source, redelivered=True)
        self._on_settled(msgspec.structs.replace(delivery, source=source))
        return self.is_open


def _encode_properties(message: "Message") -> bytes:
    """Return the properties of a message with its id, its time, and headers that tell where it is in the feed."""
    identity = f"{message.publisher.hex()}-{message.sequence}"
    place: dict[str, FieldValue] = {
        PUBLISHER_HEADER: message.publisher.hex(),
        SEQUENCE_HEADER: message.sequence,
        CERTAINTY_HEADER: message.certainty.name,
    }
    properties = message.properties or Properties()
    time = message.timestamp // 1_000_000
    try:
        return encode_properties(
            msgspec.structs.replace(
                properties,
                headers={**(properties.headers or {}), **message.headers, **place},
                message_id=message.message_id or properties.message_id or identity,
                timestamp=time if properties.timestamp is None else properties.timestamp,
            )
        )
    except ValueError:  # what AMQP cannot carry, such as a message id of more than 255 bytes
        return encode_properties(Properties(headers=place, message_id=identity, timestamp=time))
