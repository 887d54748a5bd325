"""A subscription: messages as they come, after what was missed.

    async with feed.subscribe("desk-1", recovery="pessimistic") as messages:
        async for message in messages:
            …                                  # messages.vector covers what has come, this one included

S1  Of each publisher messages come in order, none twice and none left out, except where `lost` says so.
S2  `vector` covers what the application was given; what is lost is a hole in it. Saved together with what was
    made of the messages, and given as `recovery` the next time, it makes each message count exactly once.
S3  A view is acknowledged only after the application asked for what follows it: so what it was not given, or
    was given and had not finished when it died, is never called delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Final, Literal, Self, TypeAlias, overload

from .boundary import ARCHIVES, Batch, Policy
from .driver import Driver, Station
from .errors import CannotJoin, CarrierLost, FeedError, MemberFailed, RecoveryFailed
from .inbox import Inbox
from .message import Message, messages_of
from .vector import MAX_SEQUENCE, Progress, Span, Vector, within
from .views import Lost, View

Recovery: TypeAlias = Literal["optimistic", "pessimistic", "archive"] | Vector | None
Filter: TypeAlias = Callable[[Message], bool]
OnView: TypeAlias = Callable[[View], object]

CROWDED: Final = 16 << 20
"""Bytes in the inbox from which on neither the carrier nor an archive is to bring more."""

AT_ONCE: Final = 10_000
"""Messages that are given together."""

log = logging.getLogger("recado.feeds")


def policy_of(recovery: Recovery) -> tuple[Policy, Vector]:
    """What the application says, in the words of the core."""
    match recovery:
        case None | "optimistic":
            return Policy.NONE, Vector()
        case "pessimistic":
            return Policy.PESSIMISTIC, Vector()
        case "archive":
            return Policy.ARCHIVE, Vector()
        case Vector():
            return Policy.VECTOR, recovery
        case _:
            raise ValueError(
                f"recovery is optimistic, pessimistic, archive, a Vector or None, not {recovery!r}"
            )


class Messages(Sequence[Message]):
    """Consecutive messages of one publisher, made when first looked at; with a selector, what it selects."""

    def __init__(self, feed: str, batch: Batch, wanted: Filter | None = None) -> None:
        self.feed = feed
        self.batch = batch
        self._wanted = wanted
        self._made: list[Message] | None = None

    def _all(self) -> list[Message]:
        if self._made is None:
            made = messages_of(self.feed, self.batch)
            self._made = made if self._wanted is None else list(filter(self._wanted, made))
        return self._made

    def __len__(self) -> int:
        return self.batch.count if self._wanted is None else len(self._all())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...

    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        return self._all()[place]


class Subscription(Station):
    """Entered once. `join` brings it into the feed, and gives what drives it."""

    def __init__(
        self,
        feed: str,
        name: str,
        join: Callable[[Subscription], Awaitable[Driver]],
        *,
        start: Vector,
        wanted: Filter | None = None,
        on_view: OnView | None = None,
        join_seconds: float = 30.0,
    ) -> None:
        self.feed = feed
        self.name = name
        self.view: View | None = None
        """Who takes part, as far as the application has come."""
        self.lost: list[Lost] = []
        """Messages that nobody has any more; what is behind them came."""
        self.is_live = False
        """Whether all that was missed has been taken."""
        self._join = join
        self._wanted = wanted
        self._on_view = on_view
        self._join_seconds = join_seconds
        self._inbox = Inbox()
        self._progress = Progress(start)
        self._member: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entered = False
        self._closed = False
        self._tag = 0
        self._in_hand: dict[
            bytes, list[Span]
        ] = {}  # of publishers; of one without any, the last message
        self._walked: Batch | None = None  # a batch that was not yet walked to its end,
        self._ahead: Iterator[Message] = iter(())  # what of it is still to come,
        self._hole_at: int | None = None  # and where we are, if it is out of a hole

    # --- for the application

    @property
    def vector(self) -> Vector:
        return self._progress.vector()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def waiting(self) -> int:
        """Bytes that have come and were not taken."""
        return self._inbox.bytes

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a subscription is entered once; subscribe again")
        self._entered = True
        try:
            await self._join(self)
            async with asyncio.timeout(self._join_seconds):
                await self._member
        except BaseException as error:
            self._closed = True
            if self._driver is not None:
                await self._driver.stop()
            if isinstance(error, TimeoutError):
                raise CannotJoin(
                    f"{self.name} was not let into the feed {self.feed} "
                    f"within {self._join_seconds:g} s",
                    "The members there do not answer; `recado feed members` shows them.",
                ) from error
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(finished=kind is None)

    async def close(self, *, finished: bool = True) -> None:
        """Leave, and say what we have: not what was not taken, nor what the application has not `finished`.
        Whoever iterates meanwhile is given nothing more."""
        self._inbox.end()
        self._walked = None
        deque(self._ahead, maxlen=0)  # exhausted, so that the walk ends without a look at each step
        if self._driver is not None and not self._closed:
            self._closed = True
            for publisher, spans in () if finished else self._in_hand.items():
                last = self._progress.entries[publisher]
                for span in spans or [(last, last)]:
                    self._progress.withdraw(publisher, *span)
            await self._driver.leave(self.vector)

    async def __aiter__(self) -> AsyncIterator[Message]:
        while (batch := await self.take()) is not None:
            for message in self.walk(batch):
                yield message

    async def batches(self) -> AsyncIterator[Messages]:
        """Many at a time, which is much cheaper."""
        while (messages := await self.next_batch()) is not None:
            yield messages

    async def next_batch(self) -> Messages | None:
        """None when the subscription was closed."""
        self._in_hand = {}
        while (batch := await self.take()) is not None:
            self._in_hand = {}
            messages = self._give(batch)
            if self._wanted is None or len(messages):
                return messages
        return None

    async def next_batches(self, most: int = AT_ONCE) -> list[Messages]:
        """The next one, and what has come behind it, up to about so many messages: for a program to which each
        step is dear, such as a transaction. Empty when the subscription was closed."""
        first = await self.next_batch()
        if first is None:
            return []
        found, count = [first], first.batch.count
        while count < most and (batch := self._inbox.take_along()) is not None:
            count += batch.count
            messages = self._give(batch)
            if self._wanted is None or len(messages):
                found.append(messages)
        self._make_room()
        return found

    def _give(self, batch: Batch) -> Messages:
        self._in_hand.setdefault(batch.publisher, []).append((batch.first, batch.last))
        self._progress.deliver(batch.publisher, batch.first, batch.last)
        return Messages(self.feed, batch, self._wanted)

    def finished_with(self, message: Message) -> None:
        """Of the batch in hand only what is up to this message counts as taken: we go no further."""
        for publisher, spans in self._in_hand.items():
            for span in within(spans, message.sequence + 1, MAX_SEQUENCE):
                if publisher == message.publisher:
                    self._progress.withdraw(publisher, *span)
        self._in_hand = {}

    async def take(self) -> Batch | None:
        """The next batch, for whoever then walks it; it counts as given only so far as that came. What is left
        of one that was not walked to its end comes first."""
        walked, self._walked = self._walked, None
        if walked is not None:
            at = self._hole_at or self._progress.entries[walked.publisher]
            self._hole_at = None
            if at < walked.last:
                return walked.part(at + 1, walked.last)
        batch = await self._inbox.take()
        self._make_room()
        return batch

    def walk(self, batch: Batch) -> Iterator[Message]:
        entries, publisher = self._progress.entries, batch.publisher
        self._ahead = iter(Messages(self.feed, batch, self._wanted))
        self._walked = batch
        if batch.first <= entries.get(publisher, 0):
            yield from self._walk_hole(publisher)
        else:
            self._in_hand = {publisher: []}
            for message in self._ahead:
                entries[publisher] = message.sequence
                yield message
        if self._walked is batch:  # else it was closed meanwhile
            self._progress.deliver(publisher, batch.first, batch.last)
            self._in_hand = {}
            self._walked = self._hole_at = None

    def _walk_hole(self, publisher: bytes) -> Iterator[Message]:
        """A batch that an earlier life had passed over."""
        for message in self._ahead:
            at = self._hole_at = message.sequence
            self._in_hand = {publisher: [(at, at)]}
            self._progress.deliver(publisher, at, at)
            yield message

    # --- for the driver

    def deliver(self, batch: Batch) -> None:
        self._let_in()
        self._inbox.put(batch)
        self._make_room()

    def acknowledge(self, packet: bytes) -> None:
        self._inbox.then(lambda: self._acknowledge(packet))

    def _acknowledge(self, packet: bytes) -> None:
        self.driver.port.send(ARCHIVES, packet)

    def installed(self, view: View, cut: Vector) -> None:
        self._let_in()
        self._inbox.then(lambda: self._passed(view, cut))

    def _passed(self, view: View, cut: Vector) -> None:
        self.view = view
        self._progress.raise_to(cut)
        if self._on_view is not None:
            self._on_view(view)

    def _let_in(self) -> None:
        """We take part: what is published from now on comes, after what an archive has for us."""
        if not self._member.done():
            self._member.set_result(None)

    def recovered(self, vector: Vector) -> None:
        self._let_in()
        self._inbox.then(lambda: self._caught_up(vector))

    def _caught_up(self, vector: Vector) -> None:
        self.is_live = True
        self._progress.raise_to(vector)

    def lost_some(self, lost: Lost) -> None:
        log.warning(
            "feed %s: messages %d–%d of publisher %s are lost: nobody who is here has them",
            *(self.feed, lost.first, lost.last, lost.publisher.hex()),
        )
        self._inbox.then(lambda: self._skipped(lost))

    def _skipped(self, lost: Lost) -> None:
        self.lost.append(lost)
        self._progress.skip(lost.publisher, lost.first, lost.last)

    def handled(self, packet: bytes, tag: int, *, refused: bool) -> None:
        self._tag = tag
        self._make_room()

    def _make_room(self) -> None:
        if self._driver is None:
            return
        crowded = self._inbox.bytes >= CROWDED
        self._driver.member.site.crowded = crowded
        if self._tag and not crowded:
            self._driver.port.settle(self._tag)
            self._tag = 0

    def failed(self, reason: str, *, recovery: bool) -> None:
        self._fail(RecoveryFailed(reason) if recovery else FeedError(reason))

    def broken(self, error: Exception) -> None:
        self._fail(CarrierLost(f"the feed {self.feed} is out of reach: {error}"))

    def faulted(self, fault: Exception) -> None:
        self._fail(MemberFailed(self.feed, fault))

    def _fail(self, error: Exception) -> None:
        self._inbox.end(error)
        if not self._member.done():
            self._member.set_exception(error)
