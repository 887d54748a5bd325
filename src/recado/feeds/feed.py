"""A feed, as a program publishes on it and subscribes to it.

    feed = connection.feed("quotes")
    await feed.publish(b"…", key="PETR4")        # waits only for joining, and while the send window is full
    await feed.flush()                           # all confirmed

A feed becomes a publisher with the first message, and stays the same publisher until it is closed. The next
start of the program is a new publisher, unless it resumes an earlier one (`ResumePoint`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from msgspec.structs import replace

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import FieldValue, encode_table

from .block import Block
from .boundary import PublishRequested
from .coalescer import BATCH_BYTES, MAX_IN_FLIGHT_BATCHES, PublishCoalescer, check_message_size
from .driver import Driver, MemberListener, join_feed, resolve_stack
from .errors import FeedClosedError, FeedError, MemberFailedError, TransportLostError
from .naming import check_feed_name, check_name, new_member_id
from .options import FeedOptions, RecoveryPolicy
from .selector_fields import compile_selector
from .stack import StackError
from .subscription import Recovery, Subscription, ViewCallback, parse_recovery
from .transport.endpoint import FeedTransport
from .views import MemberId, Role


class ResumePoint(NamedTuple):
    """The id and the last sequence of an earlier publisher, to continue as the same publisher. Messages that it
    may have published already can be published again with the same sequences; subscribers receive them once."""

    publisher: bytes
    last_sequence: int
    """The sequence after which to continue."""


class Feed:
    """Publishes on a feed and subscribes to it; made by `FeedConnection.feed`."""

    def __init__(
        self,
        transport: FeedTransport,
        name: str,
        stack: str | None,
        options: FeedOptions,
        *,
        batch_bytes: int = BATCH_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT_BATCHES,
        resume: ResumePoint | None = None,
    ) -> None:
        self.name = check_feed_name(name)
        self._transport = transport
        self._stack = stack
        self._options = options
        self._member_id = new_member_id() if resume is None else MemberId("", resume.publisher)
        self._resume_after = 0 if resume is None else resume.last_sequence
        self._join_lock = asyncio.Lock()
        self._coalescer = PublishCoalescer(
            self._publish_block,
            batch_bytes=batch_bytes,
            max_in_flight=max_in_flight,
            resume_after=self._resume_after,
        )
        self._driver: Driver | None = None  # of the publisher, from the first message on
        self._subscriptions: list[Subscription] = []
        self._closed = False

    @property
    def publisher(self) -> bytes:
        """The id that `Message.publisher` has for messages published here."""
        return self._member_id.incarnation

    @property
    def last_sequence(self) -> int:
        """The sequence of the last published message; the first is 1."""
        return self._coalescer.last_sequence

    @property
    def confirmed_sequence(self) -> int:
        """The sequence up to which all messages are confirmed."""
        return self._coalescer.confirmed_sequence

    @property
    def is_closed(self) -> bool:
        return self._closed

    # --- publishing

    async def publish(
        self,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, FieldValue] | None = None,
        message_id: str = "",
        properties: Properties | None = None,
    ) -> int:
        """Publish one message.

        Messages published in the same turn of the event loop are sent as one batch. The first call waits until the
        feed has joined as a publisher; later ones wait only while the send window is full.

        Returns the sequence of the message. Raises `ValueError` if it is too large, `FeedError` if the feed is
        closed or has failed.
        """
        coalescer = self._coalescer
        while self._driver is None or not coalescer.has_room:
            await self._wait_ready()
        return coalescer.add(
            body,
            key.encode(),
            message_id.encode(),
            encode_table(dict(headers)) if headers else b"",
            encode_properties(properties) if properties is not None else b"",
        )

    async def publish_many(
        self,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str] | str = "",
        message_ids: Sequence[str] | str = "",
        headers: Mapping[str, FieldValue] | None = None,
        properties: Properties | None = None,
    ) -> range:
        """Publish many messages, which is much cheaper than one at a time.

        `keys` and `message_ids` are one value for all messages, or one for each. Returns the sequences. Raises
        `ValueError` if lengths differ or a message is too large, `FeedError` if the feed is closed or has
        failed.
        """
        if not bodies:
            return range(0)
        key = encode_texts(keys, len(bodies), "keys")
        message_id = encode_texts(message_ids, len(bodies), "message_ids")
        encoded_headers = encode_table(dict(headers)) if headers else b""
        encoded_properties = encode_properties(properties) if properties is not None else b""
        overhead = (
            max_length(key)
            + max_length(message_id)
            + len(encoded_headers)
            + len(encoded_properties)
        )
        check_message_size(max(map(len, bodies)) + overhead, max_length(key))
        first = 0
        for piece in self._coalescer.split(bodies, overhead):
            while self._driver is None or not self._coalescer.has_room:
                await self._wait_ready()
            last = self._coalescer.add_many(
                bodies[piece],
                key if isinstance(key, bytes) else key[piece],
                message_id if isinstance(message_id, bytes) else message_id[piece],
                encoded_headers,
                encoded_properties,
            )
            first = first or last - (piece.stop - piece.start) + 1
        return range(first, last + 1)

    async def publish_encoded(
        self,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[bytes],
        message_ids: Sequence[bytes],
        headers: Sequence[bytes],
        properties: Sequence[bytes],
        timestamps: Sequence[int],
    ) -> None:
        """Publish many messages whose columns are encoded as in an archive."""
        if not bodies:
            return
        longest_key = max(map(len, keys))
        columns = (message_ids, headers, properties)
        overhead = longest_key + sum(max(map(len, column)) for column in columns)
        check_message_size(max(map(len, bodies)) + overhead, longest_key)
        for piece in self._coalescer.split(bodies, overhead):
            while self._driver is None or not self._coalescer.has_room:
                await self._wait_ready()
            self._coalescer.add_many(
                *(bodies[piece], keys[piece], message_ids[piece]),
                *(headers[piece], properties[piece], timestamps[piece]),
            )

    async def flush(self) -> None:
        """Wait until all messages published so far are confirmed. Raises `FeedError` if that fails."""
        await self._coalescer.wait_for_confirms()

    async def _wait_ready(self) -> None:
        if self._driver is None:
            async with self._join_lock:
                self._check_open()
                if self._driver is None:
                    self._driver = await join_feed(
                        self._transport,
                        self.name,
                        self._member_id,
                        Role.PUBLISHER,
                        self._stack,
                        replace(self._options, resume_after=self._resume_after),
                        _PublisherListener(self.name, self._coalescer),
                    )
                    if self._closed:  # closed by another task during the join
                        await self._driver.leave()
        await self._coalescer.wait_for_room()

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_error()

    def _closed_error(self) -> FeedClosedError:
        return FeedClosedError(f"feed {self.name} is closed")

    # --- subscribing

    def subscribe(
        self,
        name: str,
        *,
        selector: str | None = None,
        recovery: Recovery = None,
        live_without_archive: bool = False,
        on_view: ViewCallback | None = None,
    ) -> Subscription:
        """Return a subscription, to be entered by `async with`.

        `name` identifies the subscriber to archives over restarts. `selector` limits the messages to those that
        match. `recovery` says which missed messages to receive first: None or "optimistic" (none),
        "pessimistic" (all after the last acknowledgement of this name), "archive" (the same, started by the
        archive), or a `Vector` (all that it does not contain). With `live_without_archive`, a recovery that
        finds no archive leaves a gap instead of failing. `on_view` is called with each new view.

        Raises `ValueError` for an invalid name or `recovery`, `SelectorError` for an invalid selector, and
        `StackError` for `recovery` with a stack without SYNC.
        """
        member_id = new_member_id(check_name(name, "a subscriber"))
        policy, vector = parse_recovery(recovery)
        stack = resolve_stack(self._stack, Role.SUBSCRIBER, self._transport.layer_name)
        if policy is not RecoveryPolicy.NONE and "SYNC" not in stack.names:
            raise StackError(f'stack "{stack}" has no SYNC, which recovery needs')
        options = replace(
            self._options,
            recovery=policy,
            start_vector=vector,
            live_without_archive=live_without_archive,
        )

        async def join(subscription: Subscription, listener: MemberListener) -> Driver:
            self._check_open()
            still_open = (each for each in self._subscriptions if not each.is_closed)
            self._subscriptions = [*still_open, subscription]
            return await join_feed(
                self._transport,
                self.name,
                member_id,
                Role.SUBSCRIBER,
                self._stack,
                options,
                listener,
            )

        filter_ = None if selector is None else compile_selector(selector, self.name)
        return Subscription(self.name, name, join, start=vector, filter_=filter_, on_view=on_view)

    # --- end

    async def close(self, *, flush: bool = True) -> None:
        """Close the feed and its subscriptions; with `flush`, wait for the confirms of published messages
        first."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as closing:  # close everything, whatever fails
            closing.push_async_callback(self._leave, flush=flush)
            for subscription in self._subscriptions:
                closing.push_async_callback(subscription.close)

    async def _leave(self, *, flush: bool) -> None:
        try:
            if flush:
                await self.flush()
        finally:
            self._coalescer.fail(self._closed_error())
            if self._driver is not None:
                await self._driver.leave()

    def _publish_block(self, block: Block) -> None:
        assert self._driver is not None, "nothing is published before the feed has joined"
        self._driver.handle(PublishRequested(block))


class _PublisherListener(MemberListener):
    """Reports confirms and failures of the publisher's member to the coalescer of the feed."""

    def __init__(self, feed: str, coalescer: PublishCoalescer) -> None:
        self._feed = feed
        self._coalescer = coalescer

    def publish_confirmed(self, last_sequence: int) -> None:
        self._coalescer.confirm(last_sequence)

    def feed_failed(self, reason: str, *, is_recovery: bool) -> None:
        self._coalescer.fail(FeedError(reason))

    def transport_lost(self, error: Exception) -> None:
        self._coalescer.fail(TransportLostError(f"feed {self._feed}: transport lost: {error}"))

    def internal_error(self, error: Exception) -> None:
        self._coalescer.fail(MemberFailedError(self._feed, error))


def encode_texts(texts: Sequence[str] | str, count: int, parameter: str) -> list[bytes] | bytes:
    if isinstance(texts, str):
        return texts.encode()
    if len(texts) != count:
        raise ValueError(f"{len(texts)} {parameter} for {count} bodies")
    return [text.encode() for text in texts]


def max_length(values: list[bytes] | bytes) -> int:
    """Length of the longest value, or of the single one."""
    return len(values) if isinstance(values, bytes) else max(map(len, values))
