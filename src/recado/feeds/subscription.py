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
from .views import LostRange, View

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
        self.feed = feed
        self.batch = batch
        self._filter = filter_
        self._messages: list[Message] | None = None

    def _decode(self) -> list[Message]:
        if self._messages is None:
            made = decode_messages(self.feed, self.batch)
            self._messages = made if self._filter is None else list(filter(self._filter, made))
        return self._messages

    def __len__(self) -> int:
        return self.batch.count if self._filter is None else len(self._decode())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._decode())

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        return self._decode()[place]


class Subscription(MemberListener):
    """Yields the messages of a feed; made by `Feed.subscribe` and entered once, by `async with`."""

    def __init__(
        self,
        feed: str,
        name: str,
        join: Callable[[Subscription], Awaitable[Driver]],
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
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entered = False
        self._closed = False
        self._tag = 0
        self._unfinished: dict[
            bytes, list[Span]
        ] = {}  # by publisher; an empty list stands for its last message
        self._current_batch: MessageBatch | None = None  # batch that is being iterated,
        self._remaining: Iterator[Message] = iter(())  # the rest of it,
        self._hole_position: int | None = (
            None  # and the current sequence, if the batch fills a hole
        )

    # --- for the application

    @property
    def vector(self) -> Vector:
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
            await self._join(self)
            async with asyncio.timeout(self._join_timeout):
                await self._joined
        except BaseException as error:
            self._closed = True
            if self._driver is not None:
                await self._driver.stop()
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
        """Leave the feed and acknowledge the processed messages; without `finished`, not the ones in hand. A
        concurrent iteration ends."""
        self._inbox.close()
        self._current_batch = None
        deque(self._remaining, maxlen=0)  # exhaust it, so that a running iteration ends
        if self._driver is not None and not self._closed:
            self._closed = True
            for publisher, spans in () if finished else self._unfinished.items():
                last = self._progress.entries[publisher]
                for span in spans or [(last, last)]:
                    self._progress.withdraw(publisher, *span)
            await self._driver.leave(self.vector)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (batch := await self.take_batch()) is not None:
            for message in self.iterate_batch(batch):
                yield message

    async def batches(self) -> AsyncIterator[DeliveredBatch]:
        """Iterate over batches, which is much cheaper than over messages."""
        while (messages := await self.next_batch()) is not None:
            yield messages

    async def next_batch(self) -> DeliveredBatch | None:
        """Return the next batch, or None when the subscription is closed."""
        self._unfinished = {}
        while (batch := await self.take_batch()) is not None:
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
        found, count = [first], first.batch.count
        while count < max_messages and (batch := self._inbox.take_ready()) is not None:
            count += batch.count
            messages = self._hand_out(batch)
            if self._filter is None or len(messages):
                found.append(messages)
        self._update_backpressure()
        return found

    def _hand_out(self, batch: MessageBatch) -> DeliveredBatch:
        self._unfinished.setdefault(batch.publisher, []).append((batch.first, batch.last))
        self._progress.deliver(batch.publisher, batch.first, batch.last)
        return DeliveredBatch(self.feed, batch, self._filter)

    def mark_finished(self, message: Message) -> None:
        """Of the current batches, count only the messages up to this one as processed; the caller will leave."""
        for publisher, spans in self._unfinished.items():
            for span in clip_spans(spans, message.sequence + 1, MAX_SEQUENCE_ID):
                if publisher == message.publisher:
                    self._progress.withdraw(publisher, *span)
        self._unfinished = {}

    async def take_batch(self) -> MessageBatch | None:
        """Return the next batch to be iterated; it counts as delivered as far as the iteration got. The rest of
        a batch whose iteration was left comes first."""
        walked, self._current_batch = self._current_batch, None
        if walked is not None:
            at = self._hole_position or self._progress.entries[walked.publisher]
            self._hole_position = None
            if at < walked.last:
                return walked.clip(at + 1, walked.last)
        batch = await self._inbox.take()
        self._update_backpressure()
        return batch

    def iterate_batch(self, batch: MessageBatch) -> Iterator[Message]:
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
            at = self._hole_position = message.sequence
            self._unfinished = {publisher: [(at, at)]}
            self._progress.deliver(publisher, at, at)
            yield message

    # --- for the driver

    def deliver(self, batch: MessageBatch) -> None:
        self._mark_joined()
        self._inbox.put(batch)
        self._update_backpressure()

    def acknowledge(self, packet: bytes) -> None:
        self._inbox.run_after(lambda: self._acknowledge(packet))

    def _acknowledge(self, packet: bytes) -> None:
        self.driver.endpoint.send(ARCHIVES, packet)

    def view_installed(self, view: View, cut: Vector) -> None:
        self._mark_joined()
        self._inbox.run_after(lambda: self._apply_view(view, cut))

    def _apply_view(self, view: View, cut: Vector) -> None:
        self.view = view
        self._progress.advance_to(cut)
        if self._on_view is not None:
            self._on_view(view)

    def _mark_joined(self) -> None:
        """Note that we are a member: messages published from now on will arrive, after the recovered ones."""
        if not self._joined.done():
            self._joined.set_result(None)

    def recovery_finished(self, vector: Vector) -> None:
        self._mark_joined()
        self._inbox.run_after(lambda: self._apply_recovered(vector))

    def _apply_recovered(self, vector: Vector) -> None:
        self.is_live = True
        self._progress.advance_to(vector)

    def messages_lost(self, lost: LostRange) -> None:
        log.warning(
            "messages lost: no reachable member has them (feed=%s first=%d last=%d publisher=%s)",
            *(self.feed, lost.first, lost.last, lost.publisher.hex()),
        )
        self._inbox.run_after(lambda: self._apply_loss(lost))

    def _apply_loss(self, lost: LostRange) -> None:
        self.lost.append(lost)
        self._progress.skip(lost.publisher, lost.first, lost.last)

    def packet_handled(self, packet: bytes, tag: int, *, is_malformed: bool) -> None:
        self._tag = tag
        self._update_backpressure()

    def _update_backpressure(self) -> None:
        if self._driver is None:
            return
        crowded = self._inbox.buffered_bytes >= INBOX_LIMIT_BYTES
        self._driver.member.context.is_inbox_full = crowded
        if self._tag and not crowded:
            self._driver.endpoint.settle(self._tag)
            self._tag = 0

    def feed_failed(self, reason: str, *, is_recovery: bool) -> None:
        self._fail(RecoveryError(reason) if is_recovery else FeedError(reason))

    def transport_lost(self, error: Exception) -> None:
        self._fail(TransportLostError(f"feed {self.feed}: transport lost: {error}"))

    def internal_error(self, error: Exception) -> None:
        self._fail(MemberFailedError(self.feed, error))

    def _fail(self, error: Exception) -> None:
        self._inbox.close(error)
        if not self._joined.done():
            self._joined.set_exception(error)
