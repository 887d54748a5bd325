"""How a bridge learns that the broker has what it was sent: by confirms, or by asking now and then.

    Confirms      the broker says it of each message, when it is where it stays: on disk, if it is to last
    Checkpoints   an empty question on the same channel, now and then while there is something to ask

A broker does what a channel says in its order. So when it answers a question it has done all before it: routed
each message, and given back those that had nowhere to go. A confirm says no more than that of a message which
lasts no longer than the broker itself, and costs it as much as the message.

RC1  Numbers are given from 1 on, and told as settled once, in ranges; none after the channel has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from recado.client import Channel, ClientError

CHECKPOINT_INTERVAL_S: Final = 0.1
"""Seconds between two questions: each wakes both sides. What is not answered is kept, so that it can be sent
again, and whoever waits for room asks at once."""

ConfirmCallback: TypeAlias = Callable[[range, bool], None]
"""These numbers are settled, and whether the broker took them."""


class BridgePublisher(Protocol):
    @property
    def channel(self) -> Channel: ...

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        """The message's number."""

    def request_confirm(self) -> None:
        """Somebody waits: do not put it off."""

    def mark_returned(self, number: int) -> None:
        """The broker gave this one back, and settled it by that."""


class ConfirmPublisher:
    def __init__(self, channel: Channel, on_confirmed: ConfirmCallback) -> None:
        self.channel = channel
        channel.on_confirm = on_confirmed

    def publish(self, exchange: str, key: str, body: bytes, properties: bytes) -> int:
        return self.channel.publish(exchange, key, body, properties, mandatory=True)

    def request_confirm(self) -> None:
        """It answers by itself."""

    def mark_returned(self, number: int) -> None:
        """It answers for the others by itself, too."""


class CheckpointPublisher:
    def __init__(self, channel: Channel, on_confirmed: ConfirmCallback) -> None:
        self.channel = channel
        self._on_confirmed = on_confirmed
        self._loop = asyncio.get_running_loop()
        self._published_count = 0
        self._confirmed_upto = 0
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
        """As good as an answer: what was before it has been routed."""
        self._confirm_upto(number)

    def _confirm_upto(self, upto: int) -> None:
        first = self._confirmed_upto + 1
        if first <= upto:
            self._confirmed_upto = upto
            self._on_confirmed(range(first, upto + 1), True)
