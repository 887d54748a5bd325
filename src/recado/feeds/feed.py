"""A feed, as a program that publishes on it or subscribes to it has it.

    feed = await link.feed("quotes")
    await feed.publish(b"…", key="PETR4")        # waits for room only
    await feed.flush()                           # all confirmed

It becomes a publisher with the first message, and is then the same one until it is closed; the next life of
the program is another publisher, unless it is told to go on as an earlier one (`Earlier`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from msgspec.structs import replace

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import Value, encode_table

from .block import Block
from .boundary import Options, Policy, Publish
from .driver import Driver, Station, join, stack_for
from .errors import CarrierLost, FeedClosed, FeedError, MemberFailed
from .gathering import BATCH_BYTES, WINDOW, Gatherer, check_size
from .naming import check_feed, check_name, new_id
from .selecting import wanted_by
from .stack import StackError
from .subscription import OnView, Recovery, Subscription, policy_of
from .transport.port import Carrier
from .views import MemberId, Role


class Earlier(NamedTuple):
    """An earlier life of a publisher, to go on as the same one. What it may have published already can be
    published once more under its own sequences, and is then there once."""

    publisher: bytes
    last: int
    """The sequence behind which to go on."""


class Feed(Station):
    """Made by `Link.feed`."""

    def __init__(
        self,
        carrier: Carrier,
        name: str,
        stack: str | None,
        options: Options,
        *,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW,
        earlier: Earlier | None = None,
    ) -> None:
        self.name = check_feed(name)
        self._carrier = carrier
        self._stack = stack
        self._options = options
        self._me = new_id() if earlier is None else MemberId("", earlier.publisher)
        self._resumed = 0 if earlier is None else earlier.last
        self._opening = asyncio.Lock()
        self._gatherer = Gatherer(
            self._put, batch_bytes=batch_bytes, window=window, begun=self._resumed
        )
        self._subscriptions: list[Subscription] = []
        self._closed = False

    @property
    def publisher(self) -> bytes:
        """What names us in `Message.publisher`."""
        return self._me.incarnation

    @property
    def published(self) -> int:
        """The sequence of the last message published; the first is 1."""
        return self._gatherer.last

    @property
    def confirmed(self) -> int:
        """The sequence up to which all is confirmed."""
        return self._gatherer.confirmed

    @property
    def is_closed(self) -> bool:
        return self._closed

    # --- publishing

    async def publish(
        self,
        body: bytes,
        *,
        key: str = "",
        headers: Mapping[str, Value] | None = None,
        message_id: str = "",
        properties: Properties | None = None,
    ) -> int:
        """One message; gives its sequence. All of a turn of the loop travel together."""
        gatherer = self._gatherer
        while self._driver is None or not gatherer.has_room:
            await self._ready()
        return gatherer.add(
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
        headers: Mapping[str, Value] | None = None,
        properties: Properties | None = None,
    ) -> range:
        """Many at a time, which is much cheaper; gives their sequences."""
        if not bodies:
            return range(0)
        key = encoded(keys, len(bodies), "keys")
        message_id = encoded(message_ids, len(bodies), "message_ids")
        common = encode_table(dict(headers)) if headers else b""
        about = encode_properties(properties) if properties is not None else b""
        besides = longest(key) + longest(message_id) + len(common) + len(about)
        check_size(max(map(len, bodies)) + besides, longest(key))
        first = 0
        for piece in self._gatherer.pieces(bodies, besides):
            while self._driver is None or not self._gatherer.has_room:
                await self._ready()
            last = self._gatherer.add_many(
                bodies[piece],
                key if isinstance(key, bytes) else key[piece],
                message_id if isinstance(message_id, bytes) else message_id[piece],
                common,
                about,
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
        """Many at a time that have nothing in common: all of them columns, encoded as in an archive."""
        if not bodies:
            return
        longest_key = max(map(len, keys))
        others = (message_ids, headers, properties)
        besides = longest_key + sum(max(map(len, column)) for column in others)
        check_size(max(map(len, bodies)) + besides, longest_key)
        for piece in self._gatherer.pieces(bodies, besides):
            while self._driver is None or not self._gatherer.has_room:
                await self._ready()
            self._gatherer.add_many(
                *(bodies[piece], keys[piece], message_ids[piece]),
                *(headers[piece], properties[piece], timestamps[piece]),
            )

    async def flush(self) -> None:
        """Until all that was published so far is confirmed."""
        await self._gatherer.settled()

    async def _ready(self) -> None:
        if self._driver is None:
            async with self._opening:
                self._check_open()
                if self._driver is None:
                    driver = await join(
                        *(self._carrier, self.name, self._me, Role.PUBLISHER),
                        *(self._stack, replace(self._options, resumed=self._resumed), self),
                    )
                    if self._closed:  # meanwhile, by one who did not wait for us
                        await driver.leave()
        await self._gatherer.room()

    def _check_open(self) -> None:
        if self._closed:
            raise self._closed_by_us()

    def _closed_by_us(self) -> FeedClosed:
        return FeedClosed(f"the feed {self.name} was closed by this program")

    # --- subscribing

    def subscribe(
        self,
        name: str,
        *,
        selector: str | None = None,
        recovery: Recovery = None,
        live_without_archive: bool = False,
        on_view: OnView | None = None,
    ) -> Subscription:
        """To be entered by `async with`. The name is what an archive knows the subscriber by.

        Raises `SelectorError`, which shows the place, for a selector that cannot be understood, and
        `StackError` for `recovery` with a stack that has no SYNC.
        """
        me = new_id(check_name(name, "a subscriber"))
        policy, vector = policy_of(recovery)
        stack = stack_for(self._stack, Role.SUBSCRIBER, self._carrier.transport)
        if policy is not Policy.NONE and "SYNC" not in stack.names:
            raise StackError(f'the stack "{stack}" has no SYNC, which recovers messages')
        options = replace(
            self._options,
            recovery=policy,
            vector=vector,
            live_without_archive=live_without_archive,
        )

        async def joined(subscription: Subscription) -> Driver:
            self._check_open()
            still_open = (each for each in self._subscriptions if not each.is_closed)
            self._subscriptions = [*still_open, subscription]
            return await join(
                *(self._carrier, self.name, me, Role.SUBSCRIBER),
                *(self._stack, options, subscription),
            )

        wanted = None if selector is None else wanted_by(selector, self.name)
        return Subscription(self.name, name, joined, start=vector, wanted=wanted, on_view=on_view)

    # --- the end

    async def close(self, *, flush: bool = True) -> None:
        """Subscriptions end, and what was published is confirmed before, unless told otherwise."""
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as closing:  # all of it, whatever fails
            closing.push_async_callback(self._leave, flush=flush)
            for subscription in self._subscriptions:
                closing.push_async_callback(subscription.close)

    async def _leave(self, *, flush: bool) -> None:
        try:
            if flush:
                await self.flush()
        finally:
            self._gatherer.fail(self._closed_by_us())
            if self._driver is not None:
                await self._driver.leave()

    # --- for the driver

    def _put(self, block: Block) -> None:
        self.driver.handle(Publish(block))

    def confirmed_upto(self, number: int) -> None:
        self._gatherer.confirm(number)

    def failed(self, reason: str, *, recovery: bool) -> None:
        self._gatherer.fail(FeedError(reason))

    def broken(self, error: Exception) -> None:
        self._gatherer.fail(CarrierLost(f"the feed {self.name} is out of reach: {error}"))

    def faulted(self, fault: Exception) -> None:
        self._gatherer.fail(MemberFailed(self.name, fault))


def encoded(texts: Sequence[str] | str, count: int, what: str) -> list[bytes] | bytes:
    if isinstance(texts, str):
        return texts.encode()
    if len(texts) != count:
        raise ValueError(f"there are {count} bodies and {len(texts)} {what}")
    return [text.encode() for text in texts]


def longest(values: list[bytes] | bytes) -> int:
    """Bytes of the longest, at least of one."""
    return len(values) if isinstance(values, bytes) else max(map(len, values))
