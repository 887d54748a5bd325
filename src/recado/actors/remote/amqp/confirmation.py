"""How a bridge learns that the broker has received its messages: by publisher confirms, or by checkpoints.

    ConfirmPublisher      the broker confirms each message, once it is stored if it is persistent
    CheckpointPublisher   sends basic.qos on the same channel as a checkpoint while messages are unconfirmed

A broker processes the methods of a channel in order. When it answers a request, it has routed all messages
before it, and returned those without a queue. For a message that is not persistent a confirm says no more than
that, and costs the broker as much as the message itself.

CF1  Messages are numbered from 1 on, and each number is reported as settled once, in ranges; none is reported
     after the channel has closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from recado.client import Channel, ClientError

CHECKPOINT_INTERVAL_S: Final = 0.1
"""Each checkpoint wakes both sides. Unconfirmed messages are held, to be published again if the channel is
lost; a caller that waits for space requests a checkpoint at once."""

ConfirmCallback: TypeAlias = Callable[[range, bool], None]
"""Called with the numbers of settled messages, and whether the broker accepted them."""


class BridgePublisher(Protocol):
    @property
    def channel(self) -> Channel: ...

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        """Publish a message and return its number."""

    def request_confirm(self) -> None:
        """A caller waits for space: have everything so far confirmed without delay."""

    def mark_returned(self, number: int) -> None:
        """The broker has returned this message, which settles it."""


class ConfirmPublisher:
    def __init__(self, channel: Channel, on_confirmed: ConfirmCallback) -> None:
        self.channel = channel
        channel.on_confirm = on_confirmed

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        return self.channel.publish(exchange, key, body, properties, mandatory=True)

    def request_confirm(self) -> None:
        """The broker confirms without a request."""

    def mark_returned(self, number: int) -> None:
        """Do nothing: the broker also confirms a message that it has returned."""


class CheckpointPublisher:
    def __init__(self, channel: Channel, on_confirmed: ConfirmCallback) -> None:
        self.channel = channel
        self._on_confirmed = on_confirmed
        self._loop = asyncio.get_running_loop()
        self._published_count = 0
        self._confirmed_upto = 0
        # Set, even when cancelled, until the checkpoint is done: `publish` starts no second timer meanwhile.
        self._timer: asyncio.TimerHandle | None = None
        self._checkpoint_task: asyncio.Task[None] | None = None

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        self.channel.publish(exchange, key, body, properties, mandatory=True)
        self._published_count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(CHECKPOINT_INTERVAL_S, self.request_confirm)
        return self._published_count

    def request_confirm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._checkpoint_task is None and self.channel.is_open:
            self._checkpoint_task = self._loop.create_task(self._checkpoint(self._published_count))

    async def _checkpoint(self, upto: int) -> None:
        try:
            await self.channel.qos(0)
        except ClientError:
            return
        if self.channel.is_open:
            self._checkpoint_task = self._timer = None
            if self._published_count > upto:
                self._timer = self._loop.call_later(CHECKPOINT_INTERVAL_S, self.request_confirm)
            self._confirm_upto(upto)

    def mark_returned(self, number: int) -> None:
        """A return is as good as a checkpoint: all earlier messages were routed."""
        self._confirm_upto(number)

    def _confirm_upto(self, upto: int) -> None:
        first = self._confirmed_upto + 1
        if first <= upto:
            self._confirmed_upto = upto
            self._on_confirmed(range(first, upto + 1), True)
