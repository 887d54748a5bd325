"""A subscription: missed messages first, then live ones.

    async with feed.subscribe("desk-1", recovery="pessimistic") as messages:
        async for message in messages:
            …                                  # messages.vector covers all messages so far

SU1  Messages of each publisher arrive in order, without duplicates and gaps, except for those in `lost`.
SU2  `vector` covers the messages that the application received; lost messages are holes in it. Saved in the
     same transaction as the results, and passed as `recovery` the next time, it gives exactly-once processing.
SU3  A view is acknowledged only after the application asked for the message after it: messages that it did not
     receive, or had not finished when it died, are never called delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, Literal, Self, TypeAlias, overload

from .boundary import ARCHIVES, MessageBatch
from .driver import Driver, MemberListener
from .errors import FeedError, JoinError, MemberFailedError, RecoveryError, TransportLostError
from .inbox import Inbox
from .message import Message, decode_messages
from .options import RecoveryPolicy
from .vector import MAX_SEQUENCE_ID, DeliveryProgress, Span, Vector, clip_spans
from .views import Certainty, LostRange, View

Recovery: TypeAlias = Literal["optimistic", "pessimistic", "archive"] | Vector | None
MessageFilter: TypeAlias = Callable[[Message], bool]
ViewCallback: TypeAlias = Callable[[View], object]

INBOX_LIMIT_BYTES: Final = 16 << 20
"""Backpressure: with this many bytes in the inbox, neither the transport nor an archive should send more."""

MAX_TAKEN_MESSAGES: Final = 10_000
"""Default limit of `next_batches`."""

log = logging.getLogger("recado.feeds")


def parse_recovery(recovery: Recovery) -> tuple[RecoveryPolicy, Vector]:
    """Translate the `recovery` argument; raise `ValueError` if it is invalid."""
    match recovery:
        case None | "optimistic":
            return RecoveryPolicy.NONE, Vector()
        case "pessimistic":
            return RecoveryPolicy.PESSIMISTIC, Vector()
        case "archive":
            return RecoveryPolicy.ARCHIVE, Vector()
        case Vector():
            return RecoveryPolicy.VECTOR, recovery
        case _:
            raise ValueError(
                f"recovery must be optimistic, pessimistic, archive, a Vector or None, not {recovery!r}"
            )


class DeliveredBatch(Sequence[Message]):
    """Consecutive messages of one publisher, decoded on first access; with a selector, those that match."""

    def __init__(
        self, feed: str, batch: MessageBatch, filter_: MessageFilter | None = None
    ) -> None:
        self._feed = feed
        self._batch = batch
        self._filter = filter_
        self._messages: list[Message] | None = None

    @property
    def publisher(self) -> bytes:
        """The publisher of all messages of the batch."""
        return self._batch.publisher

    @property
    def certainty(self) -> Certainty:
        """The certainty of all messages of the batch."""
        return self._batch.certainty

    def _decode(self) -> list[Message]:
        if self._messages is None:
            messages = decode_messages(self._feed, self._batch)
            self._messages = (
                messages if self._filter is None else list(filter(self._filter, messages))
            )
        return self._messages

    def __len__(self) -> int:
        return self._batch.count if self._filter is None else len(self._decode())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._decode())

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._decode()[index]


class Subscription:
    """Yields the messages of a feed; made by `Feed.subscribe` and entered once, by `async with`."""

    def __init__(
        self,
        feed: str,
        name: str,
        join: Callable[[Subscription, MemberListener], Awaitable[Driver]],
        *,
        start: Vector,
        filter_: MessageFilter | None = None,
        on_view: ViewCallback | None = None,
        join_timeout: float = 30.0,
    ) -> None:
        self.feed = feed
        self.name = name
        self.view: View | None = None
        """The view that the application has reached."""
        self.lost: list[LostRange] = []
        """Lost messages: no reachable member or archive has them."""
        self.is_live = False
        """Whether all missed messages have been taken."""
        self._join = join
        self._filter = filter_
        self._on_view = on_view
        self._join_timeout = join_timeout
        self._inbox = Inbox()
        self._progress = DeliveryProgress(start)
        self._listener = _SubscriptionListener(self, self._inbox)
        self._entered = False
        self._closed = False
        self._unfinished: dict[bytes, list[Span]] = {}
        """Messages that the application is processing, by publisher; an empty list stands for the message
        that was yielded last."""
        self._current_batch: MessageBatch | None = None
        """The batch that is being iterated."""
        self._remaining: Iterator[Message] = iter(())
        """The messages of the current batch that were not yielded yet."""
        self._hole_position: int | None = None
        """The last sequence yielded, if the current batch fills a hole."""

    # --- for the application

    @property
    def vector(self) -> Vector:
        """The messages received so far, with lost ones as holes; to be saved and passed as `recovery`."""
        return self._progress.snapshot()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def buffered_bytes(self) -> int:
        """Bytes that have arrived and were not taken."""
        return self._inbox.buffered_bytes

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a subscription can be entered only once; subscribe again")
        self._entered = True
        try:
            await self._join(self, self._listener)
            async with asyncio.timeout(self._join_timeout):
                await self._listener.joined
        except BaseException as error:
            self._closed = True
            if self._listener.attached is not None:
                await self._listener.attached.stop()
            if isinstance(error, TimeoutError):
                raise JoinError(
                    f"{self.name} could not join feed {self.feed} within {self._join_timeout:g} s",
                    "Its members do not answer; `recado feed members` lists them.",
                ) from error
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(finished=kind is None)

    async def close(self, *, finished: bool = True) -> None:
        """Leave the feed and acknowledge the processed messages. With `finished=False`, the messages that the
        application is still processing are not acknowledged. A concurrent iteration ends."""
        self._inbox.close()
        self._current_batch = None
        deque(self._remaining, maxlen=0)  # exhaust it, so that a running iteration ends
        if self._listener.attached is not None and not self._closed:
            self._closed = True
            for publisher, spans in () if finished else self._unfinished.items():
                last = self._progress.entries[publisher]
                for span in spans or [(last, last)]:
                    self._progress.withdraw(publisher, *span)
            await self._listener.attached.leave(self.vector)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (batch := await self._take_batch()) is not None:
            for message in self._iterate_batch(batch):
                yield message

    async def batches(self) -> AsyncIterator[DeliveredBatch]:
        """Iterate over batches, which is much cheaper than over messages."""
        while (messages := await self.next_batch()) is not None:
            yield messages

    async def next_batch(self) -> DeliveredBatch | None:
        """Return the next batch, or None when the subscription is closed."""
        self._unfinished = {}
        while (batch := await self._take_batch()) is not None:
            self._unfinished = {}
            messages = self._hand_out(batch)
            if self._filter is None or len(messages):
                return messages
        return None

    async def next_batches(self, max_messages: int = MAX_TAKEN_MESSAGES) -> list[DeliveredBatch]:
        """Return the next batch and those that have arrived after it, up to about `max_messages` messages: for
        programs with a high cost per step, such as a transaction. Empty when the subscription is closed."""
        first = await self.next_batch()
        if first is None:
            return []
        found, count = [first], first._batch.count
        while count < max_messages and (batch := self._inbox.take_ready()) is not None:
            count += batch.count
            messages = self._hand_out(batch)
            if self._filter is None or len(messages):
                found.append(messages)
        self._listener.update_backpressure()
        return found

    def _hand_out(self, batch: MessageBatch) -> DeliveredBatch:
        self._unfinished.setdefault(batch.publisher, []).append((batch.first, batch.last))
        self._progress.deliver(batch.publisher, batch.first, batch.last)
        return DeliveredBatch(self.feed, batch, self._filter)

    def mark_finished(self, message: Message) -> None:
        """Remove the messages after this one from `vector`, for a caller that leaves in the middle of a batch. Only
        messages of the same publisher in the current batches are removed."""
        for publisher, spans in self._unfinished.items():
            for span in clip_spans(spans, message.sequence + 1, MAX_SEQUENCE_ID):
                if publisher == message.publisher:
                    self._progress.withdraw(publisher, *span)
        self._unfinished = {}

    async def _take_batch(self) -> MessageBatch | None:
        """Return the next batch to be iterated. If the iteration of the last batch was left before its end, the
        rest of that batch comes first: only the messages that were yielded count as delivered."""
        current, self._current_batch = self._current_batch, None
        if current is not None:
            yielded = self._hole_position or self._progress.entries[current.publisher]
            self._hole_position = None
            if yielded < current.last:
                return current.clip(yielded + 1, current.last)
        batch = await self._inbox.take()
        self._listener.update_backpressure()
        return batch

    def _iterate_batch(self, batch: MessageBatch) -> Iterator[Message]:
        """Yield the messages of a batch; each counts as delivered when it is yielded."""
        entries, publisher = self._progress.entries, batch.publisher
        self._remaining = iter(DeliveredBatch(self.feed, batch, self._filter))
        self._current_batch = batch
        if batch.first <= entries.get(publisher, 0):
            yield from self._iterate_hole(publisher)
        else:
            self._unfinished = {publisher: []}
            for message in self._remaining:
                entries[publisher] = message.sequence
                yield message
        if self._current_batch is batch:  # otherwise it was closed meanwhile
            self._progress.deliver(publisher, batch.first, batch.last)
            self._unfinished = {}
            self._current_batch = self._hole_position = None

    def _iterate_hole(self, publisher: bytes) -> Iterator[Message]:
        """Iterate over a batch that an earlier incarnation had skipped."""
        for message in self._remaining:
            sequence = self._hole_position = message.sequence
            self._unfinished = {publisher: [(sequence, sequence)]}
            self._progress.deliver(publisher, sequence, sequence)
            yield message

    # --- actions that run when the application has processed everything before them

    def _apply_view(self, view: View, cut: Vector) -> None:
        self.view = view
        self._progress.advance_to(cut)
        if self._on_view is not None:
            self._on_view(view)

    def _apply_recovered(self, vector: Vector) -> None:
        self.is_live = True
        self._progress.advance_to(vector)

    def _apply_loss(self, lost: LostRange) -> None:
        self.lost.append(lost)
        self._progress.skip(lost.publisher, lost.first, lost.last)


class _SubscriptionListener(MemberListener):
    """Puts the deliveries of a member into the inbox of a subscription, and applies backpressure."""

    def __init__(self, subscription: Subscription, inbox: Inbox) -> None:
        self._subscription = subscription
        self._inbox = inbox
        self._tag = 0  # of the last packet that is handled and not settled
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when we are a member: messages published from now on arrive, after the recovered ones."""

    def deliver(self, batch: MessageBatch) -> None:
        self._mark_joined()
        self._inbox.put(batch)
        self.update_backpressure()

    def acknowledge(self, packet: bytes) -> None:
        self._inbox.run_after(lambda: self.driver.endpoint.send(ARCHIVES, packet))

    def view_installed(self, view: View, cut: Vector) -> None:
        self._mark_joined()
        self._inbox.run_after(lambda: self._subscription._apply_view(view, cut))

    def recovery_finished(self, vector: Vector) -> None:
        self._mark_joined()
        self._inbox.run_after(lambda: self._subscription._apply_recovered(vector))

    def messages_lost(self, lost: LostRange) -> None:
        log.warning(
            "messages lost: no reachable member has them (feed=%s first=%d last=%d publisher=%s)",
            *(self._subscription.feed, lost.first, lost.last, lost.publisher.hex()),
        )
        self._inbox.run_after(lambda: self._subscription._apply_loss(lost))

    def packet_handled(self, packet: bytes, tag: int, *, is_malformed: bool) -> None:
        self._tag = tag
        self.update_backpressure()

    def update_backpressure(self) -> None:
        """Settle the handled packets, so that the broker sends more, unless the inbox is full."""
        if self.attached is None:
            return
        is_full = self._inbox.buffered_bytes >= INBOX_LIMIT_BYTES
        self.attached.member.context.is_inbox_full = is_full
        if self._tag and not is_full:
            self.attached.endpoint.settle(self._tag)
            self._tag = 0

    def feed_failed(self, reason: str, *, is_recovery: bool) -> None:
        self._fail(RecoveryError(reason) if is_recovery else FeedError(reason))

    def transport_lost(self, error: Exception) -> None:
        feed = self._subscription.feed
        self._fail(TransportLostError(f"feed {feed}: transport lost: {error}"))

    def internal_error(self, error: Exception) -> None:
        self._fail(MemberFailedError(self._subscription.feed, error))

    def _mark_joined(self) -> None:
        if not self.joined.done():
            self.joined.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._inbox.close(error)
        if not self.joined.done():
            self.joined.set_exception(error)
